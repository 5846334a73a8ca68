"""TIAToolbox's own tile server on a slide: run with the Python of its environment (benchmarks/others.py).

    FOLDER/tiatoolbox/bin/python -I benchmarks/others_tileserver.py SLIDE.svs | --check

Started as by its command line: Flask with a thread per connection, without keep-alive. Prints a JSON line with its port
and number of levels, then serves until it is stopped.
"""

from __future__ import annotations

import json
import sys
from typing import Any

DECLARED: list[Any] = []
"""Declared operators, which torch drops together with the library that declared them."""


def main() -> None:
    declare_nms()
    from tiatoolbox.visualization.tileserver import TileServer
    from tiatoolbox.wsicore.wsireader import WSIReader
    from werkzeug.serving import WSGIRequestHandler, make_server

    if sys.argv[1:] == ["--check"]:
        return

    class Silent(WSGIRequestHandler):
        def log_request(self, code: object = "-", size: object = "-") -> None:
            pass

    app = TileServer("benchmark", {"slide": WSIReader.open(sys.argv[1])})
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Silent)
    print(json.dumps({"port": server.port, "levels": app.pyramids["default"]["slide"].level_count}), flush=True)
    server.serve_forever()


def declare_nms() -> None:
    """Declare the only operator that importing torchvision needs; see others_predict.py."""
    import torch

    operators: Any = torch.library
    library = operators.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    DECLARED.append(library)


if __name__ == "__main__":
    main()
