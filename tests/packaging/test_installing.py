"""`make setup`: uv installs the locked packages from pip's configured index; without uv, pip installs them."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("install", ROOT / ".ci/install.py")
assert spec is not None
assert spec.loader is not None
install = importlib.util.module_from_spec(spec)
spec.loader.exec_module(install)


@pytest.fixture
def pip_configuration(tmp_path, monkeypatch):
    """Write a pip configuration file that is read after the machine's own."""
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)

    def write(text):
        path = tmp_path / "pip.conf"
        path.write_text(text)
        monkeypatch.setenv("PIP_CONFIG_FILE", str(path))

    return write


def test_uv_asks_the_indexes_and_folders_that_pip_is_configured_for(pip_configuration, monkeypatch):
    pip_configuration(
        "[global]\nindex-url = file:///one\nextra-index-url = file:///two file:///three\nfind-links = /a /b\n"
        "cert = /ca.pem\n"
    )
    for variable, _ in install.UV_VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)

    environment = install.uv_environment(install.pip_options())

    assert environment["UV_DEFAULT_INDEX"] == "file:///one"
    assert environment["UV_INDEX"] == "file:///two file:///three"
    assert environment["UV_FIND_LINKS"] == "/a,/b"
    assert environment["SSL_CERT_FILE"] == "/ca.pem"
    assert environment["UV_INDEX_STRATEGY"] == "unsafe-best-match"


def test_pips_environment_counts_more_than_its_files_and_its_install_section_more_than_the_global_one(
    pip_configuration, monkeypatch
):
    pip_configuration(
        "[global]\nindex-url = file:///global\nfind-links = /global\n"
        "[install]\nindex-url = file:///install\nfind-links = /install\n"
    )
    monkeypatch.setenv("PIP_INDEX_URL", "file:///environment")

    options = install.pip_options()

    assert options["index-url"] == "file:///environment"
    assert options["find-links"] == "/install"


def test_what_is_set_for_uv_stays(monkeypatch):
    monkeypatch.setenv("UV_DEFAULT_INDEX", "file:///mine")

    assert install.uv_environment({"index-url": "file:///pips"})["UV_DEFAULT_INDEX"] == "file:///mine"


def test_where_pip_asks_no_index_uv_asks_none():
    assert install.uv_command(Path("uv"), {"no-index": "true"})[-1] == "--no-index"
    assert "--no-index" not in install.uv_command(Path("uv"), {"no-index": "false"})


def test_where_uv_cannot_be_had_one_line_says_so(pip_configuration, tmp_path, capfd):
    pip_configuration(f"[global]\nno-index = true\nfind-links = {tmp_path}\n")

    assert install.get_uv(tmp_path / "uv") is None

    (line,) = capfd.readouterr().err.splitlines()
    assert re.fullmatch(r"uv cannot be installed \(.*uv==.*\); pip installs a checkout without it, in more time", line)


@pytest.mark.parametrize(("uv", "code_of_pip"), [("false", 0), ("false", 1), (None, 0), (None, 1)])
def test_where_uv_is_missing_or_fails_pip_installs_and_its_exit_code_counts(uv, code_of_pip, monkeypatch, capfd):
    monkeypatch.setattr(install, "get_uv", lambda folder: uv and Path(uv))
    monkeypatch.setattr(install, "PIP", ("false",) if code_of_pip else ("true",))

    assert install.main([]) == code_of_pip
    assert ("trying pip" in capfd.readouterr().err) == bool(uv)


def test_a_copy_is_never_installed_without_the_hashes_of_what_it_needs(monkeypatch):
    """uv checks hashes in constraints; pip cannot."""
    monkeypatch.setattr(install, "get_uv", lambda folder: None)
    monkeypatch.setattr(install, "PIP", ("true",))

    assert install.main(["gemslide.whl"]) == 1


def test_uv_is_locked_by_version_and_hash_without_saying_where_it_comes_from():
    text = (ROOT / "requirements-uv.lock").read_text()

    assert re.match(r"uv==\d+\.\d+\.\d+ \\\n", text)
    assert re.fullmatch(r"uv==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n", text)


def test_the_environment_holds_the_locked_versions():
    text = "".join((ROOT / lock).read_text() for lock in ("requirements.lock", "requirements-torch.lock"))
    locked = dict(re.findall(r"^([A-Za-z][\w.-]*)==([^\s;]+)", text, re.MULTILINE))

    # torch's builds add their platform: 2.13.0+cpu.
    assert {name: version(name).split("+")[0] for name in locked} == locked
    assert sys.prefix != sys.base_prefix
