"""Files whose slide is in an unexpected place: the slide is read pixel for pixel, or the file is refused.

`python -m tests.attacks.wrong_slides --times 300`: TIFFs, OME-TIFFs and OME-Zarr containers of a slide or two, with
labels, macro images and thumbnails by many names and in any order, of any size and proportion.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.cohort.manifest import Cohort, SlideEntry
from pipeline.errors import AmbiguousSeriesError
from pipeline.ingest.check import check_slide
from pipeline.slides.registry import open_slide
from tests.attacks.attack import Result, main
from tests.pipeline.make import sample_image
from tests.pipeline.slides.make_ome_zarr import write_container
from tests.pipeline.slides.make_tiff_families import write_ome_tiff
from training.foundation.errors import GemslideError, UnreadableError

Pixels = NDArray[np.uint8]

NAMES = (
    "label", "Label Image", "slide_label", "LABEL 387x463", "Etikett", "etiqueta", "Barcode", "macro", "Macro image",
    "Overview", "Uebersichtsbild", "SlidePreview", "thumbnail", "Preview", "Vorschau", "miniatura", "Thumbnail 2",
)  # fmt: skip
MPP0 = 0.5


@dataclass(frozen=True)
class _Image:
    """One image of a planted file."""

    levels: list[Pixels]
    name: str = ""
    """Name in the file; "" for a slide."""


@dataclass(frozen=True)
class _Planted:
    """A file, and the numbers of its images."""

    path: Path
    slides: dict[str, _Image]
    labels: tuple[str, ...]


def attack(times: int, seed: int) -> Result:
    """Plant `times` files and read each as every verb does."""
    result = Result("wrong slides")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(times):
            chance = random.Random(f"{seed}-{number}")
            writer = chance.choice((_generic_tiff, _generic_tiff, _ome_tiff, _ome_zarr))
            where = Path(folder) / str(number)
            where.mkdir()
            planted = writer(where, _images(chance), chance)
            result.attempts += 1
            try:
                _check(planted, result, f"{seed}-{number} ({writer.__name__})")
            except Exception as error:
                result.findings.append(f"{seed}-{number}: {type(error).__name__}: {error!s:.200}")
    return result


def _images(chance: random.Random) -> list[_Image]:
    """One slide, or two of similar size, and up to three associated images; in any order."""
    width, height = chance.randrange(300, 700), chance.randrange(200, 500)
    images = [_Image(_reduced(sample_image(width, height, 1), chance.randrange(3)))]
    if chance.random() < 0.4:
        second = 255 - sample_image(chance.randrange(280, 700), chance.randrange(220, 500), 2)
        images.append(_Image(_reduced(second, chance.randrange(3))))
    for seed in range(chance.randrange(4)):
        step = chance.choice((2, 4))
        size = chance.choice(
            ((width // step, height // step), (chance.randrange(40, 900), chance.randrange(40, 600)), (1600, 60))
        )
        images.append(_Image([sample_image(*size, seed + 5)], chance.choice(NAMES)))
    chance.shuffle(images)
    return images


def _reduced(pixels: Pixels, times: int) -> list[Pixels]:
    return [np.ascontiguousarray(pixels[:: 2**level, :: 2**level]) for level in range(times + 1)]


def _generic_tiff(folder: Path, images: list[_Image], chance: random.Random) -> _Planted:
    """Pages in any order, levels among them; names in descriptions or page names."""
    pages = [(index, level) for index, image in enumerate(images) for level in range(len(image.levels))]
    chance.shuffle(pages)
    by_page_name = chance.random() < 0.3
    path = folder / chance.choice(("a.tif", "a.tiff", "a.svs"))
    with tifffile.TiffWriter(path) as tiff:
        for index, level in pages:
            image = images[index]
            options: dict[str, Any] = {"tile": (64, 64)} if chance.random() < 0.8 or not image.name else {}
            if image.name and by_page_name:
                options["extratags"] = [(285, 2, 0, image.name, True)]
            elif image.name:
                options["description"] = image.name
            else:
                options |= {"resolution": (1e4 / MPP0 / 2**level,) * 2, "resolutionunit": "CENTIMETER"}
            tiff.write(
                image.levels[level], photometric="rgb", compression="deflate", metadata=None,
                subfiletype=chance.choice((0, 1)), **options,
            )  # fmt: skip
    numbers = {index: str(pages.index((index, 0))) for index in range(len(images))}
    return _planted(path, images, numbers)


def _ome_tiff(folder: Path, images: list[_Image], _: random.Random) -> _Planted:
    """Write the first image's lower levels as SubIFDs; the other images have one level each."""
    first, *others = images
    beside = {f"{image.name or 'scene'} {number}": image.levels[0] for number, image in enumerate(others)}
    made = write_ome_tiff(folder / "a.ome.tiff", first.levels, beside=beside, size=(MPP0, MPP0, "µm"))
    if first.name:
        made.path.write_bytes(made.path.read_bytes().replace(b'Name="slide"', b'Name="label"', 1))
    kept = [_Image(made.levels, first.name), *(_Image(image.levels[:1], image.name) for image in others)]
    return _planted(made.path, kept, {index: str(index) for index in range(len(images))})


