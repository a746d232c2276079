"""The normal form of index expressions, by brute force: random expressions, evaluated at every point of their axes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from rule_text import FOLDER

import tinyc
from tinyc.egraph.engine import Engine, Ref
from tinyc.egraph.graph import TABLES, ENode, Graph, compact, read
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import saturate
from tinyc.extract.view import View, axis_extent, axis_id, input_dtypes
from tinyc.ir.evaluate import evaluate
from tinyc.ir.index import Affine, FloorDiv

Values = np.ndarray[Any, np.dtype[np.int64]]
EXTENTS = (2, 3, 4, 6)


class Terms:
    """Index terms as the engine takes them, each with its value at every point of the axes."""

    def __init__(self, seed: int, divisions: bool = True) -> None:
        self.divisions = divisions
        self.random = random.Random(seed)
        self.terms: list[tuple[str, tuple[Any, ...]]] = []
        self.values: list[Values] = []
        self.grid = np.indices(EXTENTS, dtype=np.int64)

    def add(self, name: str, args: tuple[Any, ...], value: Values) -> int:
        self.terms.append((name, args))
        self.values.append(value)
        return len(self.terms) - 1

    def lit(self, k: int) -> int:
        return self.add("Lit", (k,), np.full(EXTENTS, k, np.int64))

    def axis(self, k: int) -> int:
        atom = self.add("Ax", (k, EXTENTS[k]), self.grid[k])
        return self.add("Plus", (1, Ref(atom), Ref(self.lit(0))), self.grid[k])

    def plus(self, a: int, b: int) -> int:
        return self.add("IAdd", (Ref(a), Ref(b)), self.values[a] + self.values[b])

    def times(self, k: int, a: int) -> int:
        return self.add("IScale", (k, Ref(a)), k * self.values[a])

    def over(self, a: int, d: int) -> int:
        return self.add("IDiv", (Ref(a), d), self.values[a] // d)

    def vector(self, parts: Sequence[int]) -> int:
        return self.add("vec-of", tuple(map(Ref, parts)), self.grid[0])

    def expression(self, depth: int) -> int:
        """A random index over the axes."""
        pick = self.random.randrange
        if depth == 0:
            return self.axis(pick(4)) if pick(4) else self.lit(pick(19) - 9)
        way = pick(7 if self.divisions else 4)
        if way < 3:
            return self.plus(self.expression(depth - 1), self.expression(depth - 1))
        if way < 4:
            return self.times(pick(8) - 3, self.expression(depth - 1))
        if way < 6:
            return self.over(self.expression(depth - 1), 1 + pick(8))
        return self.reshaped([self.expression(depth - 1) for _ in range(2)])

    def inside(self, a: int, n: int) -> int:
        """``a`` modulo n, as the rules of RESHAPE spell it."""
        return self.plus(a, self.times(-n, self.over(a, n)))

    def ravel(self, parts: Sequence[int], shape: Sequence[int]) -> int:
        value = np.zeros(EXTENTS, np.int64)
        for part, size in zip(parts, shape, strict=True):
            value = value * size + self.values[part]
        sizes = self.add("vec-of", tuple(shape), self.grid[0])
        return self.add("Ravel", (Ref(self.vector(parts)), Ref(sizes), len(parts)), value)

    def reshaped(self, parts: Sequence[int]) -> int:
        """One index of a reshape from a random shape to another."""
        pick = self.random.randrange
        offset = self.ravel(parts, [1 + pick(6) for _ in parts])
        return self.inside(offset, 2 + pick(5)) if pick(2) else self.over(offset, 2 + pick(5))

    def substituted(self, parts: Sequence[int], inner: int) -> int:
        """``inner`` with axis k replaced by part k: a gather, where the parts stay within the extents."""
        clamped = [np.asarray(self.values[part]) for part in parts]
        assert all(((v >= 0) & (v < n)).all() for v, n in zip(clamped, EXTENTS, strict=True))
        return self.add("Subst", (Ref(self.vector(parts)), Ref(inner)), self.values[inner][tuple(clamped)])

    def within_extents(self) -> list[int]:
        """Four indices whose values are of the axes' ranges: permuted, flipped, reshaped."""
        pick = self.random.randrange
        parts = []
        for k, size in enumerate(EXTENTS):
            way = pick(4)
            if way == 0 or (way == 1 and not self.divisions):
                parts.append(self.plus(self.lit(size - 1), self.times(-1, self.axis(k))))
            elif way == 1:
                parts.append(self.inside(self.expression(1), size))
            elif way == 2:
                parts.append(self.lit(pick(size)))
            else:
                parts.append(self.axis(pick(k + 1)))
        return parts


