"""Microns per pixel as written in any locale: comma, exponent, unit, no unit; and never guessed."""

from __future__ import annotations

import pytest
import tifffile
import zarr

from pipeline.slides.common.mpp import parse_number, um_per_unit
from pipeline.slides.registry import open_slide
from tests.pipeline.make import sample_image
from tests.pipeline.slides.make_dicom import write_dicom
from tests.pipeline.slides.make_ome_zarr import write_container, write_ome_zarr
from tests.pipeline.slides.make_tiff_families import write_ome_tiff
from training.foundation.errors import UnreadableError

PIXELS = sample_image(100, 80)
MOTIC = "Motic V1.0.0 600x440 [0,0 600x440] [128x128] JPEG/RGB Q = 75|AppMag = 40|MPP = 0.257290"


def mpp_of(path):
    with open_slide(path) as slide:
        return slide.info.mpp_xy


def described(folder, text, **options):
    path = folder / "a.tif"
    tifffile.imwrite(
        path, PIXELS, photometric="rgb", tile=(64, 64), compression="lzw", description=text, metadata=None, **options
    )
    return path


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.25", 0.25),
        ("0,25", 0.25), (" 2.5e-1 ", 0.25), ("2,5E-01", 0.25), (".25", 0.25), ("1", 1.0), ("+0.25", 0.25),
        ("", None), ("0", None), ("-0.25", None), ("1.234,5", None), ("nan", None), ("inf", None), ("1e999", None),
        ("0.25 um", None), ("0x1", None), ("1_0", None), (None, None), ("٠٫٢٥", None),
    ],
)  # fmt: skip
def test_numbers_with_a_point_or_a_comma(text, number):
    assert parse_number(text) == number


@pytest.mark.parametrize(
    ("unit", "um"),
    [
        ("um", 1), ("µm", 1), ("\u03bcm", 1), ("UM", 1), ("micrometer", 1), ("Micrometers", 1), ("micrometre", 1),
        ("micron", 1),
        ("microns", 1), ("um/pixel", 1), ("µm per px", 1), ("nm", 1e-3), ("nanometer", 1e-3), ("mm", 1e3),
        ("millimeter", 1e3),
        ("cm", 1e4), ("m", 1e6), ("inch", 25_400), ("inches", 25_400), ("Å", 1e-4), ("\u212b", 1e-4),
        ("pixel", None), ("px", None), ("", None), (None, None), ("reference frame", None), ("furlong", None),
    ],
)  # fmt: skip
def test_units_by_name_or_sign(unit, um):
    assert um_per_unit(unit) == um


@pytest.mark.parametrize(
    ("text", "mpp"),
    [
        (MOTIC, 0.25729),
        ("Aperio Image Library v11\r\n100x80|AppMag = 20|MPP = 0,4990", 0.499),
        ("Aperio Image Library v11\r\n100x80|MPP = 4.99e-1|AppMag = 20", 0.499),
        ("Aperio Image Library v11\r\n100x80|MPP = 0.499 um|AppMag = 20", 0.499),
        ("Aperio Image Library v11\r\n100x80|MPP = 499 nm/pixel", 0.499),
        ("scanner\nMPP: 0.499\nother", 0.499),
        ("Aperio Image Library v11\r\n100x80|MPP = 0.499 pixel|AppMag = 20", None),
        ("Aperio Image Library v11\r\n100x80|MPP = 0.499.1|AppMag = 20", None),
        ("Aperio Image Library v11\r\n100x80|OldMPP = 0.499|AppMag = 20", None),
    ],
)
def test_the_description_is_read_whoever_wrote_it(tmp_path, text, mpp):
    mpp_read = mpp_of(described(tmp_path, text))

    assert mpp_read == (None if mpp is None else pytest.approx((mpp, mpp)))


def test_motic_s_objective_is_read_too(tmp_path):
    with open_slide(described(tmp_path, MOTIC)) as slide:
        assert slide.info.objective_power == 40


@pytest.mark.parametrize(
    ("options", "mpp"),
    [
        ({"resolution": (50_800, 50_800)}, 0.5),  # no ResolutionUnit: the inch, by TIFF 6.0
        ({"resolution": (50_800, 50_800), "resolutionunit": "INCH"}, 0.5),
        ({"resolution": (20_000, 20_000), "resolutionunit": "CENTIMETER"}, 0.5),
        ({"resolution": (20_000, 20_000), "resolutionunit": "NONE"}, None),
        ({"resolution": (72, 72)}, None),
    ],
)
def test_a_tiff_without_a_unit_counts_in_inches(tmp_path, options, mpp):
    path = described(tmp_path, "x", **options)
    if "resolutionunit" not in options:
        with tifffile.TiffFile(path, mode="r+b") as tiff:
            tag = tiff.pages[0].tags[296]
            tiff.filehandle.seek(tag.offset)
            tiff.filehandle.write((65_000).to_bytes(2, "little"))  # a private tag instead

    assert mpp_of(path) == (None if mpp is None else pytest.approx((mpp, mpp)))


