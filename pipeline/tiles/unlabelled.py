"""Outlined classes that label no tile: counted by slide when tiles are labelled, and reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.annotations.shapes.region import Region
from pipeline.tiles.labels import TileLabels
from training.foundation.words.counts import counted

MAX_NAMED = 3
"""Slides in a message."""


def count_by_class(regions: Sequence[Region], labels: TileLabels, classes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each outlined class of a slide: its regions, the tiles it labels and the largest share of a tile it covers.

    Regions of ignored classes are not counted.
    """
    outlined = Counter(region.class_name for region in regions)
    return {
        name: {
            "regions": outlined[name],
            "tiles": int(np.count_nonzero(labels.class_index == index)),
            "largest_share": round(float(labels.largest[index]), 4),
        }
        for index, name in enumerate(classes)
        if outlined[name]
    }


def unlabelled_warnings(metadata: Mapping[str, Any]) -> list[str]:
    """One sentence for each class that labels no tile of a slide on which it is outlined.

    Args:
        metadata: of the tile table.
    """
    by_slide = metadata["outlined"]
    warnings = []
    for name in metadata["class_order"]:
        found = {slide: counts[name] for slide, counts in by_slide.items() if name in counts}
        without = {slide: count for slide, count in found.items() if not count["tiles"]}
        if without:
            warnings.append(_warning(name, without, metadata["settings"], is_everywhere=len(without) == len(found)))
    return warnings


def _warning(
    name: str, without: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any], *, is_everywhere: bool
) -> str:
    slides = sorted(without)
    more = f" and {len(slides) - MAX_NAMED} more" if len(slides) > MAX_NAMED else ""
    on = f"{'slide' if len(slides) == 1 else 'slides'} {', '.join(slides[:MAX_NAMED])}{more}"
    outlines = sum(count["regions"] for count in without.values())
    label = counted(outlines, "outline labels", "outlines label")
    where = f"no tile at all ({on})" if is_everywhere else f"no tile on {on}, though others of the class do elsewhere"
    why, remedy = _reason(max(count["largest_share"] for count in without.values()), settings)
    return f"class {name!r}: {label} {where}: {why}. {remedy}"


def _reason(share: float, settings: Mapping[str, Any]) -> tuple[str, str]:
    """Why outlines label no tile, and what to do.

    Args:
        share: the largest share of a tile that they cover.
    """
    smaller = f"smaller tiles (tile_px = {settings['tile_px']}, mpp = {settings['mpp']})"
    if not share:
        why = "no tile with enough tissue lies on them, or outlines within them take all of their area"
        return why, "Look at the tissue mask and the outlines in the viewer."
    if settings["label_by"] == "centre":
        why = f"they contain no tile's centre and cover at most {share:.1%} of a tile"
        return why, f"Use {smaller} in [tile], or name the class in `ignore_classes`."
    least = settings["min_label_fraction"]
    if share < least:
        why = f"they cover at most {share:.1%} of a tile, less than min_label_fraction = {least}"
        return why, f"Use {smaller} or a lower min_label_fraction in [tile], or name the class in `ignore_classes`."
    why = f"they cover up to {share:.1%} of a tile, but other classes cover as much of it or more"
    return why, f'Use {smaller} or `label_by = "centre"` in [tile], or correct outlines that overlap.'
