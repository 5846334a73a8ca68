"""Red, green and blue stored by plane; stains, which are not; and edge tiles cut to the image."""

from __future__ import annotations

import json

import cv2
import imagecodecs
import numpy as np
import pytest
import tifffile

from pipeline.box import Box
from pipeline.errors import CorruptTileError, NotBrightfieldRgbError
from pipeline.slides.common.channels import NotRgbChannelsError, xml_names
from pipeline.slides.registry import open_slide
from tests.pipeline.make import PHOTOMETRIC, halved, ingest, overwrite_tag, sample_image
from tests.pipeline.slides.make_colours import Coding, tiles_of, write_tiles
from tests.pipeline.slides.make_ome_zarr import COLOURS, write_container, write_ome_zarr
from training.foundation.errors import UnreadableError

PIXELS = sample_image(150, 110)
SCALE = {"resolution": (2e4, 2e4), "resolutionunit": "CENTIMETER"}


def read(path, level=0):
    with open_slide(path) as slide:
        size = slide.info.levels[level]
        return slide.read_region(level, Box(0, 0, size.width_px, size.height_px))


def by_plane(pixels):
    return np.ascontiguousarray(np.moveaxis(pixels, -1, 0))


@pytest.mark.parametrize("tile", [(64, 64), (32, 64), None], ids=["square", "flat", "strips"])
@pytest.mark.parametrize("compression", ["lzw", "deflate", "zstd", None])
def test_planes_of_one_page_are_decoded(tmp_path, tile, compression):
    path = tmp_path / "a.tif"
    tifffile.imwrite(
        path, by_plane(PIXELS), photometric="rgb", planarconfig="separate", tile=tile, compression=compression,
        rowsperstrip=None if tile else 16, metadata=None, **SCALE,
    )  # fmt: skip

    report = ingest(path, tmp_path)

    np.testing.assert_array_equal(read(path), PIXELS)
    assert report.levels[0].route == "decode"
    assert report.levels[0].gate.reason == "red, green and blue are stored by plane"


def write_planar(path, encode, compression, levels=(PIXELS,)):
    with tifffile.TiffWriter(path) as tiff:
        for level, pixels in enumerate(levels):
            tiles = [encode(np.ascontiguousarray(tile[..., c])) for c in range(3) for tile in tiles_of(pixels, 64)]
            tiff.write(
                iter(tiles), shape=(3, *pixels.shape[:2]), dtype=np.uint8, tile=(64, 64), photometric="rgb",
                planarconfig="separate", compression=compression, metadata=None, subfiletype=1 if level else 0, **SCALE,
            )  # fmt: skip
    return path


def test_planes_of_jpeg_2000_are_decoded(tmp_path):
    path = write_planar(tmp_path / "a.tif", lambda plane: imagecodecs.jpeg2k_encode(plane, level=0), 34712)

    np.testing.assert_array_equal(read(path), PIXELS)


@pytest.mark.parametrize("says", [2, 6])
def test_planes_of_jpeg_are_red_green_and_blue_whatever_the_tag_says(tmp_path, says):
    levels = halved(PIXELS, 1)
    path = write_planar(tmp_path / "a.tif", lambda plane: imagecodecs.jpeg8_encode(plane, level=95), "jpeg", levels)
    for page in range(2):
        overwrite_tag(path, PHOTOMETRIC, says, page=page)

    report = ingest(path, tmp_path)

    for level, pixels in enumerate(levels):
        assert np.abs(read(path, level).astype(int) - pixels).mean() < 10
    assert any("single components" in warning for warning in report.warnings) == (says == 6)