def normalised(terms: Terms, roots: Sequence[int]) -> tuple[Graph, dict[int, str], dict[str, int]]:
    """The e-graph after ruleset ``index``, the class of each root, and the key of each atom's class."""
    engine = Engine()
    for name in ("schema.egg", "index.egg"):
        engine.include(FOLDER / name)
    marks = [("Within", (Ref(root), number, 0)) for number, root in enumerate(roots)]
    engine.insert([*terms.terms, *marks], [], [])
    steps = 0
    while engine.run("(run index)").changed:  # not `saturate`: rules that do not end must fail, not hang
        steps += 1
        assert steps < 200 and sum(engine.sizes().values()) < 100_000, "the rules do not end"
    tables = engine.tables((*TABLES, "atom-key"))
    graph = read(compact(tables))
    found = {
        roots[int(node.args[1])]: str(node.args[0])
        for nodes in graph.classes.values()
        for node in nodes
        if node.op == "Within"
    }
    keys = {str(atom): int(key) for (atom,), key in tables.rows["atom-key"]}
    return graph, found, keys


class Checker:
    """Evaluates every e-node in normal form of a class; all must agree."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.known: dict[str, Values] = {}

    def value(self, cls: str) -> Values:
        if cls not in self.known:
            nodes = [node for node in self.graph.classes[cls] if node.op in ("Lit", "Plus", "Ax", "FloorDiv")]
            assert nodes, "no normal form"
            found = [self.node(node) for node in nodes]
            for each in found[1:]:
                np.testing.assert_array_equal(each, found[0], err_msg=str(nodes))
            self.known[cls] = found[0]
        return self.known[cls]

    def node(self, node: ENode) -> Values:
        grid = np.indices(EXTENTS, dtype=np.int64)
        match node.op:
            case "Lit":
                return np.full(EXTENTS, int(node.args[0]), np.int64)
            case "Plus":
                assert node.args[0] != 0, "a coefficient is 0"
                return int(node.args[0]) * self.value(str(node.args[1])) + self.value(str(node.args[2]))
            case "Ax":
                assert node.args[1] == EXTENTS[int(node.args[0])] > 1
                return np.asarray(grid[int(node.args[0])])
            case _:
                assert int(node.args[1]) > 1
                return self.value(str(node.args[0])) // int(node.args[1])


def order(graph: Graph, keys: dict[str, int], cls: str) -> list[int]:
    """The keys of the terms of the class's first normal form."""
    found = []
    while True:
        node = next(node for node in graph.classes[cls] if node.op in ("Lit", "Plus"))
        if node.op == "Lit":
            return found
        found.append(keys[str(node.args[1])])
        cls = str(node.args[2])


@pytest.mark.parametrize("seed", range(8))
def test_normal_form_has_the_value_of_the_expression_at_every_point(seed: int) -> None:
    terms = Terms(seed)
    roots = [terms.expression(3) for _ in range(40)]
    roots += [terms.substituted(terms.within_extents(), terms.expression(2)) for _ in range(40)]
    graph, classes, keys = normalised(terms, roots)
    check = Checker(graph)
    assert len(classes) == len(roots)
    for root in roots:
        np.testing.assert_array_equal(check.value(classes[root]), terms.values[root])
        sequence = order(graph, keys, classes[root])
        assert all(left < right for left, right in pairwise(sequence)), "the terms are not sorted"
    assert not any(node.op in ("Mod", "%") for nodes in graph.classes.values() for node in nodes)


