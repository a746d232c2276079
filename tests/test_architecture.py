"""What the import contract cannot say: what the sources may not call, and what importing them costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tinyc
from tinyc.settings import VARIABLES

ROOT = Path(__file__).parent.parent
SOURCES = sorted(path for folder in ("tinyc", "extract", "codegen") for path in (ROOT / folder).rglob("*.py"))
#: calls that run text or data as code, by their dotted name
FORBIDDEN_CALLS = frozenset(
    {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "pickle.load", "pickle.loads"}
)
FORBIDDEN_IMPORTS = frozenset({"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"})
#: makes a function of the cost model's formulas, which are constants of this project's: of arithmetic alone, node by node, with
#: no builtins (test_cost_formulas.py holds what else there may be in a formula, nothing)
MAKES_A_FUNCTION = {"extract/cost/expressions.py": ("exec", "compile")}
#: reads what a fork of this very process writes to a pipe that has no name: nobody else can
READS_ITS_OWN_PICKLES = {"extract/exact/lanes.py": ("import pickle", "pickle.loads")}
#: hands its own environment to the engine's process; reads no setting from it
PASSES_ENVIRONMENT_ON = {"tinyc/egraph/saturate.py"}


def findings(source: str) -> list[str]:
    """What is forbidden in a module's text, as "line: what"."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in FORBIDDEN_CALLS:
                found.append(f"{node.lineno}: {name}")
            for keyword in node.keywords:
                allowed = isinstance(keyword.value, ast.Constant) and not keyword.value.value
                if keyword.arg in ("shell", "allow_pickle") and not allowed:
                    found.append(f"{node.lineno}: {keyword.arg}=")
        for module in imported(node):
            if module.split(".")[0] in FORBIDDEN_IMPORTS:
                found.append(f"{node.lineno}: import {module}")  # type: ignore[attr-defined]
    return found


def imported(node: ast.AST) -> Iterator[str]:
    """The absolute names of the modules that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        yield node.module


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=place)
def test_sources_run_no_text_as_code(path: Path) -> None:
    found = [each.split(": ")[1] for each in findings(path.read_text(encoding="utf-8"))]
    allowed = {**MAKES_A_FUNCTION, **READS_ITS_OWN_PICKLES}
    assert sorted(found) == sorted(allowed.get(place(path), ()))


@pytest.mark.parametrize(
    "source",
    [
        "eval('1')",
        "import os\nos.system('ls')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "from pickle import loads",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
    ],
)
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    assert len(findings(source)) == 1


def test_all_folders_were_searched() -> None:
    assert {place(path).split("/")[0] for path in SOURCES} == {"tinyc", "extract", "codegen"}
    assert len(SOURCES) == len({path.resolve() for path in SOURCES}), (
        "a symlink was followed: files count twice"
    )


def test_only_the_settings_module_reads_the_environment() -> None:
    names = {variable.name for variable in VARIABLES}
    for path in SOURCES:
        if place(path) == "tinyc/settings.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not (isinstance(node, ast.Constant) and node.value in names), (
                f"{place(path)}: {node.value}"
            )  # type: ignore[attr-defined]
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv"):
                assert place(path) in PASSES_ENVIRONMENT_ON, f"{place(path)}:{node.lineno}"


@pytest.mark.parametrize(
    ("engine", "home"), [("egglog", "tinyc/egraph/engine.py"), ("islpy", "tinyc/index/")]
)
def test_an_engine_has_one_door(engine: str, home: str) -> None:
    users = {
        place(path)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for module in imported(node)
        if module.split(".")[0] == engine
    }
    assert {user for user in users if not user.startswith(home)} == set()


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("tinyc", {"numpy", "ml_dtypes", "sympy", "egglog", "llvmlite", "islpy", "highspy", "rich", "cuda"}),
        ("tinyc.cli", {"sympy", "egglog", "llvmlite", "islpy", "highspy", "rich", "cuda"}),
    ],
)
def test_importing_is_light(module: str, heavy: set[str]) -> None:
    code = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(done.stdout.split())
    assert "tinyc" in loaded
    assert heavy & loaded == set()


def test_every_public_name_resolves() -> None:
    assert set(tinyc.__all__) <= set(dir(tinyc))
    for name in tinyc.__all__:
        assert getattr(tinyc, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tinyc.no_such_name


def test_the_symlinks_lead_to_the_real_folders() -> None:
    for name in ("extract", "codegen", "rules"):
        link = ROOT / "tinyc" / name
        assert link.is_symlink()
        assert link.readlink() == Path("..") / name
