"""A study from its protocol to its end: real slides, real worker processes, some of them killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from pipeline.ledger.opening import open_ledger
from pipeline.project import Project
from pipeline.study.starting.local_pool import worker_command
from pipeline.study.work.study import begin_study
from tests.pipeline.study.small_study import NAMES, make_project, status, tasks_done_twice, with_protocol
from tests.small_trained_project import make_slide
from training.foundation.errors import BadRecipeError


@pytest.fixture
def project(small_project, tmp_path) -> Project:
    return make_project(small_project, tmp_path)


@pytest.fixture
def begun(project, small_project, gemslide) -> Project:
    return with_protocol(project, small_project, gemslide)


def results(project: Project, model_id: str) -> dict[str, bytes]:
    return {name: (project.result_dir(name, model_id) / "predictions.csv").read_bytes() for name in NAMES}


def test_every_slide_ends_in_one_state_and_the_log_verifies(begun, small_project, gemslide):
    ran = gemslide("study", "run", "s", "--workers", 2, "--project", begun.root)
    assert ran.code == 1, ran.err  # one slide cannot be read
    assert "bad" in ran.out
    assert "Research use only" in ran.out
    summary = status(gemslide, begun)
    states = {state: number for state, number in summary["slides"].items() if number}
    assert (states, summary["total"]) == ({"done": 4, "unreadable": 1, "excluded": 1}, 6)
    assert gemslide("study", "verify", "s", "--project", begun.root).code == 0
    again = gemslide("study", "reproduce", "s", "--slides", "50%", "--project", begun.root)
    assert (again.code, again.out.count("the same")) == (0, 2), again.out + again.err
    assert not list(begun.root.glob(".reproduce*"))
    alone = Project(begun.root.parent / "alone")
    shutil.copytree(begun.models_dir, alone.models_dir)
    shutil.copy(begun.settings_path, alone.settings_path)
    slides = [begun.root.parent / f"{name}.tiff" for name in NAMES]
    assert gemslide("infer", small_project.model_id, *slides, "--project", alone.root).code == 0
    assert results(begun, small_project.model_id) == results(alone, small_project.model_id)


def test_a_slide_that_was_mended_is_retried_and_nothing_else_is_done_again(begun, small_project, gemslide):
    gemslide("study", "run", "s", "--workers", 1, "--project", begun.root)
    before = {name: begun.store_path(name).stat().st_ino for name in NAMES}
    make_slide(begun.root.parent / "bad.tiff", 9)
    refused = gemslide("study", "retry", "s", "a", "--why", "test", "--project", begun.root)
    assert refused.code == 1
    assert "slide a: is done" in refused.err
    assert gemslide("study", "retry", "s", "bad", "--why", "copied again", "--project", begun.root).code == 0
    ran = gemslide("study", "run", "s", "--workers", 1, "--project", begun.root)
    assert ran.code == 0, ran.err
    assert status(gemslide, begun)["slides"]["done"] == 5
    assert before == {name: begun.store_path(name).stat().st_ino for name in NAMES}
    with open_ledger(begun) as ledger:
        whys = [entry.why for entry in ledger.history("s", "slide bad")]
    assert whys == ["", "", "copied again", "", ""]
    assert gemslide("study", "verify", "s", "--project", begun.root).code == 0


def test_workers_killed_at_random_lose_nothing_and_double_nothing(begun, gemslide, request):
    assert gemslide("study", "pause", "s", "--why", "not begun", "--project", begun.root).code == 1
    drawn = random.Random(7)
    command = worker_command("s", str(begun.root), "cpu")
    ledger = open_ledger(begun)
    request.addfinalizer(ledger.database.close)
    begin_study(begun, "s", ledger, actor="ada")
    workers = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
    kills = 0
    while not ledger.counts("s").is_over:
        time.sleep(drawn.uniform(2.0, 4.0))
        index = drawn.randrange(2)
        if kills < 4:
            workers[index].send_signal(signal.SIGKILL)
            workers[index].wait()
            kills += 1
        for at, worker in enumerate(workers):
            if worker.poll() is not None:
                workers[at] = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert kills
    slides = status(gemslide, begun)["slides"]
    assert (slides["done"], slides["unreadable"], slides["excluded"]) == (4, 1, 1)
    assert gemslide("study", "verify", "s", "--project", begun.root).code == 0
    assert tasks_done_twice(begun) == []


@pytest.mark.parametrize("percent", ["0%", "101", "some", "nan"])
def test_a_share_that_is_none_is_refused(begun, gemslide, percent):
    done = gemslide("study", "reproduce", "s", "--slides", percent, "--project", begun.root)
    assert (done.code, "such as 5%" in done.err) == (1, True)


def test_a_protocol_a_manifest_or_a_model_that_changed_since_is_refused(begun, small_project, gemslide):
    gemslide("study", "run", "s", "--workers", 1, "--project", begun.root)
    protocol = begun.root / "studies" / "s" / "study.toml"
    text = protocol.read_text()
    protocol.write_text(text.replace('title = ""', 'title = "another"'))
    ran = gemslide("study", "run", "s", "--project", begun.root)
    assert ran.code == 1
    assert "is not the protocol that study s was begun with" in ran.err
    protocol.write_text(text)
    manifest = begun.root.parent / "cohort.csv"
    manifest.write_text(manifest.read_text() + "\n")
    make_slide(begun.root.parent / "bad.tiff", 9)
    gemslide("study", "retry", "s", "bad", "--why", "test", "--project", begun.root)
    worked = subprocess.run(
        worker_command("s", str(begun.root), "cpu"), capture_output=True, text=True, check=False, env=os.environ
    )
    assert worked.returncode == 1
    assert "has changed since the study began" in worked.stderr
    assert "Traceback" not in worked.stderr


@pytest.mark.parametrize("what", ["weights", "config.json"])
def test_a_study_whose_model_says_something_else_by_now_does_not_go_on(begun, small_project, gemslide, what):
    package = begun.model_path(small_project.model_id)
    own = shutil.copytree(package, package.with_name("own"))
    package.unlink() if package.is_symlink() else shutil.rmtree(package)
    own.rename(package)
    if what == "weights":
        weights = (package / "model.safetensors").read_bytes()
        (package / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    else:
        config = json.loads((package / what).read_text())
        config["class_names"].reverse()
        config["gemslide"]["class_order"].reverse()
        (package / what).write_text(json.dumps(config))

    ran = gemslide("study", "run", "s", "--project", begun.root)

    assert ran.code == 1
    assert f"has {what} with SHA-256 " in ran.err
    assert "but the protocol names" in ran.err


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        ("[study]\ntitle = 1\n", "[study] title"),
        ("", "[study] is missing"),
        ('[[endpoints]]\nname = "x"\nmeasure = "auc"\nmodel = "no"\n', "model that is not among"),
        ("[patience]\nleases = 1\n", "unknown key [patience] leases: did you mean `lease_s`"),
    ],
)
def test_a_bad_protocol_is_one_clear_error(begun, gemslide, protocol, said):
    path = begun.root / "studies" / "s" / "study.toml"
    text = path.read_text().partition("[patience]")[0]
    path.write_text(protocol if protocol.startswith("[study]") or not protocol else text + protocol)
    ran = gemslide("study", "run", "s", "--project", begun.root)
    assert ran.code == 1
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_a_ledger_elsewhere_is_the_installations_to_name_and_never_the_projects(project, monkeypatch, tmp_path):
    settings = project.root / "gemslide.toml"
    before = settings.read_text() if settings.exists() else ""
    settings.write_text(f'[study]\nledger = "sqlite:///{tmp_path}/elsewhere.db"\n')
    with pytest.raises(BadRecipeError, match=r"\[study\] ledger.*Remove this line.*GEMSLIDE_LEDGER.*GEMSLIDE_SITE"):
        open_ledger(project)
    settings.write_text(before)
    site = tmp_path / "site.toml"
    site.write_text(f'[project."{project.root}"]\nledger = "sqlite:///{tmp_path}/second.db"\n')
    site.chmod(0o644)
    monkeypatch.setenv("GEMSLIDE_SITE", str(site))
    open_ledger(project).database.close()
    monkeypatch.setenv("GEMSLIDE_LEDGER", f"sqlite:///{tmp_path}/third.db")
    open_ledger(project).database.close()

    assert not (tmp_path / "elsewhere.db").exists()
    assert (tmp_path / "second.db").exists()
    assert (tmp_path / "third.db").exists()
    assert not (project.root / "gemslide.db").exists()
