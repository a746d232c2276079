"""Drawings: DOT and Mermaid that parse, whatever the names are, and that say what the program is."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyc
from tinyc.draw import draw_classes, draw_program, draw_regions
from tinyc.draw.drawing import LIMIT, MAX_LABEL, Drawing, Edge, Group, Node, render
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import Budget, saturate
from tinyc.extract.base import base_program
from tinyc.extract.chosen import ChosenClass
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.cost.model import Roofline
from tinyc.extract.program import Found, extract_program
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.document import program_from_document
from tinyc.ir.tiny import Program
from tinyc.ir.verify import bind

FOLDER = Path(__file__).parents[1] / "docs" / "examples"
FORMS = ("dot", "mermaid")
each_form = pytest.mark.parametrize("form", FORMS)


# --- a reader of what is drawn ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Read:
    """``nodes``: id -> label, as a reader of the picture sees it. ``frames``: titles. ``edges``: (from, to, label)."""

    nodes: dict[str, str]
    frames: list[str]
    edges: list[tuple[str, str, str]]

    def between(self) -> Counter[tuple[str, str, str]]:
        return Counter((self.nodes[one], self.nodes[two], label) for one, two, label in self.edges)


QUOTED = r'"((?:[^"\\\n]|\\.)*)"'
DOT_NODE = re.compile(
    rf'\s*(\w+) \[shape=\w+(?:, style="[a-z,]+", fillcolor="#[0-9a-f]+")?, label={QUOTED}\];'
)
DOT_EDGE = re.compile(rf"\s*(\w+) -> (\w+)(?: \[label={QUOTED}\])?;")
DOT_FRAME = re.compile(r"\s*subgraph (cluster_\d+) \{")
DOT_LABEL = re.compile(rf"\s*label={QUOTED};")
PLAIN = r'"([^"\n]*)"'
MERMAID_NODE = re.compile(rf"\s*(\w+)(?:\[{PLAIN}\]|\(\[{PLAIN}\]\)|>{PLAIN}\])")
MERMAID_EDGE = re.compile(rf"\s*(\w+) -->(?:\|{PLAIN}\|)? (\w+)")
MERMAID_FRAME = re.compile(rf"\s*subgraph (\w+) \[{PLAIN}\]")


def read(text: str, form: str) -> Read:
    """Every line is one of the forms of the grammar; ids are declared once, before their edges; frames are closed."""
    assert text[-1] == chr(10)
    return _dot(text) if form == "dot" else _mermaid(text)


def _dot(text: str) -> Read:
    def plain(label: str | None) -> str:
        lines = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m.group(1), m.group(1)), label or "")
        return re.sub(r"&(\w+);", lambda m: {"amp": "&"}[m.group(1)], lines)

    lines = text.splitlines()
    assert lines[0] == "digraph tinyc {" and lines[-1] == "}" and lines[1] == "  rankdir=TB;"
    found = Read({}, [], [])
    depth = 0
    for line in lines[4:-1]:
        if match := DOT_FRAME.fullmatch(line):
            depth += 1
        elif match := DOT_LABEL.fullmatch(line):
            assert depth == 1
            found.frames.append(plain(match.group(1)))
        elif line == "  }":
            depth -= 1
        elif match := DOT_NODE.fullmatch(line):
            assert match.group(1) not in found.nodes
            found.nodes[match.group(1)] = plain(match.group(2))
        elif match := DOT_EDGE.fullmatch(line):
            assert depth == 0 and {match.group(1), match.group(2)} <= found.nodes.keys()
            found.edges.append((match.group(1), match.group(2), plain(match.group(3))))
        else:
            pytest.fail(f"no line of the grammar: {line!r}")
        assert depth in (0, 1)
    assert depth == 0
    return found


def _mermaid(text: str) -> Read:
    def plain(*labels: str | None) -> str:
        label = next((each for each in labels if each is not None), "").replace("<br/>", "\n")
        assert not re.search(r'[<>"`|{}%&;\\]', re.sub(r"#\d+;", "", label)), label
        return re.sub(r"#(\d+);", lambda m: chr(int(m.group(1))), label)

    lines = text.splitlines()
    assert lines[0] == "flowchart TB"
    found = Read({}, [], [])
    depth = 0
    for line in lines[1:]:
        if match := MERMAID_FRAME.fullmatch(line):
            depth += 1
            found.frames.append(plain(match.group(2)))
        elif line == "  end":
            depth -= 1
        elif match := MERMAID_EDGE.fullmatch(line):
            assert depth == 0 and {match.group(1), match.group(3)} <= found.nodes.keys()
            found.edges.append((match.group(1), match.group(3), plain(match.group(2))))
        elif match := MERMAID_NODE.fullmatch(line):
            assert match.group(1) not in found.nodes
            found.nodes[match.group(1)] = plain(*match.groups()[1:])
        else:
            pytest.fail(f"no line of the grammar: {line!r}")
        assert depth in (0, 1)
    assert depth == 0
    return found


# --- programs --------------------------------------------------------------------------------------------------


def small() -> Program:
    return tinyc.trace(
        lambda x, y: ((x - y * 2.0).sum(1), y), tinyc.spec("fp32", ("M", 4)), tinyc.spec("fp32", ("M", 4))
    )


@pytest.mark.spec("001-52")
@each_form
def test_a_program(form: str) -> None:
    program = small()
    found = read(draw_program(program, form), form)
    assert Counter(found.nodes.values())["input x\nfp32[M, 4]"] == 1
    assert found.frames == []
    subtract = next(node for node in program.nodes if node.uop == "SUB")
    label = f"{subtract.id}: SUB"
    assert found.between()[("input x\nfp32[M, 4]", label, "0: fp32[M, 4]")] == 1, "operands are numbered"
    assert any("operand 1 = 2.0" in text for text in found.nodes.values())
    assert found.between()[("input y\nfp32[M, 4]", f"output {program.outputs[1].name}", "fp32[M, 4]")] == 1
    wanted = sum(len(node.operands()) for node in program.nodes) + len(program.outputs)
    assert len(found.edges) == wanted and len(found.nodes) == len(program.nodes) + len(program.outputs)


@pytest.mark.spec("001-52")
@each_form
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.name)
def test_every_example_is_drawn_the_same_way_each_time(path: Path, form: str) -> None:
    program = tinyc.load(path)
    text = draw_program(program, form)
    found = read(text, form)
    assert text == draw_program(tinyc.load(path), form)
    shown = min(len(program.nodes) + len(program.outputs), LIMIT)
    assert len(found.nodes) == shown + ("more nodes" in text)
    bound = bind(program, dict.fromkeys(program.symbols, 8))
    regions = read(draw_regions(base_program(bound), form), form)
    assert regions.nodes and regions.edges


# --- regions ---------------------------------------------------------------------------------------------------


def softmax(x: Any) -> Any:
    y = (x - x.max(1).reshape(6, 1)).exp()
    return y / y.sum(1).reshape(6, 1)


@pytest.mark.spec("001-52")
@each_form
def test_regions_are_frames_with_their_values_and_buffers_between_them(form: str) -> None:
    naive = base_program(tinyc.trace(softmax, tinyc.spec("fp32", (6, 8))))
    found = read(draw_regions(naive, form), form)
    assert len(naive.regions) == 3 == len(found.frames)
    assert found.frames[0].startswith(f"{naive.regions[0].name} over i0<6")
    labels = list(found.nodes.values())
    assert labels.count("input x\nfp32[6, 8]") == 1
    for buffer in naive.execution.internal():
        text = f"at {buffer.offset}, {buffer.allocated_size} bytes"
        assert any(label.startswith(f"buffer {buffer.name}\n") and label.endswith(text) for label in labels)
    assert sum("MAX over r0<8" in label for label in labels) == 1
    values = sum(len(region.lets) for region in naive.regions)
    assert len(labels) == values + len(naive.execution.buffers)
    shapes = [label for _, _, label in found.edges if "fp32" in label]
    reads = sum(label.split("\n")[-1].endswith("]") and label.startswith("v") for label in labels)
    assert len(shapes) == reads + 3, "every read and every yield has its shape"


@each_form
def test_a_large_program_is_drawn_by_kernels_and_then_cut(form: str) -> None:
    def chain(x: Any) -> Any:
        for _ in range(100):
            x = x.sum(1).reshape(6, 1) + x
        return x

    naive = base_program(tinyc.trace(chain, tinyc.spec("fp32", (6, 8))))
    text = draw_regions(naive, form)
    found = read(text, form)
    assert len(found.nodes) == LIMIT + 1 and len(text) < 50_000 and len(found.edges) <= 2 * LIMIT + 1
    hidden = len(naive.regions) + len(naive.execution.buffers) - LIMIT
    assert any(label.startswith(f"{hidden} more nodes are not drawn") for label in found.nodes.values())
    whole = read(draw_regions(naive, form, limit=100_000), form)
    assert len(whole.frames) == len(naive.regions)


# --- classes ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found() -> tuple[Program, Found]:
    program = tinyc.trace(
        lambda a, b: (a @ b).relu(), tinyc.spec("fp32", (8, 16)), tinyc.spec("fp32", (16, 8))
    )
    graph = saturate(program, load_rules(()), (), (), Budget()).graph
    return program, extract_program(program, graph, Roofline(hardware("sm80")))


@pytest.mark.spec("001-52")
@each_form
def test_chosen_classes(found: tuple[Program, Found], form: str) -> None:
    program, extraction = found
    assert extraction.extracted is not None
    chosen = extraction.classes
    drawn = read(draw_classes(chosen, form), form)
    assert drawn.frames == [region.name for region in extraction.extracted.regions]
    assert len(drawn.nodes) == len(chosen) + 2, "the classes and the two inputs"
    product = next(each for each in chosen if each.op.startswith("Contract"))
    assert product.alternatives >= 1, "the plain sum is another way"
    assert len(product.operands) == 2 and {each.reads for each in chosen if each.reads} == {"a", "b"}
    relu = next(each for each in chosen if each.op == "Unary RELU")
    assert relu.node == next(node.id for node in program.nodes if node.uop == "RELU")
    ways = f"{relu.alternatives} other way"
    text = next(label for label in drawn.nodes.values() if label.startswith("Unary RELU"))
    assert f"class {relu.cls} = node {relu.node}" in text and (ways in text or "the only way" in text)
    edges = sum(len(each.operands) + bool(each.reads) for each in chosen)
    assert len(drawn.edges) == edges


def test_classes_come_after_their_operands(found: tuple[Program, Found]) -> None:
    seen: set[tuple[str, str]] = set()
    for each in found[1].classes:
        assert all((each.kernel, operand) in seen for operand in each.operands)
        seen.add((each.kernel, each.cls))
    assert len(seen) == len(found[1].classes)
    assert [each.kernel for each in found[1].classes if each.stores] == [
        region.name
        for region in found[1].extracted.regions  # type: ignore[union-attr]
    ]


@each_form
def test_kernels_are_linked_by_the_buffers_between_them(form: str) -> None:
    chosen = [
        ChosenClass("k_a", "c1", "Read", (), "x", "", 0, "a"),
        ChosenClass("k_b", "c1", "Read", (), "a", "", 2, ""),
        ChosenClass("k_b", "c2", "Unary NEG", ("c1",), "", "n1", 1, "b"),
    ]
    drawn = read(draw_classes(chosen, form), form)
    assert drawn.frames == ["k_a", "k_b"]
    first, second = "Read\nclass c1\nthe only way", "Read\nclass c1\n2 other ways"
    assert drawn.between() == Counter(
        [
            ("x", first, ""),
            (first, "a", ""),
            ("a", second, ""),
            (second, "Unary NEG\nclass c2 = node n1\n1 other way", ""),
        ]
    )
    assert read(draw_classes([], form), form).nodes == {}


# --- text ------------------------------------------------------------------------------------------------------

HOSTILE = [
    'say "hi"', "x --> y", "a -> b;", "<b>bold</b>", "&lt;", "#quot;", "end", "graph", "a|b", "%%{init}%%", "`md`",
    "\\", "\\N", "\\", 'a"]', "日本語", "é", "😀", "semi;colon", "{curly}", "[x]", "(y)", "a\\nb", "o", "subgraph",
]  # fmt: skip


def hostile_program() -> Program:
    names = list(dict.fromkeys(HOSTILE))
    uops: list[dict[str, Any]] = [
        {"id": names[0], "uop": "INPUT", "arg": {"tensor_id": names[1], "dtype": "fp32", "shape": [2]}}
    ]
    uops += [{"id": name, "uop": "NEG", "src": [before]} for before, name in pairwise(names)]
    document = {
        "uops": uops,
        "signature": {
            "inputs": [{"tensor": names[1], "node": names[0]}],
            "outputs": [{"tensor": names[2], "node": names[-1]}],
        },
    }
    return program_from_document(document)


@pytest.mark.spec("001-52")
@each_form
def test_no_name_becomes_syntax(form: str) -> None:
    program = hostile_program()
    found = read(draw_program(program, form), form)
    wanted = [f"input {program.inputs[0].name}\nfp32[2]", *(f"{node.id}: NEG" for node in program.nodes[1:])]
    assert list(found.nodes.values()) == [*wanted, f"output {program.outputs[0].name}"]


@given(st.lists(st.text(max_size=80), min_size=1, max_size=4), st.text(max_size=80), st.sampled_from(FORMS))
def test_any_text_is_a_label(lines: list[str], edge: str, form: str) -> None:
    nodes = (Node("a", tuple(lines)), Node("b", ("plain",), "note"))
    drawing = Drawing((Group("frame " + lines[0], nodes),), (Edge("a", "b", edge),))
    found = read(render(drawing, form), form)

    def shown(text: str) -> str:
        short = text if len(text) <= MAX_LABEL else text[: MAX_LABEL - 1] + "…"
        return "".join(c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in short) or " "

    assert list(found.nodes.values()) == ["\n".join(map(shown, lines)), "plain"]
    assert found.frames == [shown("frame " + lines[0])]
    assert found.edges[0][2] == (shown(edge) if edge else "")


def test_a_region_may_have_any_name() -> None:
    naive = base_program(tinyc.trace(lambda x: x + 1.0, tinyc.spec("fp32", (2,))))
    (region,) = naive.regions
    odd = replace(naive, regions=(replace(region, name='line\nbreak "] --> }\u202e'),))
    for form in FORMS:
        assert read(draw_regions(odd, form), form).frames == ['line\\u{a}break "] --> }\\u{202e} over i0<2']


@each_form
def test_a_drawing_is_cut_with_a_note(form: str) -> None:
    nodes = tuple(Node(str(n), (str(n),)) for n in range(20))
    edges = tuple(Edge(str(a), str(b)) for a in range(20) for b in range(a))
    found = read(render(Drawing((Group("f", nodes[:8]), Group("g", nodes[8:])), edges), form, 10), form)
    assert len(found.nodes) == 11 and found.frames == ["f", "g"] and len(found.edges) == 20
    assert "10 more nodes are not drawn\n25 more edges are not drawn" in found.nodes.values()
    alone = read(render(Drawing((Group("f", nodes[:10]),), edges[:20]), form, 10), form)
    assert not any("more" in label for label in alone.nodes.values())


@pytest.mark.parametrize("form", ["svg", "", "DOT", None, 3])
def test_other_forms_are_refused(form: Any) -> None:
    with pytest.raises(TinycError) as caught:
        draw_program(small(), form)
    assert caught.value.kind == "InvalidArgument" and "mermaid" in caught.value.suggestion
    with pytest.raises(TinycError):
        draw_program(small(), "dot", 0)


def test_thousands_of_nodes_are_drawn_at_once() -> None:
    """Not megabytes, and no recursion."""
    sys.path.insert(0, str(FOLDER))
    import models

    function, specs = models.transformer(32)
    program = tinyc.trace(function, **specs)
    for form in FORMS:
        assert len(draw_program(program, form)) < 50_000
    assert len(program.nodes) > 4000
