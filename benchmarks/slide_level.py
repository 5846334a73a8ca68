"""Everything that docs/benchmarks/slide_level.md states, one part after the other.

    GEMSLIDE_TEST_DATA=… .venv/bin/python -m benchmarks.slide_level [--only probe | bags | embed | cost]

Each part is a benchmark of its own (`benchmarks.slide_level_probe` and so on), which says what it measures, and prints
JSON lines. All of them take about an hour on two cores; `embed` and `cost` measure times and want an idle machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

PARTS = ("probe", "bags", "embed", "cost")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS)
    only = parser.parse_args().only
    codes = [
        subprocess.run([sys.executable, "-m", f"benchmarks.slide_level_{part}"], check=False).returncode
        for part in (PARTS if only is None else (only,))
    ]
    sys.exit(any(codes))


if __name__ == "__main__":
    main()
