"""Slide lists of other programs, read as manifests, with their columns mapped to ours.

A column that has the name of one of a manifest's, in any capitals, means the same in them. Others have no equivalent
and are ignored, which `Cohort.notes` says. A name without a slide suffix stands for the one slide file of that name in
the list's folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.slides.suffixes import has_slide_suffix, slide_suffixes


@dataclass(frozen=True)
class OtherList:
    """One kind of list."""

    of: str
    """Program whose lists look like this."""
    required: Mapping[str, str]
    """Our column for each of theirs that identifies this kind of list."""
    optional: Mapping[str, str]

    def fits(self, header: Sequence[str]) -> bool:
        return self.required.keys() <= set(header)

    def column(self, name: str, ours: Sequence[str]) -> str | None:
        """Our column for one of theirs; None if a manifest has no such column."""
        mapped = self.required.get(name) or self.optional.get(name)
        return mapped or next((column for column in ours if column == name.casefold()), None)


LISTS = (
    OtherList("slide2vec and HS2P", {"sample_id": "slide_id", "image_path": "path"}, {"spacing_at_level_0": "mpp"}),
    OtherList("TRIDENT", {"wsi": "path"}, {"mpp": "mpp"}),
    OtherList("STAMP", {"PATIENT": "patient_id", "FILENAME": "path"}, {}),
    OtherList("CLAM", {"case_id": "patient_id", "slide_id": "path", "label": "label"}, {}),
)


def list_of(header: Sequence[str]) -> OtherList | None:
    """Kind of list with this header; None if it is our own manifest, or unknown."""
    return None if "path" in header else next((kind for kind in LISTS if kind.fits(header)), None)


def find_slide_file(name: str, folder: Path) -> str:
    """The slide file that a name without suffix stands for; the name itself if there is none, or several."""
    if has_slide_suffix(name):
        return name
    # Not Path.with_suffix: "TCGA-3L-AA1B.0123" has no suffix to replace.
    suffixes = sorted(suffix for suffix in slide_suffixes() if (folder / f"{name}{suffix}").is_file())
    return f"{name}{suffixes[0]}" if len(suffixes) == 1 else name
