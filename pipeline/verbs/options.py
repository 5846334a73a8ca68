"""Options shared by many verbs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ProjectOption = Annotated[Path, typer.Option("--project", help="Project folder.", file_okay=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON line per slide or run.")]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        help="ngff-0.5, ngff-0.4, ozx, ome-tiff, tiff, dicom; dicom-seg or dicom-pm: predictions on a DICOM slide.",
        show_default="by the name of OUT",
    ),
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", help="Write a report without names or pixels, to send with a question.")
]
ReportedSlideOption = Annotated[
    Path | None, typer.Option("--slide", help="Slide that the report is about, for example one that is refused.")
]
SeriesOption = Annotated[str | None, typer.Option(help="Slide to use from a file or folder with several.")]
LinkOption = Annotated[
    bool,
    typer.Option("--link", help="Point at the slide's tiles instead of copying them; the file must stay where it is."),
]
PlaneOption = Annotated[
    float | None,
    typer.Option(
        "--plane", help="Stacks: height in µm of the focal plane to use.", show_default="gemslide.toml, the one at 0"
    ),
]
ExportedPlaneOption = Annotated[
    float | None,
    typer.Option(
        "--plane",
        help="Stacks: height in µm of the one focal plane to write.",
        show_default="ngff-0.5, ozx: all; else the one at 0",
    ),
]
HERE = Path()
