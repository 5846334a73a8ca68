"""Order of red, green and blue among three channels, by their names and display colours; stains are refused.

Three fluorescence stains have the shape of R, G, B and are often shown in these colours. Names tell them apart: a name
means red, green or blue, or nothing ("Channel 0", as Bio-Formats writes for a channel without a name), or something
else, such as a wavelength ("488"). Names are free text in the file and are never passed on, except those of well-known
stains.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Order = tuple[int, int, int]
"""Positions of red, green and blue among the channels."""

_COLOURS = {
    "red": 0, "r": 0, "rot": 0, "rouge": 0, "rojo": 0, "rosso": 0,
    "green": 1, "g": 1, "grün": 1, "gruen": 1, "vert": 1, "verde": 1,
    "blue": 2, "b": 2, "blau": 2, "bleu": 2, "azul": 2, "blu": 2,
}  # fmt: skip
_FILLERS = {
    "channel", "channels", "chan", "ch", "c", "component", "kanal", "canal", "sample", "band", "layer",
    "brightfield", "bright", "field", "bf", "tl", "transmitted", "light", "rgb", "srgb", "image", "unnamed", "unknown",
}  # fmt: skip
_KNOWN_STAINS = re.compile(
    r"dapi|hoechst|draq ?\d+|fitc|tritc|gfp|rfp|yfp|cfp|mcherry|tdtomato|texas ?red|cy ?\d(\.\d)?|rhodamine|"
    r"alexa ?(fluor)? ?\d*|af ?\d{3}|opal ?\d*|atto ?\d*|spectrum ?(green|orange|aqua|gold)|autofluorescence|"
    r"pan ?ck|cd ?\d+|foxp3|ki ?67|pd ?l?1|her2|fluorescein|phalloidin|cytokeratin|propidium",
    re.IGNORECASE,
)
_FLUORESCENCE = re.compile(
    r"dapi|hoechst|draq ?\d|fitc|tritc|\b[egry]*gfp\b|\b[a-z]?[ryc]fp\b|mcherry|tdtomato|texas ?red|\bcy ?\d|"
    r"alexa|\baf ?\d{3}|\bopal ?\d|\batto ?\d|autofluorescence|fluorescein",
    re.IGNORECASE,
)
_WAVELENGTH_NM = re.compile(r"(?<!\d)(3[5-9]\d|[4-7]\d\d|8[0-4]\d|850)(?!\d)")
_OTHER_CONTRASTS, _OTHER_ILLUMINATIONS = {"Fluorescence", "Darkfield"}, {"Epifluorescence", "NonLinear"}
_BRIGHTFIELD_MODES = {"", "BrightField", "WideField", "LCM", "Other"}
"""Acquisition modes of OME-XML that may be brightfield; the others are confocal, multi-photon and the like."""
_WAVELENGTHS = {"EmissionWavelength", "ExcitationWavelength"}
_IN_ORDER: Order = (0, 1, 2)
_PURE = {(255, 0, 0): 0, (0, 255, 0): 1, (0, 0, 255): 2}


class NotRgbChannelsError(Exception):
    """Channels that are not red, green and blue; the message says why, without quoting the file."""


def check_no_fluorescence(names: Sequence[str | None]) -> None:
    """Refuse channels, however many, if one is named after a dye used only in fluorescence.

    Raises:
        NotRgbChannelsError: one is.
    """
    if any(name and _FLUORESCENCE.search(re.sub(r"[_\-.]", " ", name)) for name in names):
        raise NotRgbChannelsError(f"its channels are {_listed(names)}")


def xml_names(channels: Sequence[Mapping[str, str]]) -> list[str | None]:
    """Names of the channels of OME-XML, by their attributes there.

    Raises:
        NotRgbChannelsError: one was imaged in fluorescence, by its name or by what else is said of it.
    """
    names = [channel.get("Name") or channel.get("Fluor") for channel in channels]
    check_no_fluorescence([*names, *(channel.get("Fluor") for channel in channels)])
    if any(map(_is_fluorescence, channels)):
        raise NotRgbChannelsError("its channels are fluorescence")
    return names


def _is_fluorescence(channel: Mapping[str, str]) -> bool:
    """Whether a channel was not imaged in brightfield, by OME-XML's terms for it."""
    contrast, illumination = channel.get("ContrastMethod", ""), channel.get("IlluminationType", "")
    if contrast in _OTHER_CONTRASTS or illumination in _OTHER_ILLUMINATIONS:
        return True
    if channel.get("AcquisitionMode", "") not in _BRIGHTFIELD_MODES:
        return True
    states_dye = _colour_named(channel.get("Fluor")) == "other" or not channel.keys().isdisjoint(_WAVELENGTHS)
    return states_dye and contrast != "Brightfield" and illumination != "Transmitted"