@pytest.mark.parametrize("seed", range(8))
def test_equal_affine_maps_are_equal_terms(seed: int) -> None:
    """However they were built: the value at every point decides."""
    terms = Terms(seed, divisions=False)
    roots = [terms.expression(3) for _ in range(100)]
    roots += [terms.substituted(terms.within_extents(), terms.expression(2)) for _ in range(60)]
    _, classes, _ = normalised(terms, roots)
    by_value: dict[bytes, set[str]] = {}
    for root in roots:
        by_value.setdefault(terms.values[root].tobytes(), set()).add(classes[root])
    assert all(len(found) == 1 for found in by_value.values())
    assert len(by_value) < len(roots), "no two expressions were equal: nothing was shown"
    assert len({cls for found in by_value.values() for cls in found}) == len(by_value), (
        "unequal maps became one"
    )


def test_divisions_vanish_where_ranges_allow() -> None:
    """What a reshape there and back leaves is the axis itself."""
    terms = Terms(0)
    first, second = terms.axis(2), terms.axis(3)  # [4, 6]
    offset = terms.ravel([first, second], [4, 6])
    split = [terms.over(offset, 8), terms.inside(offset, 8)]  # [3, 8]
    back = terms.ravel(split, [3, 8])
    roots = [terms.over(back, 6), terms.inside(back, 6), first, second, back, offset]
    _, classes, _ = normalised(terms, roots)
    assert [classes[root] for root in roots[:2]] == [classes[first], classes[second]]
    assert classes[back] == classes[offset]


# ---- through programs ---------------------------------------------------------------------------------------------------


