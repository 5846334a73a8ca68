"""Whole-slide scanners by name: the only values that are stored as a slide's scanner.

Free text in a file is never passed on, as it can hold a person's name, a barcode or a serial number. A text that is
not, as a whole, one of these names, whatever its capitals, spaces and punctuation, counts as absent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class _Family:
    """Scanners of one vendor."""

    makers: tuple[str, ...]
    """Names that may precede a model in a file."""
    models: tuple[str, ...]
    stored_with: str = ""
    """Prefix of a model in the store, where the model alone says little."""


_FAMILIES = (
    _Family(
        ("Aperio", "Leica", "Leica Aperio", "Leica Biosystems", "Leica Biosystems Aperio"),
        (
            "AT Turbo", "AT2", "AT2 DX", "CS2", "CSO", "LV1", "GT 450", "GT 450 DX", "VERSA", "VERSA 8", "VERSA 200",
            "ScanScope", "ScanScope AT", "ScanScope AT Turbo", "ScanScope AT2", "ScanScope CS", "ScanScope CS2",
            "ScanScope CSO", "ScanScope FL", "ScanScope GL", "ScanScope OS", "ScanScope T2", "ScanScope T3",
            "ScanScope XT",
        ),
        stored_with="Aperio ",
    ),
    _Family(("Leica", "Leica Microsystems"), ("SCN400", "SCN400 F"), stored_with="Leica "),
    _Family(
        ("Hamamatsu", "Hamamatsu Photonics"),
        (
            "NanoZoomer", "NanoZoomer 1.0-HT", "NanoZoomer 2.0-HT", "NanoZoomer 2.0-RS", "NanoZoomer HT",
            "NanoZoomer RS", "NanoZoomer SQ", "NanoZoomer XR", "NanoZoomer S20", "NanoZoomer S20MD", "NanoZoomer S60",
            "NanoZoomer S60v2MD", "NanoZoomer S210", "NanoZoomer S360", "NanoZoomer S360MD", "NanoZoomer S540MD",
            "NanoZoomer Digital Pathology", "C9600", "C9600-01", "C9600-02", "C9600-12", "C10730", "C10730-12",
            "C10730-13", "C12000", "C12000-02", "C12000-22", "C13140", "C13140-01", "C13140-21", "C13210", "C13210-01",
            "C13210-04", "C13220", "C13220-01", "C13220-02", "C13220-21", "C13239", "C13239-01",
        ),
    ),
    _Family(
        ("3DHISTECH", "Zeiss", "Carl Zeiss"),
        (
            "Pannoramic", "Pannoramic 150", "Pannoramic 250", "Pannoramic 250 Flash", "Pannoramic 250 Flash II",
            "Pannoramic 250 Flash III", "Pannoramic 480", "Pannoramic 480 DX", "Pannoramic 1000", "Pannoramic 1000 DX",
            "Pannoramic Confocal", "Pannoramic DESK", "Pannoramic DESK II", "Pannoramic DESK II DW", "Pannoramic Flash",
            "Pannoramic MIDI", "Pannoramic MIDI II", "Pannoramic SCAN", "Pannoramic SCAN II", "P150", "P250",
            "P250 Flash", "P250 Flash II", "P250 Flash III", "P480", "P480 DX", "P1000", "P1000 DX", "MIRAX DESK",
            "MIRAX MIDI", "MIRAX SCAN",
        ),
    ),
    _Family(
        ("Philips", "Philips IntelliSite"),
        (
            "UFS", "UFS Scanner", "Ultra Fast Scanner", "IntelliSite Ultra Fast Scanner",
            "IntelliSite Pathology Ultra Fast Scanner", "SG20", "SG60", "SG300", "Pathology Scanner SG20",
            "Pathology Scanner SG60", "Pathology Scanner SG300",
        ),
    ),
    _Family(("Ventana", "Roche", "Roche Ventana"), ("DP 200", "DP 600"), stored_with="VENTANA "),
    _Family(("Ventana", "Roche", "Roche Ventana"), ("iScan", "iScan Coreo", "iScan Coreo Au", "iScan HT")),
    _Family(("Zeiss", "Carl Zeiss"), ("Axio Scan.Z1", "Axioscan 7")),
    _Family(
        ("Motic",),
        ("EasyScan", "EasyScan Infinity", "EasyScan Infinity 60", "EasyScan Infinity 100", "EasyScan One",
         "EasyScan Pro", "EasyScan Pro 6"),
    ),
    _Family(
        ("Huron", "Huron Digital Pathology"),
        ("TissueScope", "TissueScope iQ", "TissueScope LE", "TissueScope LE120", "TissueScope PE", "TissueScope 4000"),
    ),
    _Family(
        ("Olympus", "Evident"),
        ("VS110", "VS120", "VS120-S5", "VS120-L100", "VS200", "SLIDEVIEW", "SLIDEVIEW VS200", "SLIDEVIEW DX"),
    ),
    _Family(
        ("Akoya", "Akoya Biosciences", "PerkinElmer"),
        ("Vectra", "Vectra 2", "Vectra 3", "Vectra Polaris", "PhenoImager", "PhenoImager Fusion", "PhenoImager HT"),
    ),
    _Family(("KFBio",), ("KF-PRO-002", "KF-PRO-005", "KF-PRO-020", "KF-PRO-040", "KF-PRO-120", "KF-PRO-400")),
    _Family(("Grundium",), ("Ocus", "Ocus 20", "Ocus 40")),
    _Family(("Sakura", "Sakura Finetek"), ("VisionTek", "VisionTek M6")),
    _Family(("Mikroscan",), ("Mikroscan D2", "Mikroscan L5", "Mikroscan SL5")),
    _Family(("Epredia", "3DHISTECH"), ("E1000 Dx",), stored_with="Epredia "),
)  # fmt: skip


def known_model(text: str) -> str | None:
    """The scanner that a text names, in the table's spelling; None if the whole text is not a name in it.

    Capitals, spaces and punctuation do not matter: "APERIO GT450" is "Aperio GT 450".
    """
    return _KNOWN.get(_folded(text))


def _folded(text: str) -> str:
    return re.sub(r"[\W_]", "", text).casefold()


_KNOWN = {
    _folded(maker + model): family.stored_with + model
    for family in _FAMILIES
    for maker in ("", *family.makers)
    for model in family.models
}
