"""Small OME-Zarr folders as other programs write them: 0.4 on zarr v2, 0.5 on zarr v3, any order of axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

UNITS = {"x": "micrometer", "y": "micrometer", "z": "micrometer", "t": "second"}
KINDS = {"t": "time", "c": "channel"}
COLOURS = ("FF0000", "00FF00", "0000FF")


def write_image(
    group: zarr.Group,
    levels: list[NDArray[Any]],
    *,
    axes: str = "cyx",
    version: str = "0.5",
    mpp: float | None = 0.25,
    unit: str | None = None,
    name: str = "image",
    colours: tuple[str, ...] | None = COLOURS,
    model: str = "color",
    chunk_px: int = 64,
    translations_px: list[float] | None = None,
) -> None:
    """Write a multiscale image into a group; `levels` are y,x,c (or any of the channels), finest first.

    Args:
        mpp: level-0 scale along x and y in `unit` (micrometer); None leaves the units out.
        translations_px: position of each level's corner, in its own pixels.
    """
    datasets = []
    for i, pixels in enumerate(levels):
        have = "yxc"[: pixels.ndim]
        full = pixels.reshape(pixels.shape + (1,) * (len(axes) - pixels.ndim))
        order = have + "".join(axis for axis in axes if axis not in have)
        data = full.transpose([order.index(axis) for axis in axes])
        chunks = tuple(chunk_px if axis in "yx" else min(3, n) for axis, n in zip(axes, data.shape, strict=True))
        options: dict[str, Any] = {"dimension_names": list(axes)} if version == "0.5" else {}
        array = group.create_array(str(i), shape=data.shape, dtype=data.dtype, chunks=chunks, **options)
        array[...] = data
        step = (mpp or 1.0) * 2**i
        scale = [step if axis in "yx" else 1.0 for axis in axes]
        moves = [{"type": "scale", "scale": scale}]
        if translations_px:
            at = [step * translations_px[i] if axis in "yx" else 0.0 for axis in axes]
            moves.append({"type": "translation", "translation": at})
        datasets.append({"path": str(i), "coordinateTransformations": moves})
    described = [_axis(axis, mpp, unit) for axis in axes]
    ome: dict[str, Any] = {"multiscales": [{"name": name, "axes": described, "datasets": datasets}]}
    if colours is not None:
        window = {"min": 0, "max": 255, "start": 0, "end": 255}
        channels = [{"color": colour, "active": True, "window": window} for colour in colours]
        ome["omero"] = {"channels": channels, "rdefs": {"model": model}}
    if version == "0.5":
        group.attrs["ome"] = {"version": version, **ome}
    else:
        ome["multiscales"][0]["version"] = version
        group.attrs.update(ome)


def _axis(axis: str, mpp: float | None, unit: str | None) -> dict[str, str]:
    entry = {"name": axis, "type": KINDS.get(axis, "space")}
    if axis in "yx" and unit and mpp is not None:
        return {**entry, "unit": unit}
    return {**entry, "unit": UNITS[axis]} if axis in UNITS and mpp is not None else entry


def state_scales(path: Path, scales: list[float]) -> None:
    """Let the datasets of an OME-Zarr of axes c, y, x state other steps."""
    group = zarr.open_group(path)
    ome = group.attrs["ome"]
    for dataset, scale in zip(ome["multiscales"][0]["datasets"], scales, strict=True):
        dataset["coordinateTransformations"][0]["scale"] = [1.0, scale, scale]
    group.attrs["ome"] = ome


def create(path: Path, version: str = "0.5") -> zarr.Group:
    return zarr.create_group(path, zarr_format=3 if version == "0.5" else 2)


def write_ome_zarr(path: Path, levels: list[NDArray[Any]], **options: Any) -> Path:
    """Write a folder that is one image."""
    write_image(create(path, options.get("version", "0.5")), levels, **options)
    return path


def write_container(
    path: Path, images: dict[str, list[NDArray[Any]]], *, version: str = "0.5", listed: bool = True
) -> Path:
    """Write a folder of several images in bioformats2raw's layout; `images` by name, numbered in order."""
    root = create(path, version)
    layout = {"bioformats2raw.layout": 3}
    root.attrs.update({"ome": {"version": version, **layout}} if version == "0.5" else layout)
    names = [str(i) for i in range(len(images))]
    ome = root.create_group("OME")
    if listed:
        ome.attrs.update({"ome": {"version": version, "series": names}} if version == "0.5" else {"series": names})
    xml = '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Instrument><Objective '
    (path / "OME" / "METADATA.ome.xml").write_text(
        f'{xml}ID="Objective:0" NominalMagnification="20.0"/></Instrument></OME>'
    )
    for number, (name, levels) in zip(names, images.items(), strict=True):
        write_image(root.create_group(number), levels, version=version, name=name)
    return path


def white(width_px: int, height_px: int) -> NDArray[np.uint8]:
    return np.full((height_px, width_px, 3), 255, np.uint8)
