"""Settings other than training: a project's `gemslide.toml`, one section per verb.

Unknown keys are errors, so that a misspelt key never silently means the default.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from pipeline.settings.starters import DaskConfig, SlurmConfig
from training.foundation.settings import Section, load_section
from training.foundation.tile_read import TileRead
from training.foundation.words.class_names import check_class_name

MAX_PX, MAX_UM, MAX_UM2 = 65_536, 10_000.0, 1e9
"""Upper bounds of lengths and areas: more than any slide needs, and all sums still fit in 32 bits."""

ClassName = Annotated[str, AfterValidator(check_class_name)]


PlaneHeight = Annotated[float, Field(ge=-MAX_UM, le=MAX_UM)] | None
"""Focal plane of a stack by its height in µm; None: the default one. Slides with a single plane have it at 0."""

DEFAULT_THRESHOLD = 0.5
"""Probability at or above which a class counts as found, unless settings say otherwise."""


class TissueConfig(Section):
    """Separation of tissue from glass, by distance from the slide's own background colour."""

    mpp: float = Field(8.0, gt=0)
    """Resolution of the mask, microns per pixel."""
    min_delta_e: float = Field(8.0, gt=0, le=1000)
    """CIELAB distance from the background above which a pixel is tissue."""
    max_speck_um2: float = Field(6_000.0, ge=0, le=MAX_UM2)
    """Connected specks up to this area are treated as dust (or printed dots) and dropped before gaps are closed."""
    close_um: float = Field(40.0, ge=0, le=MAX_UM)
    """Gaps narrower than this are closed."""
    min_object_um2: float = Field(20_000.0, ge=0, le=MAX_UM2)
    """Specks smaller than this are dropped."""
    max_hole_um2: float = Field(40_000.0, ge=0, le=MAX_UM2)
    """Holes smaller than this are filled."""


class IngestConfig(Section):
    """`[ingest]`"""

    keep_associated: tuple[Literal["label", "macro", "thumbnail"], ...] = ()
    """Associated images to keep. The default is none: labels show names and dates."""
    shard_px: int = Field(8192, ge=256, le=MAX_PX)
    """Side of a shard of copied tiles: the largest multiple of the chunk that fits."""
    decode_shard_px: int = Field(4096, ge=256, le=MAX_PX)
    """The same for decoded levels and for levels from which others are built; a decoded shard of each is in memory."""
    pass_through: bool = True
    """Whether tiles are copied unchanged where possible; otherwise every level is decoded and stored again."""
    decode_chunk_px: int = Field(512, ge=64, le=4096)
    """Chunk side of levels that do not pass through; the nearest multiple of the source's tiles if these are known."""
    decode_to: Literal["zstd", "jpeg"] = "zstd"
    """Storage of levels that do not pass through: lossless, or smaller as JPEG."""
    jpeg_quality: int = Field(90, ge=1, le=100)
    """Quality of levels stored with `decode_to = "jpeg"`; 4:4:4."""
    smallest_level_px: int = Field(1024, ge=64, le=MAX_PX)
    """Levels are added, each half the last, until the longer side is at most this."""
    gate_tiles: int = Field(16, ge=4, le=100_000)
    """Tiles per level compared with a second decoder."""
    damaged: Literal["refuse", "mask"] = "refuse"
    """Handling of a slide with damaged tiles: an error; or every tile is decoded to find them, and they are made white,
    masked and counted."""
    tissue: TissueConfig = TissueConfig()


QC_SCORES = ("blur", "pen", "fold", "bubble")


class ScoreLimit(Section):
    """Limit beyond which a quality score counts against a slide."""

    threshold: float = Field(gt=0, le=1)
    """A cell above this is bad."""
    max_share: float = Field(ge=0, le=1)
    """If a larger share of its tissue cells is bad, a slide is for review."""


