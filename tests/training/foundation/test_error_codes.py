"""Every error has a code, and every code one class."""

import ast
import subprocess
import sys

from pipeline import errors
from pipeline.errors import BY_CODE
from tests.contracts.test_folder_rules import ROOT, SOURCES
from training.foundation import errors as of_training

HEAVY = ("torch", "numpy", "pydantic", "rich")


def classes_with_a_code(path):
    """(class name, code) of every class in a source file whose body sets `code` to a string."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ClassDef):
            continue
        for line in node.body:
            if isinstance(line, ast.Assign) and getattr(line.targets[0], "id", "") == "code":
                yield node.name, line.value.value


def test_a_code_stands_in_one_class_only():
    pairs = [pair for path in SOURCES for pair in classes_with_a_code(path) if pair[0] != "GemslideError"]
    codes = [code for _, code in pairs]

    assert len(codes) == len(set(codes)), sorted(pairs)
    assert set(BY_CODE) <= set(codes)


def test_what_a_process_answers_with_a_code_is_raised_as_its_class():
    assert all(kind.code == code for code, kind in BY_CODE.items())
    for package in (errors, of_training):
        ours = {kind for kind in vars(package).values() if isinstance(kind, type)} - {of_training.GemslideError}
        assert len(ours) > 5
        assert ours <= set(BY_CODE.values())


def test_errors_are_there_without_any_large_library():
    program = f"import sys, training.foundation.errors; print([name for name in {HEAVY} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.strip() == "[]"
