"""Tables of docs/benchmarks/inference.md, from the committed results.

.venv/bin/python -m benchmarks.report_inference
"""

from __future__ import annotations

from typing import Any

from benchmarks.pages import ROOT, between, lines_of, reached

PAGE = ROOT / "docs/benchmarks/inference.md"
HEAD = ["| measure | target | measured | reached | |", "|---|---|---|---|---|"]
WORKFLOW, READER = "road / alone", "pixels/s, reader / two bare libjpeg threads"
OF_TIATOOLBOX = {"fp32": ("≥ 1.3", 1e-5), "bf16": ("≥ 2.5", 2e-2)}
WORKFLOW_TARGET, READER_TARGET = "≥ 0.95", "≥ 0.9"
OVERHEAD_TARGET, PEAK_TARGET, RESUME_TARGET, GEOJSON_TARGET = "≤ 15", "≤ 1024", "≤ 3", "≤ 3"
HONEST_BASELINE = "> 0.72"
WITHOUT_NETWORK = "colour, texture, logistic regression"


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    tables = {"speed": _speed(), "large": _large(), "tissue": _tissue(), "lesions": _lesions()}
    for name, rows in tables.items():
        page = between(page, name, rows)
    PAGE.write_text(page, encoding="utf-8")


def _row(measure: str, target: str, value: float, shown: str = "", more: str = "") -> str:
    return f"| {measure} | {target} | {shown or f'{value:.3g}'} | {reached(target, value)} | {more} |"


def _spread(value: float, rounds: list[float]) -> str:
    return f"{value:.3f} ({min(rounds):.3f}–{max(rounds):.3f})"


def _speed() -> list[str]:
    rows = []
    for line in lines_of("infer.jsonl"):
        if WORKFLOW in line:
            target = "" if line["work"].endswith("bf16") else WORKFLOW_TARGET
            shown = _spread(line[WORKFLOW], line[f"{WORKFLOW}, all rounds"])
            measure = f"{line['work']}: tiles/s of the workflow ÷ the network's alone"
            rows.append(_row(measure, target, line[WORKFLOW], shown, f"alone {line['alone tiles/s']:.3g} tiles/s"))
        elif READER in line:
            shown = _spread(line[READER], line["all rounds"])
            rows.append(_row(f"{line['work']} ÷ two libjpeg threads", READER_TARGET, line[READER], shown))
    for line in lines_of("infer_tiatoolbox.jsonl"):
        for precision, (target, _) in OF_TIATOOLBOX.items():
            for how in ("", " with ingest"):
                name = f"ours in {precision}{how} / TIAToolbox"
                shown = _spread(line[name], line["ratios, all rounds"][name])
                speeds = f"{line['tiles/s'][precision + how]} and {line['tiles/s']['TIAToolbox']} tiles/s"
                rows.append(_row(f"{name.replace(' / ', ' ÷ ')}, {line['work']}", target, line[name], shown, speeds))
        for precision, (_, most) in OF_TIATOOLBOX.items():
            apart = line["largest difference of probabilities"][precision]
            more = f"{line['tiles compared']} tiles"
            measure = f"probabilities in {precision} against TIAToolbox's, largest difference"
            rows.append(_row(measure, f"≤ {most:g}", apart, more=more))
    return [*HEAD, *rows]


def _large() -> list[str]:
    rows = []
    for line in lines_of("infer_large.jsonl"):
        tiles = f"{line['tiles']:,} tiles of {line['tile_px']} px"
        resume = line["resume: beyond an unbroken run's rest, s"]
        rows += [
            _row(f"{tiles}: seconds beyond them", OVERHEAD_TARGET, line["overhead_s"]),
            _row(
                f"{tiles}: memory beyond model and batch, MiB", PEAK_TARGET, line["peak_mib"], f"{line['peak_mib']:.0f}"
            ),
            _row(f"{tiles}: after a kill at 95 %, seconds beyond an unbroken run's rest", RESUME_TARGET, resume),
        ]
    geojson = min(
        (line for line in lines_of("results_formats.jsonl") if line["format"] == "geojson"),
        key=lambda line: abs(line["cells"] - 100_000),
    )
    rows.append(_row(f"GeoJSON of {geojson['cells']:,} tiles, seconds", GEOJSON_TARGET, geojson["seconds"]))
    return [*HEAD, *rows]


def _tissue() -> list[str]:
    rows = [
        "| | target | 500 test tiles, 100 of each class | reached | cells of the test mosaics |",
        "|---|---|---|---|---|",
    ]
    by_side: dict[int, dict[str, Any]] = {}
    for line in lines_of("crc_mosaic.jsonl"):
        settings = line["settings"]
        augmented = ", ".join(f"{name} {settings[name]:g}" for name in ("stain", "brightness", "contrast"))
        name = f"network: {settings['tile_px']} px, {settings['epochs']} epochs, {augmented}"
        rows.append(_accuracies(name, HONEST_BASELINE, line["network"]))
        by_side[settings["tile_px"]] = line[WITHOUT_NETWORK]
    for line in lines_of("crc_mean.jsonl"):
        name = f"mean of the {len(line['models'])} networks that look at 56 px"
        rows.append(_accuracies(name, HONEST_BASELINE, line["network"]))
    return rows + [
        _accuracies(f"{WITHOUT_NETWORK}: {side} px", "", figures_of_side) for side, figures_of_side in by_side.items()
    ]


def _accuracies(name: str, target: str, accuracies: dict[str, Any]) -> str:
    tiles, cells = (accuracies[tile_set]["accuracy"] for tile_set in ("labelled", "mosaics"))
    return f"| {name} | {target} | {tiles:.3f} | {reached(target, tiles)} | {cells:.3f} |"


def _lesions() -> list[str]:
    """Lesion results of the run whose network was best on the mosaics' cells."""
    lesions = max(lines_of("crc_mosaic.jsonl"), key=lambda line: line["network"]["mosaics"]["accuracy"])["froc"]
    rates = list(next(iter(lesions.values()))["sensitivity"])
    rows = [f"| class | lesions | score | {' | '.join(f'{rate} per slide' for rate in rates)} |"]
    rows.append("|" + "---|" * (3 + len(rates)))
    for name, of_class in lesions.items():
        values = " | ".join(f"{of_class['sensitivity'][rate]:.2f}" for rate in rates)
        rows.append(f"| {name} | {of_class['lesions']} | {of_class['score']:.3f} | {values} |")
    return rows


if __name__ == "__main__":
    main()
