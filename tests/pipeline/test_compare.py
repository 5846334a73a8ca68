"""Two models or runs side by side: their differences, and whether these explain other weights."""

import json
import re
import shutil

import pytest
from safetensors.torch import load_file

from pipeline.models.compare import ABSENT, compare
from pipeline.project import Project
from tests.model_packages import read_config, with_weights, write_config
from training.foundation.errors import UnreadableError


@pytest.fixture
def project(small_project, tmp_path):
    """Project with the small project's model and its run."""
    for folder in ("models", "runs"):
        shutil.copytree(getattr(small_project.project, f"{folder}_dir"), tmp_path / "project" / folder)
    return Project(tmp_path / "project")


@pytest.fixture
def run_id(small_project, project):
    return read_config(project.model_path(small_project.model_id))["gemslide"]["run_id"]


def another(project, model_id, run_id, change, *, new_weights=True):
    """Add the same training with a changed record and other weights; return its model id."""
    package = project.models_dir / f"{model_id.rpartition('-')[0]}-copy"
    shutil.copytree(project.model_path(model_id), package)
    record = json.loads((project.runs_dir / f"{run_id}.json").read_text())
    change(record)
    other_run = f"{run_id[:-6]}ffffff"
    (project.runs_dir / f"{other_run}.json").write_text(json.dumps(record))
    config = read_config(package)
    config["gemslide"]["run_id"] = other_run
    write_config(package, config)
    if not new_weights:
        return str(package)
    state = load_file(project.model_path(model_id) / "model.safetensors")
    return with_weights(package, {name: (tensor + 1).contiguous() for name, tensor in state.items()}).name


def test_a_model_is_itself_by_whatever_name(small_project, project, run_id):
    names = [
        small_project.model_id,
        str(project.model_path(small_project.model_id)),
        run_id,
        str(project.runs_dir / f"{run_id}.json"),
    ]

    for name in names:
        comparison = compare(small_project.model_id, name, project)
        assert comparison.differences == []
        assert comparison.weights_equal is True
        assert comparison.conclusion == "The weights are the same, byte for byte."


def test_other_threads_explain_other_weights(small_project, project, run_id):
    def two_threads(record):
        record["threads"] = record["settings"]["train"]["threads"] = 2

    comparison = compare(small_project.model_id, another(project, small_project.model_id, run_id, two_threads), project)

    assert comparison.weights_equal is False
    assert [(d.part, d.key, d.a, d.b) for d in comparison.differences if d.part != "weights"] == [
        ("arithmetic", "threads", 1, 2)
    ]
    assert comparison.conclusion == (
        "The weights differ with the same settings and inputs. This is explained by threads (1 and 2)."
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: r.update(isa="NEON"), r"This is explained by isa \(.* and NEON\)"),
        (lambda r: r["versions"].update(torch="1.0"), r"This is explained by torch \(2.* and 1\.0\)"),
        (lambda r: r["settings"]["optim"].update(lr=0.1), r"because the runs do: optim\.lr \(0\.05 and 0\.1\)"),
        (lambda r: r["inputs"][0].update(sha256="0" * 64), r"because the runs do: sha256 \("),
        (lambda r: r["inputs"][0].update(id="renamed"), "no recorded fact explains it"),
        (lambda r: r["settings"]["parallel"].update(strategy="master", num_stages=2), "no recorded fact"),
        (lambda r: r["settings"]["parallel"].update(data_parallel=2, num_microbatches=1), "no recorded fact"),
        (lambda r: r["settings"]["parallel"].update(num_microbatches=1), "because the runs do: parallel.num_microb"),
        (lambda r: r.pop("isa"), r"no recorded fact explains it. Unknown for one of them: isa\."),
        (lambda r: r["settings"]["optim"].pop("lr"), r"settings and inputs do. Unknown for one of them: optim\.lr"),
    ],
)
def test_what_differs_explains_other_weights_or_does_not(small_project, project, run_id, change, says):
    comparison = compare(small_project.model_id, another(project, small_project.model_id, run_id, change), project)

    assert comparison.weights_equal is False
    assert re.search(says, comparison.conclusion), comparison.conclusion


def test_the_same_weights_need_no_explanation(small_project, project, run_id):
    copy = another(project, small_project.model_id, run_id, lambda r: r.update(threads=2), new_weights=False)

    comparison = compare(small_project.model_id, copy, project)

    assert [d.key for d in comparison.differences] == ["threads"]
    assert comparison.weights_equal is True


def test_a_package_of_an_earlier_version_far_from_its_run_has_settings_that_are_not_known(
    small_project, project, tmp_path
):
    stranger = tmp_path / "elsewhere" / small_project.model_id
    shutil.copytree(project.model_path(small_project.model_id), stranger)
    config = read_config(stranger)
    for key in ("threads", "isa"):
        del config["gemslide"][key]
    write_config(stranger, config)

    comparison = compare(str(stranger), small_project.model_id, project)

    assert comparison.weights_equal is True
    assert {d.a for d in comparison.differences if d.part in ("arithmetic", "versions")} == {ABSENT}
    assert not [d for d in comparison.differences if d.key.startswith("model.")]


def test_what_is_not_there_is_refused_with_what_is(small_project, project):
    with pytest.raises(
        UnreadableError, match=rf"no-such: no such model in .* no such run in .*: .*{small_project.model_id}"
    ):
        compare(small_project.model_id, "no-such", project)


