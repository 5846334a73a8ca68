"""Two models or runs side by side: what differs, and whether that explains other weights."""

import json
import re
import shutil

import pytest
from safetensors.torch import load_file

from pipeline.compare import ABSENT, compare
from pipeline.errors import UnreadableError
from pipeline.project import Project
from tests.model_packages import read_config, with_weights, write_config


@pytest.fixture
def project(road, tmp_path):
    """A project with the road's model and its run."""
    for folder in ("models", "runs"):
        shutil.copytree(getattr(road.project, f"{folder}_dir"), tmp_path / "project" / folder)
    return Project(tmp_path / "project")


@pytest.fixture
def run_id(road, project):
    return read_config(project.model_path(road.model_id))["gemslide"]["run_id"]


def another(project, model_id, run_id, change, *, new_weights=True):
    """The same training again with something changed in its record, and other weights; returns its model id."""
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


def test_a_model_is_itself_by_whatever_name(road, project, run_id):
    names = [
        road.model_id,
        str(project.model_path(road.model_id)),
        run_id,
        str(project.runs_dir / f"{run_id}.json"),
    ]

    for name in names:
        found = compare(road.model_id, name, project)
        assert found.differences == []
        assert found.weights_equal is True
        assert found.conclusion == "The weights are the same, byte for byte."


def test_other_threads_explain_other_weights(road, project, run_id):
    def two_threads(record):
        record["threads"] = record["settings"]["train"]["threads"] = 2

    found = compare(road.model_id, another(project, road.model_id, run_id, two_threads), project)

    assert found.weights_equal is False
    assert [(d.part, d.key, d.a, d.b) for d in found.differences if d.part != "weights"] == [
        ("arithmetic", "threads", 1, 2)
    ]
    assert found.conclusion == (
        "The weights differ at the same settings and inputs. That is explained by threads (1 and 2)."
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: r.update(isa="NEON"), r"That is explained by isa \(.* and NEON\)"),
        (lambda r: r["versions"].update(torch="1.0"), r"That is explained by torch \(2.* and 1\.0\)"),
        (lambda r: r["settings"]["optim"].update(lr=0.1), r"because the runs do: optim\.lr \(0\.05 and 0\.1\)"),
        (lambda r: r["inputs"][0].update(sha256="0" * 64), r"because the runs do: sha256 \("),
        (lambda r: r["inputs"][0].update(id="renamed"), "nothing that is recorded explains it"),
        (lambda r: r["settings"]["parallel"].update(strategy="master", num_stages=2), "nothing that is recorded"),
        (lambda r: r["settings"]["parallel"].update(data_parallel=2, num_microbatches=1), "nothing that is recorded"),
        (lambda r: r["settings"]["parallel"].update(num_microbatches=1), "because the runs do: parallel.num_microb"),
        (lambda r: r.pop("isa"), r"nothing that is recorded explains it. Not known of one of them: isa\."),
        (lambda r: r["settings"]["optim"].pop("lr"), r"cannot be told. Not known of one of them: optim\.lr"),
    ],
)
def test_what_differs_explains_other_weights_or_does_not(road, project, run_id, change, says):
    found = compare(road.model_id, another(project, road.model_id, run_id, change), project)

    assert found.weights_equal is False
    assert re.search(says, found.conclusion), found.conclusion


def test_the_same_weights_need_no_explanation(road, project, run_id):
    copy = another(project, road.model_id, run_id, lambda r: r.update(threads=2), new_weights=False)

    found = compare(road.model_id, copy, project)

    assert [d.key for d in found.differences] == ["threads"]
    assert found.weights_equal is True


def test_a_package_of_an_earlier_version_far_from_its_run_has_settings_that_are_not_known(road, project, tmp_path):
    stranger = tmp_path / "elsewhere" / road.model_id
    shutil.copytree(project.model_path(road.model_id), stranger)
    config = read_config(stranger)
    for key in ("threads", "isa"):
        del config["gemslide"][key]
    write_config(stranger, config)

    found = compare(str(stranger), road.model_id, project)

    assert found.weights_equal is True
    assert {d.a for d in found.differences if d.part in ("arithmetic", "versions")} == {ABSENT}
    assert not [d for d in found.differences if d.key.startswith("model.")]


def test_what_is_not_there_is_refused_with_what_is(road, project):
    with pytest.raises(UnreadableError, match=rf"no-such: no such model in .* no such run in .*: .*{road.model_id}"):
        compare(road.model_id, "no-such", project)


def test_the_verb_says_it_in_a_table_and_in_json(road, project, run_id, gemslide):
    other = another(project, road.model_id, run_id, lambda r: r.update(threads=2))

    words = gemslide("compare", road.model_id, other, "--project", project.root)
    line = gemslide("compare", road.model_id, other, "--project", project.root, "--json")

    assert words.code == line.code == 0
    assert "arithmetic\n  threads" in words.out
    assert "That is explained by threads (1 and 2)." in " ".join(words.out.split())
    said = json.loads(line.out)
    assert said.keys() == {"a", "b", "differences", "weights_equal", "conclusion"}
    assert {"part": "arithmetic", "key": "threads", "a": 1, "b": 2} in said["differences"]
