"""Embedding: one encoder's features of a slide, in its store."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from pipeline.jobs.stage import Stage
from pipeline.settings.config import EmbedConfig
from pipeline.store.layers.features import features_path, open_features, read_features
from pipeline.study.stages.hashes import folder_sha256
from pipeline.study.stages.kind import Output, StageKind, Work


class Embed(StageKind):
    """Its output is the features and the corners of their tiles; its measures are the numbers of tiles and of features
    of each, with `stored_sha256` of the layer's files."""

    name = section = "embed"
    settings: ClassVar = EmbedConfig
    of_encoders = True

    def stage(self, work: Work) -> Stage:
        from pipeline.embedding.stage import EmbedStage

        output, config = work.output, cast(EmbedConfig, work.settings)
        return EmbedStage(output.slide_id, work.encoders[output.network_id], output.project, config, work.devices)

    def output_sha256(self, output: Output) -> str:
        return str(read_features(output.store, output.network_id).attributes["values_sha256"])

    def measures(self, output: Output) -> dict[str, Any]:
        stored = open_features(output.store, output.network_id)
        return {
            "tiles": stored.num_tiles,
            "dims": stored.dims,
            "stored_sha256": folder_sha256(features_path(output.store, output.network_id)),
        }


EMBED = Embed()