def test_planes_that_are_y_cb_and_cr_are_refused(tmp_path):
    """Glass reveals it: light in all of R, G, B, and grey in Cb and Cr."""
    glass = np.full((110, 150, 3), 240, np.uint8)
    glass[20:60, 30:90] = (180, 110, 170)
    y, cr, cb = np.moveaxis(cv2.cvtColor(glass, cv2.COLOR_RGB2YCrCb), -1, 0)
    for name, pixels in (("rgb", glass), ("ycc", np.stack([y, cb, cr], -1))):
        encode = lambda plane: imagecodecs.jpeg8_encode(plane, level=95)  # noqa: E731
        overwrite_tag(write_planar(tmp_path / f"{name}.tif", encode, "jpeg", [pixels]), PHOTOMETRIC, 6)

    assert np.abs(read(tmp_path / "rgb.tif").astype(int) - glass).mean() < 4
    with pytest.raises(NotBrightfieldRgbError, match="hold Y, Cb, Cr"):
        open_slide(tmp_path / "ycc.tif")
    levels = [glass, np.ascontiguousarray(np.stack([y, cb, cr], -1)[::2, ::2])]
    overwrite_tag(write_planar(tmp_path / "below.tif", encode, "jpeg", levels), PHOTOMETRIC, 6, page=1)
    with pytest.raises(NotBrightfieldRgbError, match="hold Y, Cb, Cr"):
        open_slide(tmp_path / "below.tif")


def test_a_plane_that_is_missing_is_damage_and_not_black(tmp_path):
    path = write_planar(tmp_path / "a.tif", lambda plane: imagecodecs.jpeg8_encode(plane, level=95), "jpeg")
    for code in (324, 325):
        overwrite_tag(path, code, 0, index=7)

    with pytest.raises(CorruptTileError, match="1 of its 3 colour planes"):
        read(path)


def write_pages(path, order, names, *, levels=1, colours=None, tile=(64, 64), compression="lzw"):
    """Write one page per channel, in `order` of R, G, B (0, 1, 2), with levels as SubIFDs."""
    channel = {"Name": list(names)} if names else {}
    if colours:
        channel["Color"] = list(colours)
    metadata = {
        "axes": "CYX", "PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "um", "PhysicalSizeY": 0.5, "PhysicalSizeYUnit": "um",
        **({"Channel": channel} if channel else {}),
    }  # fmt: skip
    with tifffile.TiffWriter(path, ome=True) as tiff:
        for level, pixels in enumerate(halved(PIXELS, levels - 1)):
            planes = by_plane(pixels)[list(order)]
            tiff.write(
                planes, photometric="minisblack", tile=tile, compression=compression,
                subfiletype=1 if level else 0, **({"metadata": metadata, "subifds": levels - 1} if not level else {}),
            )  # fmt: skip
    return path


@pytest.mark.parametrize("tile", [(64, 64), None], ids=["tiles", "strips"])
@pytest.mark.parametrize(
    ("order", "names"),
    [
        ((0, 1, 2), ("Red", "Green", "Blue")),
        ((0, 1, 2), ("R", "G", "B")),
        ((2, 1, 0), ("blue", "green", "red")),
        ((1, 2, 0), ("Channel 0: Green", "Channel 1: Blue", "Channel 2: Red")),
    ],
)
def test_three_pages_are_red_green_and_blue_by_their_names(tmp_path, order, names, tile):
    path = write_pages(tmp_path / "a.ome.tif", order, names, tile=tile)

    np.testing.assert_array_equal(read(path), PIXELS)
    with open_slide(path) as slide:
        assert slide.info.mpp_xy == (0.5, 0.5)


def test_levels_of_three_pages_each_are_read(tmp_path):
    path = write_pages(tmp_path / "a.ome.tif", (2, 0, 1), ("B", "R", "G"), levels=2)

    ingest(path, tmp_path)

    for level, pixels in enumerate(halved(PIXELS, 1)):
        np.testing.assert_array_equal(read(path, level), pixels)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("DAPI", "FITC", "Cy3"), "its channels are DAPI, FITC, Cy3"),
        (("CD3", "CD20", "CD8"), "its channels are CD3, CD20, CD8"),
        (("Red", "Green", "DAPI"), "its channels are Red, Green, DAPI"),
        (("Jane Doe", "Green", "Blue"), "its channels are of another name, Green, Blue"),
        (("Red", "Red", "Blue"), "not one each of red, green and blue"),
        (("Hematoxylin", "Eosin", "Residual"), "its channels are of another name"),
    ],
)
def test_stains_are_refused_and_a_name_of_the_file_s_own_is_not_repeated(tmp_path, names, said):
    path = write_pages(tmp_path / "a.ome.tif", (0, 1, 2), names)

    with pytest.raises(NotBrightfieldRgbError, match=said) as refused:
        open_slide(path)
    assert "Jane" not in str(refused.value)

    labels = [
        {"label": name, "color": colour} for name, colour in zip(names, ("FF0000", "00FF00", "0000FF"), strict=True)
    ]
    folder = write_ome_zarr(tmp_path / "a.zarr", [PIXELS])
    set_channels(folder, labels)
    with pytest.raises(NotBrightfieldRgbError, match=said):
        open_slide(folder)


