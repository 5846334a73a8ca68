"""Opening of an encoder: its weights, compared with the row, and its network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from training.encoders.kinds.backbone import Backbone
from training.encoders.kinds.entry_point import entry_point_encoder
from training.encoders.kinds.hf_folder import folder_network, folder_weights, read_folder_config
from training.encoders.kinds.onnx import onnx_encoder
from training.encoders.kinds.package import package_network, package_weights
from training.encoders.kinds.timm import timm_encoder
from training.encoders.pooling import Pooling
from training.encoders.row import EncoderFile, encoder_id
from training.encoders.untrained import redraw
from training.encoders.weights import read_state, read_weights


@dataclass(frozen=True)
class OpenedEncoder:
    """An encoder's network with its weights, on the CPU, not prepared for prediction."""

    file: EncoderFile
    encoder_id: str
    backbone: Backbone
    pooling: Pooling


def open_encoder(file: EncoderFile) -> OpenedEncoder:
    """Open the encoder that a row describes.

    Raises:
        UnreadableError: weights or code are missing, damaged, or others than the row says; or a file runs code.
        DecompressionBombError: weights that are declared larger than their file.
        BadRecipeError: a package that it needs is not installed.
    """
    backbone = _backbone(file)
    if file.row.untrained:
        redraw(backbone, file.row, _where(file))
    pooling = Pooling(file.row.pool, backbone.prefix_tokens, file.row.dims, _where(file))
    return OpenedEncoder(file, identify(file), backbone, pooling)


def identify(file: EncoderFile) -> str:
    """The encoder's id, without opening its weights.

    Raises:
        UnreadableError: kind "hf-folder": its configuration, which the id depends on, cannot be read.
    """
    if file.row.kind == "hf-folder":
        return encoder_id(file, read_folder_config(file.resolve(file.row.source))[1])
    return encoder_id(file)


def weights_path(file: EncoderFile) -> Path:
    """The file with the encoder's weights; it may be missing.

    Raises:
        UnreadableError, BadRecipeError: kind "package": it is unknown, or not installed.
    """
    row = file.row
    if row.weights is not None:
        return file.resolve(row.weights)
    if row.kind == "package":
        return package_weights(row.source, _where(file))
    return folder_weights(file.resolve(row.source)) if row.kind == "hf-folder" else file.resolve(row.source)


def _backbone(file: EncoderFile) -> Backbone:
    row, where, path = file.row, _where(file), weights_path(file)
    if row.kind == "onnx":
        return onnx_encoder(read_weights(path, row.sha256), str(path), tile_px=row.tile_px, dims=row.dims)
    if row.kind == "hf-folder":
        config, _ = read_folder_config(file.resolve(row.source))  # before the weights: it may be refused
        return folder_network(config, read_state(path, row.sha256, keep=True), str(path), tile_px=row.tile_px)
    # The folder of an installed package is not ours to write to.
    state = read_state(path, row.sha256, keep=row.kind != "package")
    if row.kind == "package":
        return package_network(row.source, state, where, tile_px=row.tile_px)
    if row.kind == "timm":
        return timm_encoder(row.source, state, where, tile_px=row.tile_px, is_pooled=row.pool == "none")
    return entry_point_encoder(row.source, state, row, where)


def _where(file: EncoderFile) -> str:
    return f"encoder {file.name}"
