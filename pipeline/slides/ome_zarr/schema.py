"""The part of NGFF 0.4 and 0.5 metadata that is used, as pydantic models that name whatever has the wrong type."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)


class Axis(_Model):
    name: str
    unit: str | None = None


class Transformation(_Model):
    """A coordinate transformation; only scales and translations are used."""

    type: str
    scale: tuple[float, ...] | None = None
    translation: tuple[float, ...] | None = None


class Dataset(_Model):
    """One level."""

    path: str
    transformations: list[Transformation] = Field([], alias="coordinateTransformations")


class Image(_Model):
    """One entry of `multiscales`."""

    name: str | None = None
    axes: list[Axis]
    datasets: list[Dataset] = Field(min_length=1)
    transformations: list[Transformation] = Field([], alias="coordinateTransformations")


class Channel(_Model):
    color: int | str | None = None
    label: str | None = None


class Rendering(_Model):
    model: str | None = None


class Omero(_Model):
    """Display settings."""

    channels: list[Channel] | None = None
    rdefs: Rendering | None = None