@pytest.mark.parametrize(("unit", "mpp"), [("micron", 0.5), ("\\u00B5m", 0.5), ("um", 0.5), ("pixel", None)])
def test_imagej_names_the_unit_of_its_resolution(tmp_path, unit, mpp):
    path = described(tmp_path, f"ImageJ=1.53t\nunit={unit}\n", resolution=(2, 2), resolutionunit="NONE")

    assert mpp_of(path) == (None if mpp is None else (mpp, mpp))


@pytest.mark.parametrize(
    ("size", "mpp"),
    [
        (("0,25", "0,25", "µm"), 0.25), (("2.5E-1", "2.5E-1", "um"), 0.25), ((250, 250, "nanometer"), 0.25),
        ((0.25, 0.25, "micrometer"), 0.25), ((0.25, 0.25, "micron"), 0.25), ((0.25, 0.25, "pixel"), None),
    ],
)  # fmt: skip
def test_ome_xml_in_words_and_with_a_comma(tmp_path, size, mpp):
    path = write_ome_tiff(tmp_path / "a.ome.tiff", [PIXELS], size=size).path

    assert mpp_of(path) == (None if mpp is None else pytest.approx((mpp, mpp)))


@pytest.mark.parametrize(("unit", "mpp"), [("um", 0.25), ("µm", 0.25), ("micron", 0.25), ("pixel", None)])
def test_ome_zarr_units_by_their_sign(tmp_path, unit, mpp):
    path = write_ome_zarr(tmp_path / "a.zarr", [PIXELS], mpp=0.25, unit=unit)

    assert mpp_of(path) == (None if mpp is None else (mpp, mpp))


@pytest.mark.parametrize(("size", "contradicts"), [((100, 80), True), ((200, 160), False), (("", "80"), False)])
def test_another_scale_in_the_xml_of_a_container_is_noticed_if_it_is_of_the_same_size(tmp_path, size, contradicts):
    path = write_container(tmp_path / "a.zarr", {"0": [PIXELS]})
    pixels = f'<Pixels SizeX="{size[0]}" SizeY="{size[1]}" PhysicalSizeX="0.5" PhysicalSizeY="0.5"/>'
    (path / "OME" / "METADATA.ome.xml").write_text(f'<OME><Image Name="a">{pixels}</Image></OME>')

    with open_slide(path) as slide:
        assert slide.info.mpp_xy == (0.25, 0.25)
        assert ("OME PhysicalSize: 0.5 × 0.5 µm/px" in slide.info.mpp_contradiction) == contradicts


@pytest.mark.parametrize("kind", ["scale", "translation"])
def test_two_scales_or_places_of_one_array_are_damage_and_not_the_last(tmp_path, kind):
    path = write_ome_zarr(tmp_path / "a.zarr", [PIXELS])
    group = zarr.open_group(path)
    ome = group.attrs["ome"]
    first = {"type": kind, kind: [1.0, 0.5, 0.5]}
    ome["multiscales"][0]["datasets"][0]["coordinateTransformations"] = [first, {**first, kind: [1.0, 0.25, 0.25]}]
    group.attrs["ome"] = ome

    with pytest.raises(UnreadableError, match="several scales or translations for one image"):
        open_slide(path)


def test_the_size_of_the_imaged_volume_that_contradicts_the_pixel_spacing_is_noticed(tmp_path):
    def in_volume(width_mm, height_mm):
        def change(ds):
            ds.ImagedVolumeWidth, ds.ImagedVolumeHeight = width_mm, height_mm

        return change

    for number, (factor, contradicts) in enumerate([(2, True), (1.05, False), (1000, False)]):
        volume_mm = [side * 0.5e-3 * factor for side in (100, 80)]
        with open_slide(write_dicom(tmp_path / f"{number}.dcm", PIXELS, change=in_volume(*volume_mm))) as slide:
            assert slide.info.mpp_xy == (0.5, 0.5)
            assert ("Imaged Volume Width and Height: 1 × 1" in slide.info.mpp_contradiction) == contradicts
