"""Slides that must have passed quality control before a network sees them."""

from __future__ import annotations

from pipeline.errors import QcFailedError
from pipeline.store.layers.labels import mask_fingerprint
from pipeline.store.layers.qc_scores import stored_summary
from pipeline.store.reading.reader import StoreReader


def check_qc(reader: StoreReader, *, section: str) -> None:
    """Refuse a slide that has not passed quality control.

    Args:
        section: of the settings that asks for it, for messages.

    Raises:
        QcFailedError: it is for review, or was never checked.
    """
    summary = stored_summary(reader)
    if summary is None:
        raise QcFailedError(
            f"slide {reader.slide_id}: was never checked, but [{section}] require_qc is set. Run `gemslide qc` first."
        )
    if summary["made_from"].get("mask") not in (None, mask_fingerprint(reader.path)):
        raise QcFailedError(
            f"slide {reader.slide_id}: was checked before its tissue mask was replaced, but [{section}] require_qc is "
            "set. Run `gemslide qc` again."
        )
    if summary["verdict"] != "ok":
        raise QcFailedError(
            f"slide {reader.slide_id}: quality control says {summary['verdict']} ({'; '.join(summary['reasons'])}). "
            f"Look at it; to use it anyway, set [{section}] require_qc = false."
        )
