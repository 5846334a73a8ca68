"""Tables and plot of docs/benchmarks/ingest.md, from the committed results of ingest.py and read_region.py.

.venv/bin/python -m benchmarks.report_ingest
"""

from __future__ import annotations

from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.pages import ROOT, between, lines_of, reached

PAGE, IMAGE = ROOT / "docs/benchmarks/ingest.md", ROOT / "docs/images/ingest.png"
TARGETS = {
    "ingest ÷ cp + fsync": "≤ 2",
    "decode route ÷ tifffile + zarr": "≥ 2",
    "ours ÷ OpenSlide, regions per second": "≥ 5",
    "ours ÷ libjpeg alone, MPix/s": "≥ 0.85",
    "two reader threads ÷ two libjpeg threads": "≥ 0.95",
    "DataLoader of 2 workers ÷ two libjpeg threads": "≥ 0.8",
}


def main() -> None:
    ingest, reading = lines_of("ingest.jsonl"), lines_of("read_region.jsonl")
    page = PAGE.read_text(encoding="utf-8")
    page = between(page, "ingest", _ingest_table(ingest))
    page = between(page, "reading", _reading_table(reading))
    PAGE.write_text(page, encoding="utf-8")
    _draw(ingest, reading)


def _spread(line: dict[str, Any]) -> str:
    ratios = line.get("ratios")
    return f"{line['ratio']:.2f}" + (f" ({ratios[0]:.2f}–{ratios[-1]:.2f})" if ratios else "")


def _ingest_table(lines: list[dict[str, Any]]) -> list[str]:
    rows = ["| measure | slide | target | measured | reached | |", "|---|---|---|---|---|---|"]
    for line in lines:
        name, slide = line["figure"], line["slide"].split("-")[0]
        if name == "ingest ÷ cp + fsync":
            sizes = "≤ 1.05" if line["jpeg_tables_bytes"] == 289 else "≤ 1.08"
            pixels = line["compared_with_tifffile"]
            rows += [
                f"| {name} | {slide} | ≤ 2 | {_spread(line)} | {reached('≤ 2', line['ratio'])} "
                f"| {line['ingest_s']:.1f} s, copy {line['copy_s']:.1f} s |",
                f"| peak memory, MiB | {slide} | ≤ 1024 | {line['peak_mib']} "
                f"| {reached('≤ 1024', line['peak_mib'])} | |",
                f"| store ÷ slide, bytes | {slide} | {sizes} | {line['store_to_slide_bytes']:.3f} "
                f"| {reached(sizes, line['store_to_slide_bytes'])} | |",
                f"| tiles that differ from tifffile's | {slide} | ≤ 0 | {pixels['different']} of {pixels['tiles']:,} "
                f"| {reached('≤ 0', pixels['different'])} | |",
            ]
        elif name == "beside wsidicomizer" and "theirs" in line:
            theirs = line["theirs"]["seconds"]
            rows.append(
                f"| wsidicomizer ÷ ingest, seconds | {slide} | | {theirs / line['ingest_s']:.1f} | | {theirs:.1f} s |"
            )
        elif name.startswith("decode route"):
            speed = line["mpix_per_s"]
            rows.append(
                f"| {name} | {slide} | ≥ 2 | {_spread(line)} | {reached('≥ 2', line['ratio'])} "
                f"| {speed['ours']} and {speed['plain']} MPix/s |"
            )
    return rows


def _reading_table(lines: list[dict[str, Any]]) -> list[str]:
    rows = ["| measure | slide | target | measured | reached | regions/s |", "|---|---|---|---|---|---|"]
    for line in lines:
        slide = line["slide"].split("-")[0]
        if "reason" in line:
            rows.append(f"| {line['figure']} | {slide} | | {line['reason']} | | |")
            continue
        differs = "; pixels differ from the scanner's" if line.get("same_pixels") is False else ""
        target, ratio = TARGETS.get(line["figure"], ""), line["ratio"]
        rows.append(
            f"| {line['figure']} | {slide} | {target} | {_spread(line)}{differs} | {reached(target, ratio)} "
            f"| {line['regions_per_s']:.0f} |"
        )
    return rows


def _draw(ingest: list[dict[str, Any]], reading: list[dict[str, Any]]) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=(2, 1))
    others = [line for line in reading if line["figure"].endswith("regions per second") and "ratio" in line]
    for offset, slide in ((-0.2, "ycbcr"), (0.2, "rgb")):
        mine = [line for line in others if line["slide"].startswith(slide)]
        names = ["gemslide", *(line["figure"].removeprefix("ours ÷ ").split(",")[0] for line in mine)]
        speeds = [mine[0]["regions_per_s"], *(line["regions_per_s"] / line["ratio"] for line in mine)]
        bars = left.barh([i + offset for i in range(len(names))], speeds, 0.38, label=slide)
        left.bar_label(bars, [f"{speed:.0f}" for speed in speeds], padding=3, fontsize=8)
        left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    left.set_xlabel("regions of 1024 × 1024 px per second, one thread")
    left.legend(frameon=False)
    copies = [line for line in ingest if line["figure"] == "ingest ÷ cp + fsync"]
    places = range(len(copies))
    right.bar([p - 0.2 for p in places], [line["copy_s"] for line in copies], 0.38, label="cp + fsync")
    right.bar([p + 0.2 for p in places], [line["ingest_s"] for line in copies], 0.38, label="gemslide ingest")
    right.set_xticks(list(places), [line["slide"].split("-")[0] for line in copies])
    right.set_ylabel("seconds for 100,000 × 100,000 px")
    right.set_ylim(top=1.3 * max(line[key] for line in copies for key in ("ingest_s", "copy_s")))
    right.legend(frameon=False, loc="upper left")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(IMAGE, dpi=110)


if __name__ == "__main__":
    main()
