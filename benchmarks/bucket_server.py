"""A bucket on loopback in a process of its own, each answer after a delay: files of a folder, by aiohttp.

    .venv/bin/python -m benchmarks.bucket_server FOLDER DELAY_S

Answers GET and HEAD of `/BUCKET/KEY` with an ETag, of parts of a file too, only if its ETag is the one that was asked
for. Prints its port.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiohttp import web


def main() -> None:
    folder, delay_s = Path(sys.argv[1]).resolve(), float(sys.argv[2])

    async def answer(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(delay_s)
        path = folder / request.match_info["key"]
        if not (path.resolve().is_relative_to(folder) and path.is_file()):
            return web.Response(status=404)
        return web.FileResponse(path)

    async def serve() -> None:
        app = web.Application()
        app.router.add_get("/scans/{key:.+}", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