class QualityConfig(Section):
    """`[qc]`"""

    mpp: float = Field(1.0, gt=0, le=2.5)
    """Resolution of the check, microns per pixel; a finer one detects slighter loss of focus and takes longer."""
    cell_um: float = Field(64.0, ge=16, le=MAX_UM)
    """Side of a cell of the scores, in microns."""
    min_tissue: float = Field(0.25, gt=0, le=1)
    """Share of a cell that must be tissue for it to have scores."""
    blur: ScoreLimit = ScoreLimit(threshold=0.5, max_share=0.1)
    """Share of edge strength that survives a further blur: 0.2 in focus, above 0.5 for a blur of 2 µm or more."""
    pen: ScoreLimit = ScoreLimit(threshold=0.2, max_share=0.02)
    """Share of a cell's tissue under ink."""
    fold: ScoreLimit = ScoreLimit(threshold=0.5, max_share=0.05)
    """Share of a cell's tissue that is folded."""
    bubble: ScoreLimit = ScoreLimit(threshold=0.2, max_share=0.02)
    """Share of a cell's tissue on the edge of a bubble or coverslip, or within a bubble."""
    stain: tuple[Literal["macenko", "reinhard"], ...] = ("macenko", "reinhard")
    """Methods for fitting the slide's stain."""
    stain_pixels: int = Field(400_000, ge=10_000, le=100_000_000)
    """Approximate number of tissue pixels sampled for the fit."""
    plane_um: PlaneHeight = None
    """Height of the focal plane that is checked, in stacks; if left out, the default one."""

    def limit(self, name: str) -> ScoreLimit:
        """The limit of a score by its name."""
        limit = getattr(self, name)
        assert isinstance(limit, ScoreLimit)
        return limit


class SplitConfig(Section):
    """Assignment of patients without a split in the manifest."""

    train: float = Field(0.7, ge=0, le=1e6)
    val: float = Field(0.15, ge=0, le=1e6)
    test: float = Field(0.15, ge=0, le=1e6)
    seed: int = Field(0, ge=0)


class TileConfig(Section):
    """`[tile]`"""

    tile_px: int = Field(1024, ge=8, le=MAX_PX)
    mpp: float = Field(0.5, gt=0, le=1000)
    overlap_px: int = Field(0, ge=0, le=MAX_PX)
    """Pixels shared by neighbouring tiles, at `mpp`."""
    read: TileRead = "level"
    """Level that tiles are read from: the stored one nearest to `mpp`, or always the finest, so that pixels do not
    depend on the levels that a slide happens to store (docs/reference/inference.md)."""
    plane_um: PlaneHeight = None
    """Height of the focal plane that tiles are read from, in stacks; if left out, the default one."""
    min_tissue: float = Field(0.5, ge=0, le=1)
    max_qc: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field({})
    """Tiles with a quality score above its limit are left out, as in `max_qc = {pen = 0.2}`; see `gemslide qc`."""
    label_by: Literal["area", "centre", "slide"] = "area"
    """A tile's label is the class that covers most of it, that of the smallest region around its centre, or the `label`
    of its slide in the manifest (annotations are then not read)."""
    qupath_counts_from: Literal["scanned", "slide"] = "scanned"
    """Origin of QuPath's coordinates on slides scanned in part (MRXS, SCN); it crops unless opened with --no-crop."""
    allow_other_mpp: bool = False
    """Use the pixels of an annotation file unchanged even if it states a pixel size other than its slide's."""
    min_label_fraction: float = Field(0.5, gt=0, le=1)
    """By area: share of a tile that one class must cover to label the tile."""
    classes: tuple[ClassName, ...] = ()
    """Class order; empty: the annotations' names in alphabetical order."""
    ignore_classes: tuple[ClassName, ...] = ()
    """Annotation classes that do not label tiles."""
    note: str = ""
    """Note on these labels for readers of results; included in every evaluation on this tile set."""
    split: SplitConfig = SplitConfig()

    @field_validator("max_qc")
    @classmethod
    def scores_exist(cls, limits: dict[str, float]) -> dict[str, float]:
        unknown = sorted(set(limits) - set(QC_SCORES))
        if unknown:
            raise ValueError(f"no such scores: {', '.join(unknown)}; there are {', '.join(QC_SCORES)}")
        return limits


ResultFormat = Literal[
    "csv", "parquet", "geojson", "contours", "heatmap", "ome-tiff", "dicom-seg", "dicom-pm", "report"
]
"""Formats of a slide's results (docs/reference/results.md)."""


