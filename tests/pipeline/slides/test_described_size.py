"""A scale belongs to the size that the text beside it describes: programs that shrink an image keep its text."""

from __future__ import annotations

import re

import pytest
import tifffile

from pipeline.slides.registry import open_slide
from pipeline.slides.tiff.described_size import aperio_size, shrinkage
from tests.pipeline.make import halved, overwrite_tag, sample_image
from training.foundation.errors import GemslideError

WIDTH_PX, HEIGHT_PX = 600, 440


def mpp_in(path, description, *, mpp_of_tags=None):
    """Scale read from a slide with these texts, and where it was searched."""
    tags = {"resolution": (1e4 / mpp_of_tags,) * 2, "resolutionunit": "CENTIMETER"} if mpp_of_tags else {}
    with tifffile.TiffWriter(path, ome=False) as tiff:
        pixels = sample_image(WIDTH_PX, HEIGHT_PX)
        options = {"tile": (128, 128), "photometric": "rgb", "compression": "deflate", "metadata": None}
        tiff.write(pixels, description=description, **options, **tags)
    with open_slide(path) as slide:
        return slide.info.mpp_xy, slide.info.mpp_looked_in


def aperio(sizes):
    return f"Aperio Image Library v12.0.15\r\n{sizes} (240x240) JPEG/RGB Q=70|AppMag = 40|MPP = 0.25"


def ome(*images):
    body = "".join(
        f'<Image ID="Image:{i}"><Pixels ID="Pixels:{i}" DimensionOrder="XYCZT" Type="uint8" SizeC="3" SizeZ="1" '
        f'SizeT="1" SizeX="{x}" SizeY="{y}" PhysicalSizeX="{mpp}" PhysicalSizeY="{mpp}" Interleaved="true">'
        f'<Channel ID="Channel:{i}:0" SamplesPerPixel="3"/>{data}</Pixels></Image>'
        for i, (x, y, mpp, data) in enumerate(images)
    )
    return f'<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">{body}</OME>'


HERE = '<TiffData IFD="0" PlaneCount="1"/>'


@pytest.mark.parametrize(
    ("sizes", "mpp"),
    [
        (f"{WIDTH_PX}x{HEIGHT_PX}", 0.25),
        (f"46000x32914 [42673,5576 {WIDTH_PX}x{HEIGHT_PX}]", 0.25),
        ("2400x1760 [0,0 2400x1760] (240x240) -> 600x440", 1.0),
        ("2401x1761 -> 600x440", pytest.approx(1.0, rel=0.002)),
        ("2400x1200", 0.25),  # other proportions: a part of that slide, at its scale
    ],
)
def test_the_mpp_of_an_aperio_text_is_that_of_the_size_it_describes(tmp_path, sizes, mpp):
    assert mpp_in(tmp_path / "a.tif", aperio(sizes))[0] == (mpp, mpp)


@pytest.mark.parametrize("size", [(1200, 880), (1199, 881), (2400, 1760), (300, 220)])
@pytest.mark.parametrize("kind", ["aperio", "ome"])
def test_a_text_of_another_size_does_not_state_the_scale(tmp_path, kind, size):
    text = aperio("{}x{}".format(*size)) if kind == "aperio" else ome((*size, 0.25, HERE))

    mpp_xy, searched = mpp_in(tmp_path / f"a.{kind}.tif", text, mpp_of_tags=0.25)

    assert mpp_xy is None
    assert re.search(
        rf"describes an image of {size[0]}×{size[1]} px, and this one has {WIDTH_PX}×{HEIGHT_PX}", searched
    )


@pytest.mark.parametrize("text", [aperio("1200x880"), ome((1200, 880, 0.25, HERE))])
def test_resolution_tags_that_were_shrunk_with_the_image_decide(tmp_path, text):
    mpp_xy, _ = mpp_in(tmp_path / "a.tif", text, mpp_of_tags=0.5)

    assert mpp_xy == pytest.approx((0.5, 0.5))


def test_images_of_an_ome_xml_without_pixels_lend_their_scale_to_no_other(tmp_path):
    text = ome((WIDTH_PX, HEIGHT_PX, 1.0, "<MetadataOnly/>"), (WIDTH_PX, HEIGHT_PX, 0.25, HERE))

    assert mpp_in(tmp_path / "a.ome.tif", text)[0] == (0.25, 0.25)


@pytest.mark.parametrize("text", ["", "0x0", "1" * 100_000, "x" * 100_000, "1x1 [" * 20_000, "1x1 ->" * 20_000])
def test_a_text_without_a_size_is_read_at_once(text):
    size = aperio_size(text)

    assert size is None or shrinkage(size[0], (WIDTH_PX, HEIGHT_PX)) in (None, pytest.approx(1 / WIDTH_PX))


@pytest.mark.parametrize("tags", [(256,), (257,), (256, 257)], ids=["width", "height", "both"])
@pytest.mark.parametrize(("kind", "number"), [("aperio", 0), ("aperio", 1), ("ome", 0)])
def test_a_page_without_a_size_beside_a_text_with_one_is_refused(tmp_path, kind, number, tags):
    text = aperio(f"{WIDTH_PX}x{HEIGHT_PX}") if kind == "aperio" else ome((WIDTH_PX, HEIGHT_PX, 0.25, HERE))
    source = tmp_path / "a.tif"
    with tifffile.TiffWriter(source, ome=False) as tiff:
        for pixels in halved(sample_image(WIDTH_PX, HEIGHT_PX), 1):
            options = {"tile": (128, 128), "photometric": "rgb", "compression": "deflate", "metadata": None}
            tiff.write(pixels, description=text, **options)
    for tag in tags:
        overwrite_tag(source, tag, 0, page=number)

    with pytest.raises(GemslideError, match=r"a\.tif: "):
        open_slide(source)