@pytest.mark.parametrize("names", [("405", "488", "561"), ("Ch405", "Ch488", "Ch561"), ("C 450", "C 525", "C 605")])
def test_wavelengths_are_stains_and_not_red_green_and_blue(tmp_path, names):
    path = write_pages(tmp_path / "a.ome.tif", (0, 1, 2), names, colours=(-16776961, 16711935, 65535))
    folder = write_ome_zarr(tmp_path / "a.zarr", [PIXELS])
    set_channels(folder, [{"label": name, "color": c} for name, c in zip(names, COLOURS, strict=True)])

    for slide in (path, folder):
        with pytest.raises(NotBrightfieldRgbError, match="of another name"):
            open_slide(slide)


@pytest.mark.parametrize(
    "said",
    [
        'ContrastMethod="Fluorescence"', 'IlluminationType="Epifluorescence"', 'EmissionWavelength="461"',
        'ExcitationWavelength="359"', 'AcquisitionMode="LaserScanningConfocalMicroscopy"', 'Fluor="Evans blue"',
        'AcquisitionMode="MultiPhotonMicroscopy"', 'ContrastMethod="Darkfield"', 'IlluminationType="NonLinear"',
    ],
)  # fmt: skip
def test_what_ome_xml_says_of_fluorescence_counts(tmp_path, said):
    channels = "".join(f'<Channel Name="{name}" SamplesPerPixel="1" {said}/>' for name in ("Red", "Green", "Blue"))
    image = f'<Image ID="Image:0" Name="a"><Pixels>{channels}</Pixels></Image>'
    folder = write_container(tmp_path / "a.zarr", {"a": [PIXELS]})
    (folder / "OME" / "METADATA.ome.xml").write_text(f"<OME>{image}</OME>")

    with pytest.raises(NotBrightfieldRgbError, match="its channels are fluorescence"):
        open_slide(folder)
    with pytest.raises(NotRgbChannelsError):
        xml_names([dict([said.replace('"', "").split("=")])])


def test_a_dye_counts_also_beside_a_name_that_says_nothing():
    with pytest.raises(NotRgbChannelsError, match="DAPI"):
        xml_names([{"Name": "Channel 0", "Fluor": "DAPI"}])


def write_described(path, description):
    tifffile.imwrite(path, PIXELS, photometric="rgb", tile=(64, 64), metadata=None, description=description)
    return path


@pytest.mark.parametrize(
    "said",
    [
        {"shape": [*PIXELS.shape], "Channel": {"Name": ["DAPI", "FITC", "TRITC"]}},
        {"channel_names": "Hoechst;Cy5"},
        {"acquisition": {"channels": [{"label": "Alexa 488"}]}},
    ],
)
def test_channels_that_a_json_description_names_are_refused_if_they_are_dyes(tmp_path, said):
    with pytest.raises(NotBrightfieldRgbError, match="fluorescence or single stains"):
        open_slide(write_described(tmp_path / "a.tif", json.dumps(said)))

    said = {"shape": [*PIXELS.shape], "Channel": {"Name": ["Red", "Green", "Blue"]}, "comment": "no DAPI here"}
    with open_slide(write_described(tmp_path / "b.tif", json.dumps(said))) as slide:
        assert slide.info.levels[0].width_px == 150


