"""Colour profiles like those of scanners, made by formula, and slides that have one."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

import numpy as np

from pipeline.store.format.metadata import read_json, write_json
from tests.attacks.leaky_profiles import assembled

_RESERVED = bytes(4)
_PRIMARIES = {
    b"rXYZ": (0.6097, 0.3111, 0.0195),
    b"gXYZ": (0.2053, 0.6257, 0.0609),
    b"bXYZ": (0.1492, 0.0632, 0.7448),
}
"""Primaries wider than a screen's: colours that a scanner tells apart are clipped by a screen."""
_GRID, _CURVE_NODES = 9, 256


def matrix_profile(gamma: float) -> bytes:
    """Profile of three primaries and a curve."""
    curve = b"para" + _RESERVED + struct.pack(">HHi", 0, 0, round(gamma * 65_536))
    tags = {name: b"XYZ " + _RESERVED + struct.pack(">3i", *_fixed(xyz)) for name, xyz in _PRIMARIES.items()}
    return assembled(tags | dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve), b"XYZ ", b"")


def table_profile() -> bytes:
    """Profile with a table of Lab values, as from a measured target, that no matrix could express."""
    linear = (np.stack(np.meshgrid(*[np.linspace(0, 1, _GRID)] * 3, indexing="ij"), -1).reshape(-1, 3)) ** 2.0
    xyz = linear @ np.array(list(_PRIMARIES.values()))
    ratio = xyz / np.array([0.9642, 1.0, 0.8249])
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    lightness = 116 * f[:, 1] - 16
    a = 500 * (f[:, 0] - f[:, 1]) * 0.92 + 2 * np.sin(lightness / 12)
    b = 200 * (f[:, 1] - f[:, 2]) * 0.95 + 2 * np.cos(lightness / 9)
    encoded = np.stack([lightness / 100 * 65_280, (a + 128) * 256, (b + 128) * 256], -1).clip(0, 65_535)
    identity = struct.pack(">9i", *(65_536 if i % 4 == 0 else 0 for i in range(9)))
    straight = np.linspace(0, 65_535, _CURVE_NODES).astype(">u2").tobytes()
    data = b"mft2" + _RESERVED + bytes([3, 3, _GRID, 0]) + identity + struct.pack(">HH", _CURVE_NODES, 2)
    data += 3 * straight + encoded.astype(">u2").tobytes() + 3 * struct.pack(">HH", 0, 65_535)
    return assembled({b"A2B0": data}, b"Lab ", b"")


def give_profile(store: Path, icc: bytes) -> None:
    """Add a profile to a slide's store, as if it had come with the slide."""
    root = read_json(store / "zarr.json")
    root["attributes"]["gemslide"]["icc"] = base64.b64encode(icc).decode()
    write_json(store / "zarr.json", root)


def _fixed(values: tuple[float, ...]) -> list[int]:
    return [round(value * 65_536) for value in values]
