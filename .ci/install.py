"""Install the locked packages and this checkout into the environment whose Python runs it: by uv, otherwise by pip.

    .venv/bin/python .ci/install.py
    /opt/gemslide/bin/python .ci/install.py 'dist/gemslide-0.1.0-py3-none-any.whl[app]'
    /opt/gemslide/bin/python .ci/install.py '.[app]'

With a wheel, or a folder to build one from, it installs a copy that needs no checkout, and only those locked packages
that this copy and its extras need.

uv is installed by pip, at the version and hashes of requirements-uv.lock, and uses the indexes configured for pip. It
is kept apart from the environment's packages, in its own folder. If it is unavailable or fails, pip installs the
checkout. A copy needs uv: pip does not accept a lock with hashes as constraints for a file without hashes.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV_FOLDER = Path(sys.prefix) / "uv"
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")

# The locks are exact and complete: --no-deps keeps the installer from looking further. Only torch may bring packages
# that they do not name (its CUDA builds do), so it comes second, after everything else that it needs.
STEPS = (
    ("--no-deps", "--require-hashes", "-r", "requirements.lock"),
    ("-r", "requirements-torch.lock"),
    ("--no-deps", "--no-build-isolation", "--editable", "."),
)
WITHIN_LOCKS = ("-c", "requirements.lock", "-c", "requirements-torch.lock", "-b", "requirements.lock")
"""Constraints for uv, which also checks their hashes (`-c`, and `-b` for the build of a wheel)."""

UV_VARIABLES = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
    "proxy": ("ALL_PROXY", " "),
    "cert": ("SSL_CERT_FILE", " "),
}
"""uv's equivalent variable for each option of pip, and the separator of several values. Constraints are omitted: the
locks pin versions exactly, and uv accepts only exact constraints with hashes."""


def main(arguments: Sequence[str]) -> int:
    steps = [(os.path.abspath(argument), *WITHIN_LOCKS) for argument in arguments] or STEPS
    uv, options = get_uv(UV_FOLDER), pip_options()
    if uv and install(uv_command(uv, options), uv_environment(options), steps):
        return 0
    if arguments:
        return 1
    if uv:
        print("uv could not install the packages (its message is above): trying pip", file=sys.stderr)
    return 0 if install(PIP, os.environ, steps) else 1


def get_uv(folder: Path) -> Path | None:
    """Install the locked uv into `folder` by pip; return None, with one line on stderr, if pip cannot."""
    options = ("--no-deps", "--only-binary", ":all:", "--require-hashes", "--upgrade", "--target", str(folder))
    done = subprocess.run(
        [*PIP, *options, "-r", "requirements-uv.lock"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return folder / "bin/uv"
    reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
    print(f"uv cannot be installed ({reason}); pip installs a checkout without it, in more time", file=sys.stderr)
    return None


def uv_command(uv: Path, options: Mapping[str, str]) -> tuple[str, ...]:
    offline = ("--no-index",) if options.get("no-index", "").lower() in ("1", "true", "yes", "on") else ()
    # Bytecode is compiled at a library's first import, or by .ci/test, which measures times: all of it takes 40 s.
    return (str(uv), "pip", "install", "--quiet", "--python", sys.executable, *offline)


def install(command: Sequence[str], environment: Mapping[str, str], steps: Sequence[Sequence[str]]) -> bool:
    """Run the steps until one fails; return whether all succeeded."""
    return all(subprocess.run([*command, *step], cwd=ROOT, env=environment).returncode == 0 for step in steps)


def pip_options() -> dict[str, str]:
    """pip's configuration by option: environment variables override files, and `install` overrides `global`."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    sections = ("global.", "install.", ":env:.")
    return {
        name.removeprefix(section): str(ast.literal_eval(value))
        for section in sections
        for name, value in values.items()
        if name.startswith(section)
    }


def uv_environment(options: Mapping[str, str]) -> dict[str, str]:
    """Environment in which uv uses pip's configuration. Variables already set for uv are kept."""
    # pip takes the best version that any index offers; uv would take the first index that has the package.
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for option, (variable, separator) in UV_VARIABLES.items():
        if options.get(option):
            variables[variable] = separator.join(options[option].split())
    return variables | dict(os.environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