def rgb_order(names: Sequence[str | None], colours: Sequence[str | int | None] = ()) -> Order | None:
    """Positions of red, green and blue among three channels; None if neither names nor colours say.

    Without names, only the colours red, green, blue in this order count: the usual order of stains is blue, green, red.

    Args:
        names: by channel, as in the file.
        colours: display colours by channel: RRGGBB as text or number, with or without "#" or an alpha before or after.

    Raises:
        NotRgbChannelsError: a channel is something else, or names and colours contradict each other.
    """
    channels = [_colour_named(name) for name in names]
    if "other" in channels:
        raise NotRgbChannelsError(f"its channels are {_listed(names)}")
    named = _order(channels)
    if named is None and any(channel is not None for channel in channels):
        raise NotRgbChannelsError("its channel names are not one each of red, green and blue")
    shown = _shown_colours(colours)
    if len(shown) != len(names) or not any(shown):
        return named
    coloured = _order([_PURE.get(colour) if colour else None for colour in shown])
    if named is None and coloured != _IN_ORDER:
        raise NotRgbChannelsError(f"its channels are displayed in the colours {_hex(shown)}")
    if coloured is not None and coloured != (named or coloured):
        raise NotRgbChannelsError("its channels are named red, green and blue in another order than they are displayed")
    return named or coloured


def _colour_named(name: str | None) -> int | str | None:
    """0, 1, 2 for red, green, blue; None for a name that says nothing; "other"."""
    words = re.findall(r"[^\W\d_]+", (name or "").casefold())
    meaningful = [word for word in words if word not in _FILLERS]
    if not meaningful:
        return "other" if _WAVELENGTH_NM.search(name or "") else None
    colours = {_COLOURS.get(word, -1) for word in meaningful}
    return colours.pop() if len(colours) == 1 and -1 not in colours else "other"


def _order(channels: Sequence[int | str | None]) -> Order | None:
    """Positions of 0, 1 and 2 if each occurs exactly once; else None."""
    if sorted(channels, key=str) != [0, 1, 2]:
        return None
    return channels.index(0), channels.index(1), channels.index(2)


def _listed(names: Sequence[str | None]) -> str:
    """Names that are safe to repeat (colours and known stains); placeholders for the others."""
    listed = []
    for name in names:
        text = (name or "").strip()
        is_known = len(text) <= 40 and (_KNOWN_STAINS.fullmatch(text) or isinstance(_colour_named(name), int))
        listed.append(text if is_known else "without a name" if _colour_named(name) is None else "of another name")
    return ", ".join(listed)


_Colour = tuple[int, int, int]


def _shown_colours(colours: Sequence[str | int | None]) -> list[_Colour | None]:
    """Display colours without alpha: eight digits are read so as to give red, green and blue, if either reading does.

    Raises:
        NotRgbChannelsError: one of them is not a colour.
    """
    texts = [_digits(colour) for colour in colours]
    alpha_last = [_rgb(text[:6]) if text else None for text in texts]
    alpha_first = [_rgb(text[-6:]) if text else None for text in texts]
    for reading in (alpha_last, alpha_first):
        if _order([_PURE.get(colour) if colour else None for colour in reading]) is not None:
            return reading
    return alpha_last


def _digits(colour: str | int | None) -> str | None:
    """Six or eight hexadecimal digits; None if there is no colour."""
    if colour is None or (isinstance(colour, str) and not colour.strip()):
        return None
    if isinstance(colour, int):
        return f"{colour & 0xFFFFFFFF:06X}".rjust(8 if colour > 0xFFFFFF else 6, "0")
    text = colour.strip().removeprefix("#").removeprefix("0x").removeprefix("0X").upper()
    if re.fullmatch("[0-9A-F]{3}", text):
        text = "".join(2 * digit for digit in text)
    if not re.fullmatch("[0-9A-F]{6}|[0-9A-F]{8}", text):
        raise NotRgbChannelsError("a channel's display colour is not a colour (RRGGBB)")
    return text


def _rgb(text: str) -> _Colour:
    return int(text[0:2], 16), int(text[2:4], 16), int(text[4:6], 16)


def _hex(colours: Sequence[_Colour | None]) -> str:
    return ", ".join("none" if colour is None else "{:02X}{:02X}{:02X}".format(*colour) for colour in colours)