def _ome_zarr(folder: Path, images: list[_Image], chance: random.Random) -> _Planted:
    named = {f"{image.name or 'scene'} {number}": image.levels for number, image in enumerate(images)}
    path = write_container(folder / "a.zarr", named, version=chance.choice(("0.4", "0.5")))
    return _planted(path, images, {index: str(index) for index in range(len(images))})


def _planted(path: Path, images: list[_Image], numbers: dict[int, str]) -> _Planted:
    slides = {numbers[index]: image for index, image in enumerate(images) if not image.name}
    return _Planted(path, slides, tuple(numbers[index] for index, image in enumerate(images) if image.name))


def _check(planted: _Planted, result: Result, what: str) -> None:
    """Check every promise about one file."""
    entry = SlideEntry(path=planted.path.name, slide_id="a", mpp=MPP0)
    cohort = Cohort(path=planted.path.parent / "cohort.csv", entries=(entry,))
    answers = [_answer(lambda: _read(planted, None)), _answer(lambda: check_slide(cohort, entry))]
    wanted = "" if len(planted.slides) == 1 else AmbiguousSeriesError.code
    result.check(answers == [wanted, wanted], f"{what}: {len(planted.slides)} slides, answers {answers}")
    if len(planted.slides) == 1:
        _compare(planted, None, next(iter(planted.slides.values())), result, what)
    for series, image in planted.slides.items():
        _compare(planted, series, image, result, f"{what}, series {series}")
    for label in planted.labels:
        answer = _answer(lambda label=label: _read(planted, label))  # type: ignore[misc]
        result.check(answer in (UnreadableError.code, AmbiguousSeriesError.code), f"{what}: label {label} was read")


def _answer(work: Callable[[], object]) -> str:
    """Code of the refusal; "" if there is none."""
    try:
        work()
    except GemslideError as error:
        return error.code
    return ""


def _read(planted: _Planted, series: str | None) -> None:
    with open_slide(planted.path, series):
        pass


def _compare(planted: _Planted, series: str | None, image: _Image, result: Result, what: str) -> None:
    """Whether every offered level is the planted image's."""
    with open_slide(planted.path, series) as slide:
        by_width = {pixels.shape[1]: pixels for pixels in image.levels}
        finest = slide.info.levels[0]
        result.check(finest.width_px == image.levels[0].shape[1], f"{what}: level 0 of {finest.width_px} px")
        for level, size in enumerate(slide.info.levels):
            pixels = slide.read_region(level, Box(0, 0, size.width_px, size.height_px))
            wanted = by_width.get(size.width_px)
            same = wanted is not None and wanted.shape == pixels.shape and np.array_equal(wanted, pixels)
            result.check(same, f"{what}: level {level} shows something else")


if __name__ == "__main__":
    main(attack, times=300)