class InferConfig(Section):
    """`[infer]`"""

    batch_size: int | None = Field(None, ge=1, le=65_536)
    """Tiles that go through the network together; if left out, as many as have the area of 32 tiles of 224 px (on a
    GPU, of 512)."""
    min_tissue: float = Field(0.5, ge=0, le=1)
    overlap: float = Field(0.0, ge=0, le=0.9)
    """Share of a tile's side that neighbours share. The map then has a cell for each stride (`inference.overlap`)."""
    views: Literal["none", "flips", "all"] = "none"
    """Test-time augmentation: the mean over a tile's four flips, or over all eight rotations and flips."""
    read: TileRead | None = None
    """Level that tiles are read from, as in `[tile]`; if left out, as the model's training tiles were."""
    plane_um: PlaneHeight = None
    """Height of the focal plane that tiles are read from, in stacks; if left out, the default one."""
    allow_other_read: bool = False
    """Predict even if `read` differs from the model's training; the results then state this."""
    precision: Literal["fp32", "bf16"] = "fp32"
    deterministic: bool = False
    """Identical bits for any batch size and any devices of one kind: each tile goes through the network alone."""
    compile: bool = False
    """Speed up the network with `torch.compile`; takes a minute at first, and on a CPU needs a C++ compiler."""
    require_qc: bool = False
    """Whether only slides that passed `gemslide qc` are predicted; others end as qc_failed."""
    refuse: tuple[Literal["constant", "glass", "stain", "focus"], ...] = ("constant",)
    """Implausible results that are not published (others are, with a warning): the same answer for every tile, glass
    called positive, colours or sharpness far from the training tiles'."""
    threshold: float = Field(DEFAULT_THRESHOLD, gt=0, lt=1)
    """Probability at or above which a cell belongs to a hotspot."""
    hotspot_classes: tuple[ClassName, ...] = ()
    """Classes to look for; empty: all but the first of the class order, and none called normal, healthy or the like."""
    max_hotspots: int = Field(50, ge=1, le=1_000_000)
    hotspot_min_distance_um: float = Field(0.0, ge=0, le=MAX_UM)
    """0: one hotspot per connected area. Otherwise, its local maxima at least this far apart are also hotspots."""
    formats: tuple[ResultFormat, ...] = ("csv", "parquet", "geojson", "heatmap", "report")
    """Files written beside the store; hotspots.json always. DICOM needs a DICOM slide."""


class EmbedConfig(Section):
    """`[embed]`"""

    batch_size: int | None = Field(None, ge=1, le=65_536)
    """Tiles that go through the encoder together; if left out, as in `[infer]`."""
    min_tissue: float = Field(0.5, ge=0, le=1)
    overlap: float = Field(0.0, ge=0, le=0.9)
    """Share of a tile's side that neighbours share."""
    plane_um: PlaneHeight = None
    """Height of the focal plane that tiles are read from, in stacks; if left out, the default one."""
    deterministic: bool = False
    """Identical bits for any batch size and any devices of one kind: each tile goes through the encoder alone."""
    require_qc: bool = False
    """Whether only slides that passed `gemslide qc` are embedded; others end as qc_failed."""


class EvaluateConfig(Section):
    """`[evaluate]`"""

    split: Literal["train", "val", "test"] = "test"
    threshold: float = Field(DEFAULT_THRESHOLD, gt=0, lt=1)
    """Probability at or above which a tile, slide or patient is called positive, with two classes."""
    slide_score: Literal["max", "mean", "top_decile"] = "max"
    """A slide's score for a class: its cells' highest probability, their mean, or the mean of the highest tenth."""
    bootstrap: int = Field(1000, ge=0, le=100_000)
    """Resamples of the patients for intervals; 0: no intervals."""
    seed: int = Field(0, ge=0)
    """Seed of the resamples."""
    specificities: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = (0.9, 0.95)
    """Specificities at which sensitivity is reported."""
    calibration_bins: int = Field(10, ge=2, le=100)
    """Number of bins of equal mass, for the calibration error and the reliability plot."""
    lesion_classes: tuple[ClassName, ...] = ()
    """Classes whose outlined areas are lesions (FROC); empty: all but the first of the class order, and none called
    normal, healthy or the like."""
    candidate_threshold: float = Field(DEFAULT_THRESHOLD, gt=0, lt=1)
    """Probability at or above which connected cells are one candidate lesion, with its peak's score and position."""
    candidate_min_distance_um: float = Field(0.0, ge=0, le=MAX_UM)
    """0: one candidate per connected area. Otherwise, its local maxima at least this far apart are also candidates."""
    candidates: str = ""
    """Folder in the project with a CSV file of candidates per slide, as in CAMELYON16; empty: from the predictions."""

    @field_validator("candidates")
    @classmethod
    def inside_the_project(cls, folder: str) -> str:
        if "\0" in folder or Path(folder).is_absolute() or ".." in Path(folder).parts:
            raise ValueError("name a folder inside the project, by a path relative to it")
        return folder


