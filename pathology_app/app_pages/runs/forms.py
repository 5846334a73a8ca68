"""Forms that start a run. Each shows the exact command line and asks for confirmation before it runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import streamlit as st

from pathology_app.app_pages.navigation import say
from pathology_app.app_pages.runs import rows as run_rows
from pathology_app.app_pages.runs.acts import start
from pathology_app.html.text import READ_ERRORS, as_markdown, as_text
from pathology_app.jobs import commands
from pathology_app.jobs.commands import MAX_NAMED, MAX_WORKERS, Command
from pathology_app.jobs.offers import MAX_OFFERED, SlideFolders, default_recipe, model_ids, recipes, study_ids
from pathology_app.links.runs import NewRun, RunLink
from pathology_app.people.person import Action, require
from pathology_app.people.visitor import current_person
from pathology_app.project.served import served_project
from pipeline.naming.slides import OFFERED_MANIFEST_SUFFIXES
from pipeline.project import Project
from pipeline.settings.config import load_settings
from pipeline.slide_level.package_level import is_slide_model

TITLES: dict[NewRun, str] = {
    "ingest": "Ingest slides",
    "train": "Train a model",
    "infer": "Run a model on slides",
    "study": "Run a study",
}
_SAID = "run_said"
_DEVICES = "cpu, cuda, or several: cuda:0,cuda:1"
ALL, CHOSEN = "All slides of the project", "Chosen slides"


def last_message() -> None:
    """Show the result of the last action, once."""
    if message := st.session_state.pop(_SAID, None):
        st.success(as_markdown(message))


def draw(new: NewRun) -> None:
    """Draw the form of one kind of run.

    Raises:
        ForbiddenError: the person may not start runs. Also errors of reading the project's files.
    """
    require(current_person(), Action.RUN)
    st.header(TITLES[new], anchor=False)
    project = served_project()
    forms: dict[NewRun, Callable[[Project], Command | None]] = {
        "ingest": _ingest,
        "train": _train,
        "infer": _infer,
        "study": _study,
    }
    command = forms[new](project)
    if command is not None:
        _confirm(project, command)


def _confirm(project: Project, command: Command) -> None:
    """Draw the command line, and a start button with a confirmation. The button belongs to this exact command line."""
    st.markdown("This will run, in the project's folder:")
    st.code(run_rows.command_text(command.argv, project.root), language=None, wrap_lines=True)
    with st.popover("Start …", icon=":material/play_arrow:"):
        st.markdown(
            "It runs as a separate process, which continues when this page or the app is closed. The project's log "
            "records who started it."
        )
        key = hashlib.sha256(command.text.encode()).hexdigest()[:16]
        if not st.button("Start now", type="primary", key=f"start {key}"):
            return
        start_and_show(project, command, "The run has started. This page follows it.")


def start_and_show(project: Project, command: Command, message: str) -> None:
    """Start a run and go to its page, which shows the message once; or say why it was not started."""
    try:
        with st.spinner("Starting …"):
            job_id = start(project, command, current_person())
    except READ_ERRORS as error:
        say(error)
        return
    st.session_state[_SAID] = message
    st.query_params.from_dict(RunLink(run=job_id).query())
    st.rerun()


def _ingest(project: Project) -> Command | None:
    folders = SlideFolders.of(project, load_settings(project.settings_path).app.slide_folders)
    offered = folders.offered()
    names = ", ".join(folders.folders) or "none"
    st.caption(
        as_markdown(
            f"Folders searched for slides and manifests: {names}. To add folders, list those of the project in "
            "[app] slide_folders of gemslide.toml, and others in GEMSLIDE_SLIDES when the app is started."
        )
    )
    if not offered:
        st.info("These folders contain no slides or manifests.")
        return None
    manifests = [name for name in offered if name.lower().endswith(OFFERED_MANIFEST_SUFFIXES)]
    kind = "Manifest"
    if manifests and len(manifests) < len(offered):
        kind = st.radio("Ingest from", ["Manifest", "Slides"], horizontal=True, key="ingest_kind")
    elif not manifests:
        kind = "Slides"
    if kind == "Manifest":
        chosen = [_choose("Manifest", manifests, key="ingest_manifest")]
    else:
        slides = [name for name in offered if name not in set(manifests)]
        chosen = _choose_slides(f"Slides ({len(slides):,})", slides, key="ingest")
        st.caption(
            "Slides are named after their files. If file names identify patients, use a manifest with slide ids."
        )
    if len(offered) == MAX_OFFERED:
        st.caption(f"Only the first {MAX_OFFERED} are listed. Use a manifest for more.")
    left, right = st.columns(2)
    workers = left.number_input("Slides at a time", 1, MAX_WORKERS, 1, key="ingest_workers")
    mpp = right.number_input(
        "µm per pixel (only for files that do not state it)", commands.MIN_MPP, commands.MAX_MPP, None,
        step=0.01, format="%0.4f", key="ingest_mpp",
    )  # fmt: skip
    if not chosen:
        return None
    return commands.ingest_command(folders, chosen, workers=int(workers), mpp=mpp)


def _choose(label: str, options: Sequence[str], *, key: str, first: str | None = None) -> str:
    """Draw a menu of names. What is typed there finds only names that contain it.

    Args:
        first: the one chosen at first; None: the first of them.
    """
    index = 0 if first is None else list(options).index(first)
    chosen: str = st.selectbox(label, options, index, as_text, key=key, filter_mode="contains")
    return chosen


def _choose_slides(label: str, slides: Sequence[str], *, key: str) -> list[str]:
    """Draw a list from which slides are chosen one by one.

    Typing in it chooses nothing: the name found first may be that of another slide. A field beside it shortens it.
    """
    part = st.text_input("List only names that contain", key=f"{key}_part", max_chars=64)
    known = set(slides)
    kept = [name for name in st.session_state.get(f"{key}_slides", []) if name in known]
    matching = [name for name in slides if part.lower() in name.lower()][:MAX_NAMED]
    return st.multiselect(
        label,
        list(dict.fromkeys([*kept, *matching])),
        key=f"{key}_slides",
        format_func=as_text,
        max_selections=MAX_NAMED,
        filter_mode=None,
        placeholder="Choose slides",
    )


def _train(project: Project) -> Command | None:
    offered = recipes(project)
    first = default_recipe(project, list(offered))
    recipe = _choose("Recipe", list(offered), key="train_recipe", first=first)
    if first is None:
        st.caption(
            "This project has no tile set, and no manifest, that one of these recipes asks for. Make a tile set with "
            "`gemslide tile`."
        )
    left, right = st.columns(2)
    nproc = left.number_input("Ranks (empty: as in recipe)", 1, MAX_WORKERS, None, key="train_nproc")
    threads = right.number_input("Threads per rank (empty: as in recipe)", 1, MAX_WORKERS, None, key="train_threads")
    if recipe is None:
        return None
    num_ranks, num_threads = (None if number is None else int(number) for number in (nproc, threads))
    return commands.train_command(project, recipe, nproc=num_ranks, threads=num_threads)


def _infer(project: Project) -> Command | None:
    models, slides = model_ids(project), project.slide_ids()
    if not models or not slides:
        st.info("This needs a model and a slide, and the project lacks one or both.")
        return None
    model = _choose("Model", models, key="infer_model")
    if is_slide_model(project.model_path(model)):
        st.caption(
            "This model predicts slides or patients. Here it predicts each slide by itself, and replaces a prediction "
            "for the slide's patient. For patients, name the manifest on the command line: "
            "`gemslide infer MODEL MANIFEST`."
        )
    which = st.radio("Slides", [f"{ALL} ({len(slides):,})", CHOSEN], horizontal=True, key="infer_which")
    chosen: list[str] = []
    if which == CHOSEN:
        chosen = _choose_slides("Slides", slides, key="infer")
        if not chosen:
            return None
    devices = st.text_input("Devices", "auto", key="infer_devices", help=f"auto, {_DEVICES}", max_chars=100)
    return commands.infer_command(project, model, chosen, devices=devices.strip())


def _study(project: Project) -> Command | None:
    studies = study_ids(project)
    if not studies:
        st.info("No protocol in studies/ of this project. Create one to fill in with `gemslide study init`.")
        return None
    study_id = _choose("Study", studies, key="study_id")
    begin, run = (
        "Only freeze the protocol",
        "Run until every slide is finished; this first freezes the protocol if necessary",
    )
    what = st.radio("What to run", [run, begin], key="study_what")
    if what == begin:
        return commands.study_command(project, study_id, begin_only=True)
    left, right = st.columns(2)
    workers = left.number_input("Workers (empty: as many as fit)", 1, MAX_WORKERS, None, key="study_workers")
    devices = right.text_input("Devices of the workers", "cpu", key="study_devices", help=_DEVICES, max_chars=100)
    st.caption("Workers run on this computer. On a cluster, start them on the command line.")
    number = None if workers is None else int(workers)
    return commands.study_command(project, study_id, workers=number, devices=devices.strip())