def test_a_file_of_a_confocal_microscope_is_refused_even_if_it_is_rgb(tmp_path):
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as tiff:  # with the thumbnail that LSM has behind every image
        tiff.write(PIXELS, photometric="rgb", metadata=None, extratags=[(34412, 1, 8, bytes(8), True)])
        tiff.write(PIXELS[::4, ::4].copy(), photometric="rgb", metadata=None)

    with pytest.raises(NotBrightfieldRgbError, match=r"confocal microscope \(Zeiss LSM\)"):
        open_slide(path)


def test_a_brightfield_channel_may_state_a_wavelength():
    assert xml_names([{"Name": "Red", "EmissionWavelength": "620", "IlluminationType": "Transmitted"}]) == ["Red"]


@pytest.mark.parametrize("names", [None, ("Channel 0", "Channel 1", "Channel 2")])
def test_three_grey_pages_that_say_nothing_are_refused(tmp_path, names):
    with pytest.raises(NotBrightfieldRgbError, match="axes CYX"):
        open_slide(write_pages(tmp_path / "a.ome.tif", (0, 1, 2), names))


def test_interleaved_colours_that_are_named_after_a_dye_are_refused(tmp_path):
    tifffile.imwrite(
        tmp_path / "a.ome.tif", PIXELS, photometric="rgb", tile=(64, 64), ome=True,
        metadata={"axes": "YXS", "Channel": {"Name": "DAPI"}},
    )  # fmt: skip

    with pytest.raises(NotBrightfieldRgbError, match="DAPI"):
        open_slide(tmp_path / "a.ome.tif")


def test_pages_of_another_tiling_are_refused(tmp_path):
    path = write_pages(tmp_path / "a.ome.tif", (0, 1, 2), ("R", "G", "B"))
    overwrite_tag(path, 322, 128, page=1)

    with pytest.raises((UnreadableError, NotBrightfieldRgbError)):
        open_slide(path)


# --- OME-Zarr ------------------------------------------------------------------------------------


def set_channels(folder, channels, model="color"):
    import zarr

    group = zarr.open_group(folder, mode="r+")
    ome = dict(group.attrs["ome"])
    ome["omero"] = {"channels": channels, "rdefs": {"model": model}}
    group.attrs["ome"] = ome


@pytest.mark.parametrize(
    "colours",
    [
        ("#FF0000", "#00FF00", "#0000FF"),
        ("ff0000", "00ff00", "0000ff"),
        ("FF0000FF", "00FF00FF", "0000FFFF"),
        ("#ffff0000", "#ff00ff00", "#ff0000ff"),
        ("0xFF0000", "0x00FF00", "0x0000FF"),
        ("#F00", "#0F0", "#00F"),
        (16711680, 65280, 255),
    ],
)
def test_display_colours_are_read_in_any_spelling(tmp_path, colours):
    folder = write_ome_zarr(tmp_path / "a.zarr", [PIXELS])
    set_channels(folder, [{"label": f"Channel {i}", "color": colour} for i, colour in enumerate(colours)])

    np.testing.assert_array_equal(read(folder), PIXELS)


@pytest.mark.parametrize(
    ("labels", "colours", "order"),
    [
        (("Blue", "Green", "Red"), ("0000FF", "00FF00", "FF0000"), (2, 1, 0)),
        (("B", "R", "G"), ("FFFFFF", "FFFFFF", "FFFFFF"), (2, 0, 1)),
        (("Red", "Green", "Blue"), (None, None, None), (0, 1, 2)),
    ],
)
def test_channels_stand_in_the_order_of_their_names(tmp_path, labels, colours, order):
    folder = write_ome_zarr(tmp_path / "a.zarr", [np.ascontiguousarray(PIXELS[..., list(order)])])
    set_channels(folder, [{"label": label, "color": c} for label, c in zip(labels, colours, strict=True)])

    np.testing.assert_array_equal(read(folder), PIXELS)


