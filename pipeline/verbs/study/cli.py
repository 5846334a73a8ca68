"""`gemslide study …`: a thin function per verb. Light, since the command line always imports it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline.verbs.options import HERE, JsonOption, ProjectOption

study_cli = typer.Typer(
    no_args_is_help=True, help="Studies: a frozen protocol, a ledger of every slide, workers, a log as proof."
)
StudyArgument = Annotated[str, typer.Argument(help="Name of the study: its folder in studies/.")]
WhyOption = Annotated[str, typer.Option(help="The reason, for the log.")]
DevicesOption = Annotated[str, typer.Option(help="Devices of each worker, as for `gemslide infer`.")]


@study_cli.command("init")
def study_init(
    study: StudyArgument,
    cohort: Annotated[Path, typer.Option(dir_okay=False, help="Cohort manifest (CSV).")],
    models: Annotated[list[str], typer.Option("--model", help="Model id; may be repeated.")],
    encoders: Annotated[
        list[str] | None,
        typer.Option("--encoder", help="Encoder of the project that embeds every slide; may be repeated."),
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the study.", show_default="to be written")] = "",
    question: Annotated[str, typer.Option(help="Question it is to answer; required.", show_default=False)] = "",
    template: Annotated[
        Literal["cap-validation"] | None,
        typer.Option(help="Add a design: validation of digital pathology according to CAP's guideline."),
    ] = None,
    project: ProjectOption = HERE,
) -> None:
    """Write a protocol, studies/STUDY/study.toml, to complete before the study begins."""
    from pipeline.verbs.study.study import run_init

    named = (models, encoders or [])
    run_init(study, project, cohort, named, title=title, question=question, template=template)


@study_cli.command("begin")
def study_begin(study: StudyArgument, project: ProjectOption = HERE) -> None:
    """Freeze the protocol and register the slides. `run` does so itself; for workers started in other ways."""
    from pipeline.verbs.study.study import run_begin

    run_begin(study, project)


@study_cli.command("run")
def study_run(
    study: StudyArgument,
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=1024, help="Number of workers.", show_default="as many as fit; all of a Dask cluster"),
    ] = None,
    devices: Annotated[
        str, typer.Option(help='As for `gemslide infer`; on this machine "cuda:0,cuda:1" is one worker for each.')
    ] = "cpu",
    on: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="Where to start workers: local (this machine), dask (this machine, with Dask), slurm (one job "
            "each), or tcp://HOST:PORT of a Dask scheduler.",
        ),
    ] = "local",
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Begin the study if it has not begun, start workers, and wait until every slide has ended."""
    from pipeline.verbs.study.study import run_study

    run_study(study, project, on=on, workers=workers, devices=devices, as_json=as_json)


@study_cli.command("script")
def study_script(
    study: StudyArgument,
    workers: Annotated[int, typer.Option(min=1, max=100_000, help="Jobs in the array.")],
    devices: DevicesOption = "cpu",
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="File to write.", show_default="standard output")
    ] = None,
    project: ProjectOption = HERE,
) -> None:
    """Print a script for SLURM's sbatch: a job array, each job one worker of a study that has begun."""
    from pipeline.verbs.study.study import run_script

    run_script(study, project, workers=workers, devices=devices, out=out)


@study_cli.command("work")
def study_work(
    study: StudyArgument,
    devices: DevicesOption = "cpu",
    project: ProjectOption = HERE,
) -> None:
    """Run one worker of a study that has begun; start any number, wherever project and ledger are accessible."""
    from pipeline.verbs.study.study import run_work

    run_work(study, project, devices=devices)


@study_cli.command("status")
def study_status(study: StudyArgument, project: ProjectOption = HERE, as_json: JsonOption = False) -> None:
    """Show the study's progress: slides and tasks by state, rate, time left, failures and what to do about them."""
    from pipeline.verbs.study.study import run_status

    run_status(study, project, as_json=as_json)


@study_cli.command("pause")
def study_pause(study: StudyArgument, why: WhyOption, project: ProjectOption = HERE) -> None:
    """Let workers finish their current tasks and take no more."""
    from pipeline.verbs.study.study import run_set_state

    run_set_state(study, project, "paused", why)


@study_cli.command("resume")
def study_resume(study: StudyArgument, why: WhyOption, project: ProjectOption = HERE) -> None:
    """Let workers take tasks again; start them with `run` or `work`."""
    from pipeline.verbs.study.study import run_set_state

    run_set_state(study, project, "running", why)


@study_cli.command("retry")
def study_retry(
    study: StudyArgument,
    why: WhyOption,
    slides: Annotated[list[str] | None, typer.Argument(metavar="SLIDE", help="Slide ids.")] = None,
    state: Annotated[
        str | None,
        typer.Option(help="All slides that ended in this state: failed, unreadable, refused, no_tissue, qc_failed."),
    ] = None,
    project: ProjectOption = HERE,
) -> None:
    """Retry slides that ended without a result, from the stage that ended them."""
    from pipeline.verbs.study.study import run_retry

    run_retry(study, project, slides or [], state, why)


