"""Files of a folder that make up one DICOM slide."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from pipeline.slides.common.reading import is_dicom
from pipeline.slides.common.series import Candidate, SideImage, choose_series, left_out
from pipeline.slides.dicom.headers.attributes import text
from pipeline.slides.dicom.headers.header import WHOLE_SLIDE_IMAGE, Brief, Header, read_brief
from pipeline.slides.dicom.headers.matrix import IMAGE_KINDS
from pipeline.slides.dicom.validate import check_parts, first_frame
from training.foundation.errors import UnreadableError
from training.foundation.words.counts import counted

_MAX_FILES = 20_000
_MAX_NAMED = 8
_SIDE_KINDS: tuple[SideImage, ...] = ("label", "macro", "thumbnail")


def files_of_slide(path: Path, series: str | None) -> list[Path]:
    """The files of one slide, sorted. Raises: as `chosen_files`."""
    files, _ = chosen_files(path, series)
    return files


def chosen_files(path: Path, series: str | None) -> tuple[list[Path], str | None]:
    """The files of one slide, sorted, and a clause on other series of its size that are left out.

    A folder (with the folders in it) stands for the one series in it that is a slide (`slides.series`); other DICOM
    objects in it, such as annotations, are skipped, and so are series that hold only labels. A file stands for itself
    alone, and for the parts of its concatenation beside it.

    Args:
        series: Series Instance UID, or a unique ending of it; None if there is only one.

    Raises:
        UnreadableError: no whole-slide images, or a damaged file.
        AmbiguousSeriesError: several series and none named, or none of this name.
    """
    if path.is_dir():
        return _files_of_series(path, series)
    brief = read_brief(path)
    if brief.sop_class != WHOLE_SLIDE_IMAGE:
        raise UnreadableError(
            f"{path.name}: is DICOM, but a {brief.kind}, not a whole-slide image. Name the slide's own file or folder."
        )
    if series is not None and not brief.series_uid.endswith(series):
        raise UnreadableError(f"{path.name}: belongs to series {brief.series_uid}, not to {series}.")
    if brief.concatenation_uid is None:
        return [path], None
    beside = (read_brief(other) for other in sorted(path.parent.iterdir()) if other.is_file() and is_dicom(other))
    return [other.path for other in beside if _is_part_of(other, brief)], None


def _is_part_of(other: Brief, brief: Brief) -> bool:
    """Whether a file is a part of the same concatenation."""
    return (other.series_uid, other.concatenation_uid) == (brief.series_uid, brief.concatenation_uid)


def in_levels(headers: list[Header]) -> list[list[Header]]:
    """Headers by instance; the parts of a concatenation (PS3.3, C.7.6.16.2.2.4) together and in order.

    Raises:
        UnreadableError: a part is missing, or the same instance occurs twice.
    """
    by_instance: dict[str, list[Header]] = defaultdict(list)
    for header in headers:
        ds = header.dataset
        by_instance[text(ds, "ConcatenationUID") or text(ds, "SOPInstanceUID")].append(header)
    for parts in by_instance.values():
        if text(parts[0].dataset, "ConcatenationUID"):
            parts.sort(key=first_frame)
            check_parts(parts)
        elif len(parts) > 1:
            raise UnreadableError(
                f"{parts[0].path.name} and {parts[1].path.name}: are the same instance. Remove one of them."
            )
    return list(by_instance.values())


def slide_series(folder: Path) -> list[str]:
    """Series Instance UIDs in a folder that hold images of the tissue. Raises UnreadableError: a damaged file."""
    by_series, _ = _briefs_by_series(folder)
    return [uid for uid, briefs in by_series.items() if _candidate(uid, briefs).kind is None]


def _files_of_series(folder: Path, series: str | None) -> tuple[list[Path], str | None]:
    by_series, others = _briefs_by_series(folder)
    if not by_series:
        objects = ", ".join(f"{n} × {kind}" for kind, n in others.most_common(_MAX_NAMED)) or "no DICOM objects"
        raise UnreadableError(f"{folder.name}: no whole-slide DICOM image in this folder (found: {objects}).")
    candidates = [_candidate(uid, briefs) for uid, briefs in by_series.items()]
    chosen = choose_series(candidates, series, folder.name, by_end=True)
    return sorted(brief.path for brief in by_series[chosen.series]), left_out(candidates, chosen)


def _briefs_by_series(folder: Path) -> tuple[dict[str, list[Brief]], Counter[str]]:
    """Whole-slide instances, and the number of others of each kind."""
    by_series: dict[str, list[Brief]] = defaultdict(list)
    others: Counter[str] = Counter()
    for path in _dicom_files(folder):
        brief = read_brief(path)
        if brief.sop_class == WHOLE_SLIDE_IMAGE:
            by_series[brief.series_uid].append(brief)
        else:
            others[brief.kind] += 1
    return by_series, others


def _candidate(uid: str, briefs: list[Brief]) -> Candidate:
    """A series as one image: that of its finest instance of the tissue; a series of labels alone is a label."""
    kinds = {IMAGE_KINDS.get(brief.image_type, "") for brief in briefs}
    side = next((kind for kind in _SIDE_KINDS if kind in kinds), None) if kinds <= set(_SIDE_KINDS) else None
    shown = [brief for brief in briefs if side or IMAGE_KINDS.get(brief.image_type, "") not in _SIDE_KINDS]
    width_px, height_px = max((brief.matrix_wh for brief in shown), key=lambda wh: wh[0] * wh[1])
    files = f"{counted(len(briefs), 'file')}, "
    return Candidate(uid, width_px, height_px, kind=side, is_kind_certain=True, is_declared=side is None, detail=files)


def _dicom_files(folder: Path) -> list[Path]:
    try:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        if len(files) > _MAX_FILES:
            raise UnreadableError(f"{folder.name}: holds {len(files)} files; name the slide's own folder.")
        return [path for path in files if is_dicom(path)]
    except OSError as error:
        raise UnreadableError(f"{error.filename}: cannot be read ({error.strerror}). Check its permissions.") from error