def test_the_verb_says_it_in_a_table_and_in_json(small_project, project, run_id, gemslide):
    other = another(project, small_project.model_id, run_id, lambda r: r.update(threads=2))

    words = gemslide("compare", small_project.model_id, other, "--project", project.root)
    line = gemslide("compare", small_project.model_id, other, "--project", project.root, "--json")

    assert words.code == line.code == 0
    assert "arithmetic\n  threads" in words.out
    assert "This is explained by threads (1 and 2)." in " ".join(words.out.split())
    result = json.loads(line.out)
    assert result.keys() == {"a", "b", "differences", "weights_equal", "conclusion"}
    assert {"part": "arithmetic", "key": "threads", "a": 1, "b": 2} in result["differences"]


def described_otherwise(project, model_id, change):
    """Add a package of the same weights and run with a changed `config.json`; return its folder."""
    package = project.models_dir / "described-otherwise"
    shutil.copytree(project.model_path(model_id), package)
    config = read_config(package)
    change(config, config["gemslide"])
    write_config(package, config)
    return str(package)


STAIN = {"method": "macenko", "target": {"matrix": [[0.5, 0.1], [0.7, 0.9], [0.3, 0.1]]}}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda config, _: config["class_names"].reverse(), "class_names"),
        (lambda config, _: config.update(spacing_um_px=7.5), "spacing_um_px"),
        (lambda config, _: config.update(patch_size_pixels=8), "patch_size_pixels"),
        (lambda config, _: config["transform"][2]["arguments"].update(mean=[0.1] * 3), "transform.3.arguments.mean"),
        (lambda _, ours: ours["statistics"].update(std=[0.1] * 3), "statistics.std"),
        (lambda _, ours: ours.update(stain=STAIN), "stain.method"),
        (lambda _, ours: ours.update(read=None), "read"),
        (lambda _, ours: ours.update(outputs="probabilities"), "outputs"),
        (lambda _, ours: ours.update(runtime="onnx"), "runtime"),
        (lambda _, ours: ours.update(entry_point={"name": "x", "value": "x:y"}), "entry_point.value"),
        (lambda _, ours: ours["model"].update(norm="group"), "model.norm"),
    ],
)
def test_equal_weights_that_predict_differently_are_never_without_a_difference(
    small_project, project, gemslide, change, key
):
    package = project.model_path(small_project.model_id)
    if key == "runtime":
        shutil.copy(package / "model.safetensors", package / "model.onnx")
    other = described_otherwise(project, small_project.model_id, change)

    comparison = compare(small_project.model_id, other, project)
    said = gemslide("compare", small_project.model_id, other, "--project", project.root).out

    assert comparison.weights_equal is True
    assert key in [d.key for d in comparison.differences]
    assert all(d.a != d.b for d in comparison.differences)
    assert comparison.conclusion.startswith("The weights are the same, byte for byte, but predictions may differ, as ")
    assert key in comparison.conclusion
    assert "No difference" not in said
    assert re.search(rf"^  {re.escape(key)}  ", said, re.MULTILINE)


def test_what_a_package_of_an_earlier_version_leaves_unsaid_is_what_it_meant(small_project, project):
    def older(_, ours):
        for key in ("read", "outputs", "runtime", "stain"):
            del ours[key]

    other = described_otherwise(project, small_project.model_id, older)

    assert compare(small_project.model_id, other, project).differences == []


def of_epoch(project, model_id, epoch):
    """Add another package of the same run, of another epoch; return its model id."""
    package = project.models_dir / f"{model_id.rpartition('-')[0]}-later"
    shutil.copytree(project.model_path(model_id), package)
    config = read_config(package)
    config["gemslide"] |= {"epoch": epoch, "which": "last"}
    write_config(package, config)
    state = load_file(project.model_path(model_id) / "model.safetensors")
    return with_weights(package, {name: (tensor + 1).contiguous() for name, tensor in state.items()}).name


def test_two_packages_of_one_run_are_told_apart_by_their_epochs(small_project, project, run_id, gemslide):
    own = read_config(project.model_path(small_project.model_id))["gemslide"]["epoch"]
    later = of_epoch(project, small_project.model_id, own + 3)

    for a in (small_project.model_id, run_id):
        comparison = compare(a, later, project)
        assert [(d.part, d.key, d.a, d.b) for d in comparison.differences if d.part != "weights"] == [
            ("training", "epoch", own, own + 3)
        ]
        assert comparison.conclusion == (
            f"The weights differ because they are from two epochs of one run: {own} and {own + 3}."
        )
    done = gemslide("compare", small_project.model_id, later, "--project", project.root)
    assert done.code == 0
    assert re.search(rf"^  epoch +{own} +{own + 3}$", done.out, re.MULTILINE)


def test_epochs_of_different_runs_are_named_beside_what_else_differs(small_project, project, run_id):
    other = another(project, small_project.model_id, run_id, lambda record: record["settings"]["optim"].update(lr=0.07))
    config = read_config(project.model_path(other))
    own = config["gemslide"]["epoch"]
    config["gemslide"]["epoch"] = own + 1
    write_config(project.model_path(other), config)

    conclusion = compare(small_project.model_id, other, project).conclusion

    assert conclusion.startswith("The weights differ because the runs do: ")
    assert "optim.lr (0.05 and 0.07)" in conclusion
    assert f"epoch ({own} and {own + 1})" in conclusion