@pytest.mark.parametrize(
    "channels",
    [
        [{"color": "0000FF"}, {"color": "00FF00"}, {"color": "FF0000"}],
        [{"color": "0000FFFF"}, {"color": "00FF00FF"}, {"color": "FF0000FF"}],
        [{"color": "FF00FF"}, {"color": "00FF00"}, {"color": "0000FF"}],
        [
            {"label": "Red", "color": "0000FF"},
            {"label": "Green", "color": "00FF00"},
            {"label": "Blue", "color": "FF0000"},
        ],
        [{"color": "reddish"}, {"color": "00FF00"}, {"color": "0000FF"}],
    ],
)
def test_other_display_colours_are_refused(tmp_path, channels):
    folder = write_ome_zarr(tmp_path / "a.zarr", [PIXELS])
    set_channels(folder, channels)

    with pytest.raises(NotBrightfieldRgbError):
        open_slide(folder)


# --- edge tiles that are cut to the image --------------------------------------------------------


@pytest.mark.parametrize("coding", [Coding("ycbcr", subsampling="420"), Coding("rgb", b"", b"RGB")])
def test_edge_tiles_cut_to_the_image_are_read_and_no_damage(tmp_path, coding):
    levels = [(p, [coding.encode(tile) for tile in tiles_of(p, 64, is_cut=True)]) for p in halved(PIXELS, 1)]
    path = write_tiles(tmp_path / "a.tif", levels, tag="ycbcr" if coding.holds == "ycbcr" else "rgb")
    with tifffile.TiffFile(path) as tiff:
        wanted = [page.asarray() for page in tiff.pages]

    for damaged in ("refuse", "mask"):
        report = ingest(path, tmp_path, slide_id=damaged, damaged=damaged)
        assert not report.damaged or report.damaged[0] == 0
        assert {level.gate.reason for level in report.levels if level.gate} == {
            "tiles at its edges are cut to the image, not whole"
        }
    for level, pixels in enumerate(wanted):
        np.testing.assert_array_equal(read(path, level), pixels)


@pytest.mark.parametrize("at", [2, 5])
def test_a_single_cut_tile_is_found_wherever_at_the_edge_it_is(tmp_path, at):
    coding = Coding("ycbcr", subsampling="444")
    whole, cut = (tiles_of(PIXELS, 64, is_cut=is_cut) for is_cut in (False, True))
    tiles = [coding.encode(cut[at] if number == at else tile) for number, tile in enumerate(whole)]
    path = write_tiles(tmp_path / "a.tif", [(PIXELS, tiles)], tag="ycbcr")

    assert ingest(path, tmp_path).levels[0].route == "decode"
    assert np.abs(read(path).astype(int) - PIXELS).mean() < 10


@pytest.mark.parametrize("compression", [None, "deflate"])
def test_raw_edge_tiles_cut_to_the_image_are_read_as_tifffile_does(tmp_path, compression):
    tiles = [tile.tobytes() for tile in tiles_of(PIXELS, 64, is_cut=True)]
    if compression:
        tiles = [imagecodecs.zlib_encode(tile) for tile in tiles]
    with tifffile.TiffWriter(tmp_path / "a.tif") as tiff:
        tiff.write(
            iter(tiles), shape=PIXELS.shape, dtype=np.uint8, tile=(64, 64), photometric="rgb", compression="deflate",
            metadata=None, **SCALE,
        )  # fmt: skip
    if not compression:
        overwrite_tag(tmp_path / "a.tif", 259, 1)

    np.testing.assert_array_equal(read(tmp_path / "a.tif"), PIXELS)


def test_a_tile_inside_the_image_that_is_cut_is_damage(tmp_path):
    coding = Coding("ycbcr")
    tiles = [coding.encode(tile) for tile in tiles_of(PIXELS, 64)]
    tiles[0] = coding.encode(np.ascontiguousarray(PIXELS[:40, :22]))
    path = write_tiles(tmp_path / "a.tif", [(PIXELS, tiles)], tag="ycbcr")

    with pytest.raises(CorruptTileError, match="22×40 px"):
        ingest(path, tmp_path)
