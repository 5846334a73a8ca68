"""Every error has a code, and every code one class."""

import ast
import subprocess
import sys

from tests.contracts.test_folder_rules import ROOT, SOURCES
from training.foundation.errors import BY_CODE

HEAVY = ("torch", "numpy", "pydantic", "rich")


def classes_with_a_code(path):
    """(class name, code) of every class in a source file whose body sets `code` to a text."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ClassDef):
            continue
        for line in node.body:
            if isinstance(line, ast.Assign) and getattr(line.targets[0], "id", "") == "code":
                yield node.name, line.value.value


def test_a_code_stands_in_one_class_only():
    found = [pair for path in SOURCES for pair in classes_with_a_code(path) if pair[0] != "GemslideError"]
    codes = [code for _, code in found]

    assert len(codes) == len(set(codes)), sorted(found)
    assert set(BY_CODE) <= set(codes)


def test_the_errors_of_each_room_are_the_foundation_s():
    from pipeline import errors as of_pipeline
    from training import errors as of_training

    for room in (of_pipeline, of_training):
        ours = {kind for kind in vars(room).values() if isinstance(kind, type) and kind.__name__ != "GemslideError"}
        assert ours <= set(BY_CODE.values())


def test_errors_are_there_without_any_large_library():
    program = f"import sys, training.foundation.errors; print([name for name in {HEAVY} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.strip() == "[]"
