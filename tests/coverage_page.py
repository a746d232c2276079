"""``docs/coverage.md``: which feature of the design documents is shown by which test.

The features are in ``docs/features.tsv``, the tests say theirs by ``@pytest.mark.spec("004-086")``. Both are only
read here; no test is imported.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
FEATURES = DOCS / "features.tsv"
PAGE = DOCS / "coverage.md"

DOCUMENTS = {
    "000": "the execution plan",
    "001": "the graph language",
    "002": "Tiny IR",
    "003": "type trees",
    "004": "the compiler",
    "I": "where the documents contradict themselves",
}

HEAD = """# Coverage

What the design documents ask for, feature by feature, and the tests that show it. A test names its features by
`@pytest.mark.spec("004-086")`, [features.tsv](features.tsv) lists them all, and this page is made from both:

    .venv/bin/python -m pytest --update-golden tests/test_coverage_page.py
"""


@dataclass(frozen=True)
class Feature:
    """``note``: why no test shows it, or what of it is still to come; empty for most."""

    id: str
    text: str
    note: str

    @property
    def document(self) -> str:
        return self.id.partition("-")[0]


@dataclass(frozen=True, order=True)
class Shown:
    """A test and one feature that it carries. ``file``: relative to the folder of the tests."""

    file: str
    test: str
    feature: str


def features() -> list[Feature]:
    """The rows of ``docs/features.tsv``, in order. Raises ValueError for a line without three fields."""
    lines = FEATURES.read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    if odd := [row for row in rows if len(row) != 3 or not row[0] or not row[1]]:
        raise ValueError(f"{FEATURES.name} needs id, feature and note, parted by tabs: {odd[0]}")
    return [Feature(*row) for row in rows]


def markers() -> list[Shown]:
    """Every feature that a test carries, in the order of the files and of the tests in them."""
    found: list[Shown] = []
    for path in sorted(TESTS.rglob("test_*.py")):
        found += _of_file(path.relative_to(TESTS).as_posix(), path.read_text(encoding="utf-8"))
    return found


def _of_file(file: str, source: str) -> Iterator[Shown]:
    """The markers of one module: on its tests, on their classes and parameters, and on the module itself."""
    module = ast.parse(source)
    everywhere = [_ids(file, node) for node in module.body if _is_pytestmark(node)]
    yield from _of_body(file, module.body, [id for ids in everywhere for id in ids])


def _of_body(file: str, body: Sequence[ast.stmt], outer: Sequence[str]) -> Iterator[Shown]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _of_body(file, node.body, [*outer, *_decorators(file, node)])
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            for id in dict.fromkeys([*outer, *_decorators(file, node)]):
                yield Shown(file, node.name, id)


def _decorators(file: str, node: ast.ClassDef | ast.FunctionDef) -> list[str]:
    return [id for decorator in node.decorator_list for id in _ids(file, decorator)]


def _ids(file: str, tree: ast.AST) -> list[str]:
    """The arguments of every ``pytest.mark.spec(…)`` within ``tree``."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "spec":
            if not (isinstance(node.func.value, ast.Attribute) and node.func.value.attr == "mark"):
                continue  # tinyc.spec(…)
            for argument in node.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise ValueError(f"{file}:{node.lineno}: write the ids of a spec marker out, as texts")
                found.append(argument.value)
    return found


def _is_pytestmark(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
    )


def page(listed: Sequence[Feature], shown: Sequence[Shown]) -> str:
    """The text of ``docs/coverage.md``."""
    tests: Mapping[str, list[Shown]] = defaultdict(list)
    for each in shown:
        tests[each.feature].append(each)
    parts = [HEAD]
    for document, title in DOCUMENTS.items():
        mine = [feature for feature in listed if feature.document == document]
        count = sum(feature.id in tests for feature in mine)
        name = "Resolutions" if document == "I" else f"Document {document}"
        parts.append(f"\n## {name}: {title}\n\n{count} of {len(mine)} are shown by a test.\n")
        parts.append("| | Feature | Shown by |\n|---|---|---|")
        parts += [f"| {each.id} | {each.text} | {_cell(each, tests[each.id])} |" for each in mine]
    return "\n".join(parts) + "\n"


def _cell(feature: Feature, tests: Sequence[Shown]) -> str:
    """The tests, file by file, and the note."""
    files: dict[str, list[str]] = {}
    for each in tests:
        files.setdefault(each.file, []).append(f"`{each.test}`")
    listed = [
        f"[{Path(file).name}](../tests/{file}): {', '.join(names)}" for file, names in sorted(files.items())
    ]
    note = [f"*{feature.note}*"] if feature.note else []
    return "<br>".join([*listed, *note])
