"""Embedding of a whole slide against the encoder's forward alone, in turns.

    .venv/bin/python -m benchmarks.slide_level_embed [--only WORD …] [--rounds 5] [--device cpu]

ResNet-50 and ViT-S/16 (random weights) and EfficientNet-Lite0 on tiles of 224 px; at a stored level of the slide, and
at 1.5 times its µm per px, where tiles are read at level 0 and made smaller. `road` is `embed_slide` from the opened
project to features in the store; `predicting` is its part from the first tile to the last feature; `alone` is the same
network with the same batches on the same device, with normalised tiles in memory. On a CPU both run in turns of a
quarter second (`benchmarks.slices`), on a GPU one after the other. Figures are medians over rounds of one slide each.
`alone / as built` compares that network, whose normalisation gemslide has folded and whose memory it has laid out, with
the network as its package builds it, batch by batch in turns, on a CPU.
Prints a JSON line per encoder and spacing; the committed ones are in benchmarks/results/slide_level_embed.jsonl.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import torch
from torch import nn

from benchmarks.infer_work import Opened, Work, measure, measure_in_turns, slide_of
from benchmarks.machine import circumstances
from benchmarks.networks import MEAN, STD, resnet50
from pipeline.batches.network import usual_batch_size
from pipeline.embedding.embed import embed_slide
from pipeline.embedding.encoder import TileEncoder
from pipeline.project import Project
from pipeline.settings.config import EmbedConfig
from pipeline.store.reading.reader import StoreReader
from training.encoders.open import open_encoder
from training.encoders.pooling import Pooling
from training.encoders.row import Pool, read_encoder_file
from training.encoding import Encoder
from training.inference import RunOn
from training.machine.allocator import keep_for_prediction
from training.models.vit import ViTSizes, vit
from training.predict.forward_only import ForwardOnly
from training.predict.numerics import Numerics, ready_to_predict

SIDE_PX = 224
BETWEEN_LEVELS = 1.5
"""µm per px of the tiles, relative to level 0."""
COMPARED_BATCHES = 9
"""Batches of the network as built."""


@dataclass(frozen=True)
class EmbedWork(Work):
    """An encoder on a slide."""

    pool: Pool = "none"
    dims: int = 0
    spacing: float = 1.0
    """µm per px of its tiles, relative to level 0."""
    benchmark: str = "slide_level_embed"

    def opened(self, project: Project, network: nn.Module | None = None) -> Opened:
        """The encoder, or another network in its place, and embedding with it."""
        keep_for_prediction()
        torch.manual_seed(0)
        encoder = self._encoder(project, network)
        tile_encoder = TileEncoder(encoder)
        return Opened(
            network=encoder.forward_only.network,
            mean=MEAN,
            std=STD,
            run_on=encoder.run_on,
            tile_px=self.tile_px,
            batch_size=usual_batch_size(tile_encoder.devices, self.tile_px),
            run=lambda advance: embed_slide(
                "S-1", tile_encoder, project, EmbedConfig(min_tissue=0.0), advance=advance
            ),
            forget=lambda: shutil.rmtree(project.store_path("S-1") / "features", ignore_errors=True),
        )  # fmt: skip

    def _encoder(self, project: Project, network: nn.Module | None) -> Encoder:
        device, numerics = torch.device(self.device), Numerics(self.precision)
        trial = network is not None
        pooling = Pooling("none" if trial else self.pool, int(self.pool == "cls"), 2 if trial else self.dims, self.name)
        ready = ready_to_predict(
            network or self.network(0), [device], numerics, input_shape=(1, 3, self.tile_px, self.tile_px)
        )
        return Encoder(
            encoder_id="trial-00000000" if trial else "bench-00000000",
            name="bench",
            row={},
            weights_sha256="0" * 64,
            dims=pooling.dims,
            tile_px=self.tile_px,
            mpp=StoreReader(project.store_path("S-1")).mpp0 * self.spacing,
            mean=MEAN,
            std=STD,
            read="level",
            run_on=RunOn(self.device, numerics),
            forward_only=ForwardOnly(ready, pooling, MEAN, STD, device, numerics),
        )


def resnet50_trunk(_: int) -> nn.Sequential:
    """ResNet-50 up to its pooled 2,048 channels."""
    blocks = list(resnet50(1))
    return nn.Sequential(*blocks[:-1], nn.AdaptiveAvgPool2d(1), nn.Flatten())


def vit_small(_: int) -> nn.Sequential:
    """ViT-S/16: 12 layers of width 384 with 6 heads."""
    return vit(ViTSizes(side_px=SIDE_PX, patch_px=16, width=384, depth=12, heads=6, hidden=1536))


def lite0(_: int) -> nn.Module:
    """EfficientNet-Lite0 with the weights of its package, to a feature map."""
    row = Path(str(files("training.encoders") / "rows" / "lite0.toml"))
    return open_encoder(read_encoder_file(row)).backbone.network


def ready_over_built(work: EmbedWork, project: Project) -> float:
    """Speed of the network that `alone` runs, relative to the same one as it was built."""
    opened = work.opened(project)
    built = work.network(0).eval()
    images = torch.rand(opened.batch_size, 3, work.tile_px, work.tile_px)
    seconds: dict[nn.Module, list[float]] = {built: [], opened.network: []}
    with torch.inference_mode():
        for number in range(COMPARED_BATCHES + 1):
            for network, taken in seconds.items():
                layout = torch.contiguous_format if network is built else torch.channels_last
                batch = images.contiguous(memory_format=layout)
                start = time.perf_counter()
                network(batch)
                if number:  # the first one is a warm-up
                    taken.append(time.perf_counter() - start)
    return round(statistics.median(seconds[built]) / statistics.median(seconds[opened.network]), 3)


WORKS = (
    EmbedWork("ResNet-50", resnet50_trunk, SIDE_PX, 8_064, pool="none", dims=2048),
    EmbedWork("ViT-S/16", vit_small, SIDE_PX, 4_032, pool="cls", dims=384),
    EmbedWork("EfficientNet-Lite0", lite0, SIDE_PX, 8_064, pool="mean", dims=1280),
)
GPU_SLIDE_PX = 16_128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="encoders whose name holds one of these words")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    on_gpu = options.device != "cpu"
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as folder:
        for work in WORKS:
            if options.only and not any(word in work.name for word in options.only):
                continue
            for spacing in (1.0, BETWEEN_LEVELS):
                # The same number of tiles at either spacing.
                slide_px = int((GPU_SLIDE_PX if on_gpu else work.slide_px) * spacing) // 256 * 256
                at = "at a level" if spacing == 1.0 else "between levels"
                case = replace(
                    work, name=f"{work.name}, {at}", spacing=spacing, slide_px=slide_px, device=options.device
                )  # fmt: skip
                how = measure if on_gpu else measure_in_turns
                project = slide_of(Path(folder), slide_px)
                line = how(case, project, options.rounds)
                if not on_gpu:
                    line["alone / as built"] = ready_over_built(case, project)
                gpu = {"gpu": torch.cuda.get_device_name(0)} if on_gpu else {}
                print(json.dumps({**line, **gpu, **circumstances("benchmarks.slide_level_embed")}), flush=True)


if __name__ == "__main__":
    main()