class AppConfig(Section):
    """`[app]`"""

    host: str = "127.0.0.1"
    """A loopback address: a project from someone else must not open this computer to others."""
    port: int = Field(8501, ge=0, le=65535)
    session_hours: float = Field(12, gt=0, le=24)
    """After this long, everyone must sign in again."""
    idle_minutes: float = Field(60, ge=5, le=24 * 60)
    """After this long without activity, a person signed in under a name must sign in again."""
    tile_cache_mb: int = Field(256, ge=0, le=65_536)
    """Cache of tiles, overlays and thumbnails, in MiB per process that serves them."""
    max_jobs: int = Field(1, ge=0, le=64)
    """Maximum number of concurrent runs started by the app; 0: none."""
    slide_folders: tuple[str, ...] = ("incoming", "sources")
    """Folders in the project whose slides and manifests can be ingested from the app. Folders elsewhere are named by
    the operator of the app (`GEMSLIDE_SLIDES`): a project from someone else must not open this computer's."""

    @field_validator("slide_folders")
    @classmethod
    def inside_the_project(cls, folders: tuple[str, ...]) -> tuple[str, ...]:
        for folder in folders:
            if not folder or "\0" in folder or Path(folder).is_absolute() or ".." in Path(folder).parts:
                raise ValueError(
                    "name folders inside the project, by paths relative to it; the operator of the app names folders "
                    "elsewhere in the variable GEMSLIDE_SLIDES"
                )
        return folders

    @field_validator("host")
    @classmethod
    def only_this_computer(cls, host: str) -> str:
        try:
            is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            is_loopback = False
        if not is_loopback:
            raise ValueError(
                "a project can only name a loopback address (127.0.0.1, ::1, localhost); "
                "to listen on another, start the app with `gemslide app --host ADDRESS`"
            )
        return host


class StudyConfig(Section):
    """`[study]`"""

    ledger: Literal[""] = ""
    """Obsolete. A ledger elsewhere is named by the installation (`pipeline.settings.site`)."""
    slurm: SlurmConfig = SlurmConfig()
    dask: DaskConfig = DaskConfig()

    @field_validator("ledger", mode="before")
    @classmethod
    def is_named_elsewhere(cls, url: object) -> object:
        if url != "":
            raise ValueError(
                "a project can no longer set its ledger's location: one from someone else could name another's. Remove "
                "this line, and name the ledger in GEMSLIDE_LEDGER, or as `ledger` under the project in the file that "
                "GEMSLIDE_SITE names (docs/how_to/operating.md)"
            )
        return url


class AnnotationsConfig(Section):
    """`[annotations]`"""

    change_others: Literal["auto", "ask", "never"] = "auto"
    """Changes to annotations of others: after a question ("ask"), or not at all ("never"). "auto": "never" on slides of
    a study, else "ask"."""


class Settings(Section):
    """Everything in `gemslide.toml`."""

    ingest: IngestConfig = IngestConfig()
    qc: QualityConfig = QualityConfig()
    tile: TileConfig = TileConfig()
    infer: InferConfig = InferConfig()
    embed: EmbedConfig = EmbedConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    annotations: AnnotationsConfig = AnnotationsConfig()
    app: AppConfig = AppConfig()
    study: StudyConfig = StudyConfig()


def load_settings(path: Path) -> Settings:
    """Read `gemslide.toml`; a project without one has the defaults.

    Raises:
        BadRecipeError: cannot be read, not TOML, an unknown key or a value out of range.
    """
    return load_section(Settings, path, default=Settings())
