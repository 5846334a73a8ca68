"""Run every attack in full: `make attack`. Exit with 1 if any promise did not hold."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

WHOLE: dict[str, int] = {
    "killed_writers": 280,
    "rival_writers": 120,
    "hostile_names": 200,
    "hostile_packages": 64,
    "hostile_tables": 300,
    "wrong_slides": 300,
    "foreign_files": 3000,
    "damaged_projects": 1500,
    "bit_rot": 300,
    "leaks": 300,
    "lying_colours": 400,
    "audited_studies": 1000,
    "named_messages": 400,
    "web_strangers": 200,
    "web_insiders": 200,
    "blinded_readers": 600,
    "web_projects": 1000,
    "web_slow": 200,
    "web_many": 10_000,
    "web_geometry": 330,
    "web_leavers": 300,
    "web_sockets": 400,
}
"""Number of tries per attack; some also try every listed case."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=sorted(WHOLE), default=list(WHOLE))
    arguments = parser.parse_args()
    start, broken = time.perf_counter(), []
    for name in arguments.only:
        # Every attack runs in its own process, because they fork, mount and start servers.
        command = [sys.executable, "-m", f"tests.attacks.{name}", "--times", str(WHOLE[name])]
        done = subprocess.run([*command, "--seed", str(arguments.seed)], check=False)
        if done.returncode:
            broken.append(name)
    verdict = f"findings in {', '.join(broken)}" if broken else "every promise held"
    print(f"{len(arguments.only)} attacks, seed {arguments.seed}: {verdict} ({time.perf_counter() - start:.0f} s)")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
