"""kill -9 at random moments of an embedding: the next run resumes, to the same bytes as an unbroken run.

`make chaos` kills a hundred times: `python -m tests.pipeline.embedding.chaos --times 100 --seed 0`.
"""

from __future__ import annotations

from pathlib import Path

from pipeline.batches.where import RunOn
from pipeline.embedding.embed import embed_slide
from pipeline.embedding.encoder import TileEncoder
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import EmbedConfig, IngestConfig
from pipeline.store.layers.features import list_features
from tests.pipeline.slide_chaos import Victim, log_batches, main
from tests.small_trained_project import TISSUE, make_slide
from tests.training.encoders.tiny_encoders import TIMM_CONFIG, folder_row, timm_state

CONFIG = EmbedConfig(batch_size=8)
SLIDE = "S-1"


def embed(project: Path, log: Path) -> None:
    """Run the embedding that is killed."""
    encoder = TileEncoder.load(project / "encoders/tiny.toml", RunOn("cpu"))
    log_batches(encoder, log)
    embed_slide(SLIDE, encoder, Project(project), CONFIG)


def make_embedding(folder: Path) -> Victim:
    """The embedding of a slide by a tiny encoder, both made in `folder`."""
    project = Project(folder)
    make_slide(folder / "slide.tiff", seed=1)
    ingest_slide(IngestRequest(folder / "slide.tiff", SLIDE), project, IngestConfig(shard_px=512, tissue=TISSUE))
    folder_row(folder / "encoders", timm_state(), TIMM_CONFIG)
    return Victim(
        work=embed,
        store=project.store_path(SLIDE),
        linked=folder / "encoders",
        layer="features",
        list_layers=list_features,
        preloaded=("pipeline.embedding.embed", "tests.pipeline.slide_chaos", "tests.training.encoders.tiny_encoders"),
        late_kills=1 / 8,
        publishing_s=0.1,
    )


if __name__ == "__main__":
    main(__doc__, make_embedding)