@study_cli.command("prioritize")
def study_prioritize(
    study: StudyArgument,
    slides: Annotated[list[str], typer.Argument(metavar="SLIDE", help="Slide ids.")],
    why: WhyOption,
    priority: Annotated[int, typer.Option(min=-100, max=100, help="Higher comes first; all start at 0.")] = 1,
    project: ProjectOption = HERE,
) -> None:
    """Let workers take some slides before the others."""
    from pipeline.verbs.study.study import run_prioritize

    run_prioritize(study, project, slides, priority, why)


@study_cli.command("amend")
def study_amend(study: StudyArgument, why: WhyOption, project: ProjectOption = HERE) -> None:
    """Freeze a protocol or manifest changed after the study began; the work it affects is done again."""
    from pipeline.verbs.study.study import run_amend

    run_amend(study, project, why)


@study_cli.command("erase")
def study_erase(
    study: StudyArgument,
    slides: Annotated[list[str], typer.Argument(metavar="SLIDE", help="Slide ids.")],
    why: WhyOption,
    project: ProjectOption = HERE,
) -> None:
    """Delete slides removed from the manifest: stores, results, and all that the ledger and its log hold on them."""
    from pipeline.verbs.study.privacy import run_erase

    run_erase(study, project, slides, why)


@study_cli.command("export")
def study_export(
    study: StudyArgument,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder to create.")],
    key: Annotated[
        Path,
        typer.Option(dir_okay=False, help="Secret key of the pseudonyms, outside the project; created if missing."),
    ],
    results: Annotated[
        list[str] | None, typer.Option("--result", help='File of each slide\'s results, such as "predictions.csv".')
    ] = None,
    project: ProjectOption = HERE,
) -> None:
    """Write tables and results under pseudonyms, for sharing; refused if any file names someone."""
    from pipeline.verbs.study.privacy import run_export

    run_export(study, project, out, key, results or [])


@study_cli.command("reproduce")
def study_reproduce(
    study: StudyArgument,
    slides: Annotated[str, typer.Option(metavar="PERCENT", help='Share of the finished slides, such as "5%".')] = "5%",
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Repeat a sample of the study from the slide files, and compare the hashes."""
    from pipeline.verbs.study.proof import run_reproduce

    run_reproduce(study, project, slides, as_json=as_json)


KeyOption = Annotated[Path, typer.Option(dir_okay=False, help="Private key of the signer.")]


@study_cli.command("verify")
def study_verify(
    study: StudyArgument,
    anchors: Annotated[
        list[Path] | None, typer.Option("--anchor", help="Signed anchor, or a folder of them; may be repeated.")
    ] = None,
    trusted: Annotated[
        list[Path] | None, typer.Option("--trust", dir_okay=False, help="Public key of a person; may be repeated.")
    ] = None,
    reports: Annotated[
        list[Path] | None,
        typer.Option("--report", dir_okay=False, help="Signed report outside the study's folder; may be repeated."),
    ] = None,
    pixels: Annotated[
        bool, typer.Option("--pixels", help="Also read all pixels of all slides, not only 4 MiB of each.")
    ] = False,
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Prove that a study's log, rows, signatures, reports and outputs are unchanged.

    With anchors or signatures, also that the log was not rewritten as a whole.
    """
    from pipeline.verbs.study.proof import run_verify

    run_verify(study, project, anchors or [], trusted or [], reports=reports or [], pixels=pixels, as_json=as_json)


@study_cli.command("key")
def study_key(path: Annotated[Path, typer.Argument(help="File to write; FILE.pub is the public half.")]) -> None:
    """Make a key for one person's electronic signatures, locked with that person's passphrase."""
    from pipeline.verbs.study.proof import run_key

    run_key(path)


@study_cli.command("anchor")
def study_anchor(
    study: StudyArgument,
    key: KeyOption,
    out: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder, preferably on another system.", show_default="in the study"),
    ] = None,
    project: ProjectOption = HERE,
) -> None:
    """Sign the log's current state, in a file to keep outside the database."""
    from pipeline.verbs.study.proof import run_anchor

    run_anchor(study, project, key, out)


@study_cli.command("countersign")
def study_countersign(
    anchor: Annotated[Path, typer.Argument(help="Anchor made by someone else.")],
    key: KeyOption,
    project: ProjectOption = HERE,
) -> None:
    """Add a second person's signature to an anchor, if the log still agrees with it."""
    from pipeline.verbs.study.proof import run_countersign

    run_countersign(anchor, project, key)


@study_cli.command("report")
def study_report(
    study: StudyArgument,
    out: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder to create.", show_default="in the study")
    ] = None,
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Write the report: one HTML page, PDF, and every table as CSV. Before the study ends, it is an interim report."""
    from pipeline.verbs.study.report import run_report

    run_report(study, project, out, as_json=as_json)


@study_cli.command("sign")
def study_sign(
    study: StudyArgument,
    report: Annotated[Path, typer.Argument(dir_okay=False, help="Report to sign.")],
    key: KeyOption,
    meaning: Annotated[Literal["authored", "reviewed", "approved"], typer.Option(help="Meaning of the signature.")],
    name: Annotated[str, typer.Option(help="Printed name of the signer.")],
    project: ProjectOption = HERE,
) -> None:
    """Sign a report electronically: bound to its bytes and to the log, with the meaning of the signature."""
    from pipeline.verbs.study.proof import run_sign

    run_sign(study, project, report, key, meaning=meaning, name=name)
