"""Rules for file sizes, imports and wording, checked on the source itself."""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [p for package in ("pathology_app", "pipeline", "training") for p in sorted((ROOT / package).rglob("*.py"))]
MAX_LINES, MAX_INIT_LINES, MAX_FUNCTION_LINES = 400, 40, 60
MAX_FILES, MAX_FILES_ONE_SUBJECT = 16, 32
ONE_SUBJECT = {"training/engine", "pipeline/verbs"}
"""Folders that hold one subject in many files: the engine, and one file per verb."""
MAX_LOOSE = {"pathology_app": 8, "training": 8, "pipeline/study": 8, "pipeline/store": 8}
"""Maximum number of files beside sub-folders in a folder, without `__init__.py`."""
MAX_PARAMETERS, MAX_WITH_MORE = 7, 11
"""Limit per function; and number of functions that may exceed it: a verb's options, and a training step's plan."""
ADAPTERS = {
    "openslide": {"pipeline/slides/openslide/library.py"},
    "highdicom": {"pipeline/export/dicom/library.py"},
    "h5py": {"pipeline/export/features/hdf5.py"},
    "wsidicom": {"pipeline/codecs/dicom_frames.py"},
    "pydicom": {
        "pipeline/codecs/dicom_frames.py",
        *(f"pipeline/export/dicom/{part}.py" for part in ("frames", "library", "slide_attributes")),
        "pipeline/slides/structure/dicom.py",
        "pipeline/study/privacy/dicom_scan.py",
        *(f"pipeline/slides/dicom/headers/{part}.py" for part in ("attributes", "header", "positions")),
        *(f"pipeline/slides/dicom/{part}.py" for part in ("validate", "metadata")),
    },
    "napari": {"pathology_app/desktop/window.py"},
    "obstore": {"pipeline/places/bucket.py", "pipeline/places/connection.py"},
    "typer": {
        "pipeline/cli.py",
        "pipeline/verbs/cli_output.py",
        "pathology_app/account_cli.py",
        "pathology_app/account_verbs.py",
        "pathology_app/serving/command_errors.py",
        "pathology_app/commands.py",
        "pathology_app/server.py",
    },
}


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_a_file_holds_one_idea():
    too_long = [fault for path in SOURCES for fault in too_long_in(path)]

    assert not too_long, "\n".join(too_long)


def too_long_in(path):
    """Messages about a file, or functions in it, that exceed the length limits."""
    text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT)
    most, lines = MAX_INIT_LINES if path.name == "__init__.py" else MAX_LINES, text.count("\n")
    if lines > most:
        yield f"{name}: {lines} lines, {most} are the most"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno
            if lines > MAX_FUNCTION_LINES:
                yield f"{name}: {node.name} has {lines} lines, {MAX_FUNCTION_LINES} are the most"


def test_a_folder_holds_one_subject():
    """A few files, on the subject named in the folder's docstring."""
    counted = Counter(path.relative_to(ROOT).parent.as_posix() for path in SOURCES)
    most = {folder: MAX_FILES_ONE_SUBJECT if folder in ONE_SUBJECT else MAX_FILES for folder in counted}
    assert not {folder: number for folder, number in counted.items() if number > most[folder]}
    assert not {folder: counted[folder] - 1 for folder, most in MAX_LOOSE.items() if counted[folder] - 1 > most}

    packages = [path for path in SOURCES if path.name == "__init__.py" and path.parent.name != "versions"]
    unnamed = [str(path) for path in packages if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert not unnamed, unnamed


def test_few_functions_have_many_parameters():
    many = [f"{path.relative_to(ROOT)}: {name}" for path in SOURCES for name in functions_with_many_parameters(path)]

    assert len(many) <= MAX_WITH_MORE, "\n".join(many)


def functions_with_many_parameters(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            if len([name for name in names if name not in ("self", "cls")]) > MAX_PARAMETERS:
                yield node.name


def test_an_outside_library_has_one_adapter():
    used = {path.relative_to(ROOT).as_posix(): set(imports_of(path)) for path in SOURCES}
    strangers = [
        f"{user} imports {library}, which is for {', '.join(sorted(adapters))}"
        for library, adapters in ADAPTERS.items()
        for user, imported in used.items()
        if library in imported and user not in adapters and not is_verb_of(library, user)
    ]

    assert not strangers, "\n".join(strangers)


def is_verb_of(library, user):
    return library == "typer" and user.startswith("pipeline/verbs/")


def calls_of(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ):
            yield f"{node.func.value.id}.{node.func.attr}"


def test_image_codecs_are_called_in_one_folder():
    """See codecs/images.py: other modules import imagecodecs only for its zstd, or to check its installation."""
    importers = {str(p.relative_to(ROOT)) for p in SOURCES if "imagecodecs" in imports_of(p)}
    others = re.compile(
        r"Image\.open|cv2\.im(decode|encode|read|write)|tifffile\.imread|imagecodecs\.(jpeg|jxl|webp|png).*"
    )
    callers = {str(p.relative_to(ROOT)) for p in SOURCES for call in calls_of(p) if others.fullmatch(call)}

    codecs = {"pipeline/codecs/images.py", "pipeline/codecs/tiff_segments.py"}
    assert importers == codecs | {"pipeline/doctor.py", "pipeline/store/format/chunks.py"}
    assert callers == {"pipeline/codecs/images.py"}


WITH_TORCH = {"pipeline/batches/where.py", "pipeline/export/features/clam.py"}
"""Devices and threads; CLAM's files, which are torch's."""


def test_streamlit_stays_in_the_app_and_torch_out_of_it():
    strangers = []
    for path in SOURCES:
        package, used = path.relative_to(ROOT).parts[0], set(imports_of(path))
        if "streamlit" in used and package != "pathology_app":
            strangers.append(f"{path} imports streamlit")
        if "torch" in used and package != "training" and path.relative_to(ROOT).as_posix() not in WITH_TORCH:
            strangers.append(f"{path} imports torch")

    assert not strangers, "\n".join(strangers)


def test_nothing_is_left_for_later():
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")

    assert [str(p) for p in SOURCES if marks.search(p.read_text(encoding="utf-8"))] == []


def test_no_two_test_files_have_the_same_name():
    """pytest imports them by their bare names."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]

    assert sorted(name for name in set(names) if names.count(name) > 1) == []