def movement(seed: int) -> dict[str, Any]:
    """A chain of movement over one input, no PAD: each output element is one input element."""
    pick = random.Random(seed).randrange
    shape = [(12,), (4, 6), (2, 3, 4), (5, 1, 6), (8, 9)][pick(5)]
    uops: list[dict[str, Any]] = [
        {
            "id": "x",
            "uop": "INPUT",
            "src": [],
            "arg": {"tensor_id": "x", "dtype": "i32", "shape": list(shape)},
        }
    ]
    for number in range(1 + pick(6)):
        rank = len(shape)
        way = pick(5)
        if way == 0:
            uop, (shape, arg) = "RESHAPE", _reshape(shape, pick)
        elif way == 1 and rank:
            perm = list(range(rank))
            random.Random(pick(100)).shuffle(perm)
            uop, shape, arg = "PERMUTE", tuple(shape[axis] for axis in perm), {"perm": perm}
        elif way == 2 and rank:
            uop, arg = "FLIP", {"axes": sorted({pick(rank) for _ in range(2)})}
        elif way == 3 and rank:
            lo = [pick(size) for size in shape]
            hi = [low + 1 + pick(size - low) for low, size in zip(lo, shape, strict=True)]
            step = [1 + pick(3) for _ in shape]
            uop, arg = "SHRINK", {"lo": lo, "hi": hi, "step": step}
            shape = tuple(-(-(h - low) // s) for low, h, s in zip(lo, hi, step, strict=True))
        else:
            uop, (shape, arg) = "VIEW", _view(shape, pick)
        if "result_shape" in arg:
            arg["result_shape"] = list(shape)
        uops.append({"id": f"n{number}", "uop": uop, "src": [uops[-1]["id"]], "arg": arg})
    return {"uops": uops}


def _reshape(shape: tuple[int, ...], pick: Any) -> tuple[tuple[int, ...], dict[str, Any]]:
    count, sizes = int(np.prod(shape, dtype=int)), []
    while count > 1 and len(sizes) < 3:
        sizes.append(
            [d for d in range(1, count + 1) if count % d == 0][
                pick(sum(count % d == 0 for d in range(1, count + 1)))
            ]
        )
        count //= sizes[-1]
    return (*sizes, count), {"result_shape": ()}


def _view(shape: tuple[int, ...], pick: Any) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Each index of the operand is an affine or floordiv map of two new axes, within its range."""
    new = (2 + pick(5), 2 + pick(5))
    maps = []
    for size in shape:
        a, d, axis = 1 + pick(3), 1 + pick(4), pick(2)
        top = (a * (new[axis] - 1)) // d
        if top >= size:
            maps.append(f"i{axis}//{-(-new[axis] // size)}")
        else:
            maps.append(
                f"({a}*i{axis})//{d}+{pick(size - top)}" if d > 1 else f"{a}*i{axis}+{pick(size - top)}"
            )
    return new, {"result_shape": (), "index_map": maps}


def evaluated(index: Affine, axes: dict[str, Values], shape: tuple[int, ...]) -> Values:
    value = np.full(shape, index.const, np.int64)
    for coefficient, atom in index.terms:
        inner = evaluated(atom.num, axes, shape) // atom.den if isinstance(atom, FloorDiv) else axes[atom]
        value = value + coefficient * inner
    return value


BASE = load_rules()


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.spec("004-072", "004-079")
def test_movement_composes_to_one_map(seed: int) -> None:
    program = tinyc.load(movement(seed))
    (kind,) = (program.types[port.node] for port in program.inputs)
    x = np.arange(np.prod(kind.shape, dtype=int), dtype=np.int32).reshape(kind.shape)  # type: ignore[arg-type]
    (want,) = evaluate(program, {"x": x})
    saturation = saturate(
        program, BASE, ["layout"]
    )  # a copy of the input in another layout is read by other maps
    assert saturation.graph is not None and saturation.complete
    view = View(saturation.graph, input_dtypes(program))
    (way,) = view.buffers[saturation.graph.outputs[0]].ways
    reads = [item for item in view.items[way.root] if item.head == "Read"]
    assert reads, "the output is no Read of the input"
    grid = np.indices(want.shape, dtype=np.int64)
    outer = [number for number, size in enumerate(want.shape) if size > 1]
    for item in reads:
        maps = item.payload[1]
        assert isinstance(maps, tuple)
        names = {name for index in maps for name in index.axes()}
        axes = {name: grid[outer[axis_id(name)]] for name in names}
        assert all(axis_extent(name) == want.shape[outer[axis_id(name)]] for name in names)
        where = tuple(evaluated(index, axes, want.shape) for index in maps)
        np.testing.assert_array_equal(x[where], want)


@pytest.mark.parametrize(
    ("terms", "literal", "divisor", "expected"),
    [
        (((2, 0), (1, 3)), 0, 4, None),  # i3 has 6 points: no remainder of 2
        (((2, 1), (1, 0)), 0, 4, {1}),  # (2*i1 + i0) // 4 == i1 // 2
        (((8, 3), (4, 1), (1, 2)), 0, 8, {1, 3}),  # (8*i3 + 4*i1 + i2) // 8 == i3 + (4*i1 + i2) // 8 == i3 + i1 // 2
        (((6, 3), (3, 1), (1, 0)), 1, 12, {1, 3}),  # (6*i3 + 3*i1 + i0 + 1) // 12 == (2*i3 + i1) // 4
        (((6, 3), (3, 1), (1, 0)), 2, 12, None),  # i0 + 2 reaches 3
    ],
)  # fmt: skip
def test_a_remainder_too_small_to_count_leaves_the_division(
    terms: tuple[tuple[int, int], ...], literal: int, divisor: int, expected: set[int] | None
) -> None:
    """So that the index depends on what it depends on: a contraction's operand may lack a summed axis."""
    made = Terms(0)
    total = made.lit(literal)
    for factor, number in terms:
        total = made.plus(total, made.times(factor, made.axis(number)))
    root = made.over(total, divisor)
    graph, classes, _ = normalised(made, [root])
    np.testing.assert_array_equal(Checker(graph).value(classes[root]), made.values[root])
    index = View(graph, ()).index(classes[root])
    assert index is not None
    everything = {number for _, number in terms}
    assert {axis_id(name) for name in index.axes()} == (everything if expected is None else expected)
