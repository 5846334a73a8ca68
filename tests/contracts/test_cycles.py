"""No import cycles between files or folders. Imports in functions count, and in TypeScript those of types."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from pathlib import Path

import pytest

from tests.contracts.test_folder_rules import ROOT, SOURCES

FRONTEND = ROOT / "pathology_app/viewer/frontend/src"
Graph = dict[str, set[str]]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in SOURCES}


def public_names() -> Iterator[tuple[tuple[str, str], str]]:
    """Map (package, name) to the module that the package's stub imports it from."""
    for package, path in MODULES.items():
        stub = path.with_suffix(".pyi")
        if stub.exists():
            for node in ast.walk(ast.parse(stub.read_text())):
                if isinstance(node, ast.ImportFrom):
                    below = f"{package}.{node.module}" if node.module else package
                    for alias in node.names:
                        yield (package, alias.name), below if node.module else f"{package}.{alias.name}"


PUBLIC = dict(public_names())


def run_time_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below a node, except those that only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)):
            yield child
            yield from run_time_nodes(child)


def imported_by(path: Path) -> Iterator[str]:
    for node in run_time_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else PUBLIC.get((node.module, alias.name), node.module)


def python_imports() -> Graph:
    return {module: {name for name in imported_by(path) if name in MODULES} for module, path in MODULES.items()}


def typescript_imports() -> Graph:
    graph: Graph = {}
    for path in FRONTEND.rglob("*.ts"):
        names = re.findall(r'from\s+"(\.[^"]+)"', path.read_text())
        targets = (Path(os.path.normpath(path.parent / name)) for name in names)
        graph[str(path)] = {f"{target}.ts" for target in targets if Path(f"{target}.ts").exists()}
    return graph


@pytest.mark.parametrize("imports", [python_imports, typescript_imports])
def test_no_file_comes_back_to_itself_by_its_imports(imports):
    graph = imports()
    assert len(graph) > 50
    assert sum(map(len, graph.values())) > len(graph)

    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" → ".join(error.args[1])) from None


def folder_graphs(graph: Graph) -> dict[str, Graph]:
    """For each package, the imports among its parts (files, and folders with all their contents)."""
    graphs: dict[str, Graph] = {}
    for importer, imported in graph.items():
        for module in imported:
            mine, theirs = importer.split("."), module.split(".")
            depth = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(mine, theirs, strict=False)))
            if depth < min(len(mine), len(theirs)):
                parts = graphs.setdefault(".".join(mine[:depth]), {})
                parts.setdefault(mine[depth], set()).add(theirs[depth])
    return graphs


def test_no_folder_comes_back_to_itself_by_its_imports():
    graphs = folder_graphs(python_imports())
    assert {"", "pathology_app", "pipeline", "pipeline.study", "training"} <= graphs.keys()

    for package, graph in graphs.items():
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            raise AssertionError(f"{package}: {' → '.join(error.args[1])}") from None


def folder_of(module: str) -> str:
    return module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]


def test_no_two_folders_import_each_other():
    """Not even a folder and its sub-folder, except the three packages, whose loose files are both entry and base."""
    pairs = {(folder_of(a), folder_of(b)) for a, imported in python_imports().items() for b in imported}

    mutual = {(a, b) for a, b in pairs if a != b and (b, a) in pairs and "." in a and "." in b}
    assert not mutual
