"""The programs on which rules are tried: a rule that none of them needs is a rule without an example.

Small ones come first, a family of rules each; then those of ``tinyc bench``; then ``docs/examples``, where tinyc runs from
its repository. A new rule of tinyc's own comes with a line here, if nothing else needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tinyc
from tinyc.bench.programs import MODELS
from tinyc.ir.tiny import Node, Port, Program
from tinyc.ir.verify import bind

TARGETS = ("cpu", "sm80", "sm90")
FOLDER = Path(tinyc.__file__).parent.parent / "docs" / "examples"
SIZES = {"M": 40, "N": 24, "K": 36, "H": 9, "W": 10, "B": 2, "D": 8, "T": 12}
"""Of the symbols in docs/examples; of another one, 8."""

Shape = tuple[int, ...]
Inputs = Mapping[str, Shape | tuple[str, Shape]]
"""Shapes, fp32 where no dtype is said."""


@dataclass(frozen=True)
class Example:
    """``targets``: for which of them it is saturated. ``small``: whether it is here for rules alone."""

    name: str
    program: Program
    targets: tuple[str, ...] = ("cpu",)
    small: bool = False


def examples(small: bool = True) -> Iterator[Example]:
    """All of them, the smallest first; ``small``: also those that are here for rules alone. ``docs/examples`` are left out
    where they are not installed."""
    if small:
        for name, (function, inputs, targets) in SMALL.items():
            yield Example(name, _traced(function, inputs), targets, small=True)
        yield Example("views", tinyc.load(VIEWS), small=True)
        yield Example("masked", tinyc.load(MASKED), TARGETS, small=True)
    for name, model in MODELS.items():
        yield Example(f"bench {name}", _traced(model.naive, model.shapes), TARGETS)
    for path in sorted(FOLDER.glob("*.json")):
        yield replace(of_file(path), targets=TARGETS)


def of_file(path: Path) -> Example:
    """The program of a file. Raises what ``tinyc.load`` does."""
    program = tinyc.load(path)
    return Example(path.name, bind(program, {name: SIZES.get(name, 8) for name in program.symbols}))


def together(programs: Iterable[Program]) -> Program:
    """One program that computes them all: what matches in one of them matches in it, and it takes one saturation."""
    nodes: list[Node] = []
    ports: tuple[list[Port], list[Port]] = ([], [])
    types: dict[str, Any] = {}
    for number, program in enumerate(programs):
        names = {node.id: f"p{number}.{node.id}" for node in program.nodes}
        for node in program.nodes:
            src = tuple(names[each] if isinstance(each, str) else each for each in node.src)
            arg = dict(node.arg)
            if node.uop == "INPUT":
                arg["tensor_id"] = names[node.id]
            nodes.append(replace(node, id=names[node.id], src=src, arg=arg))
            types[names[node.id]] = program.types[node.id]
        for found, wanted in zip(ports, (program.inputs, program.outputs), strict=True):
            found += [replace(port, name=f"p{number}.{port.name}", node=names[port.node]) for port in wanted]
    return Program(tuple(nodes), tuple(ports[0]), tuple(ports[1]), types)


def _traced(function: Callable[..., Any], inputs: Inputs) -> Program:
    specs = []
    for kind in inputs.values():
        dtype, shape = kind if kind and isinstance(kind[0], str) else ("fp32", kind)
        specs.append(tinyc.spec(dtype, shape))
    return tinyc.trace(function, *specs)


def _largest(s: Any, axis: Any = -1) -> Any:
    return s.max(axis, keepdims=True)


def _twice(x: Any) -> Any:
    return -x


def _identities(x: Any) -> Any:
    from tinyc import functions as tc

    negative = _twice(x)
    values = [
        x * 1,
        1 * x,
        x - 0,
        _twice(negative),
        tc.maximum(x, x),
        tc.minimum(x, x),
        tc.where(x < 1, x, x),
    ]
    if x.dtype.value == "i32":
        return (*values, x + 0, 0 + x)
    return (*values, x / 1, x + -0.0, -0.0 + x, x.relu().relu())


def _strength(x: Any, y: Any) -> Any:
    from tinyc import functions as tc

    minus = -y
    return x - minus, x + minus, minus + x, (-x) * minus, x / 8.0, 1.0 / x, tc.maximum(x, 0.0)


def _divided(x: Any, y: Any, h: Any) -> Any:
    return (
        x / y,
        x / y.sqrt(),
        x / (y + 1.0),
        x / h.cast("fp32"),
        1.0 / y.sqrt(),
        x / x.sum(1, keepdims=True),
        x / 3.0,
    )


def _sums(s: Any, x: Any, y: Any) -> Any:
    products = (s * x, x * s, x / s, (x * s) * y, y * (x * s), x * y + y * s, x - y)
    return tuple(each.sum(1) for each in products)


def _extremes(x: Any, h: Any) -> Any:
    both = (x.relu(), -x, h.cast("fp32"))
    return tuple(each.max(1) for each in both) + tuple(each.min(1) for each in both)


def _attention(q: Any, k: Any, v: Any, s: Any, w: Any) -> Any:
    """fp16, the softmax rounded; as it is usually spelled, with the values on the left, and with scores that are turned. Beside
    it weights that take as many rounds to be found: the engine counts no match where a round changes nothing."""
    weights = [(s - _largest(s)).exp() * w]
    for factor in (2.0, 3.0, 5.0, 7.0):
        weights.append(weights[-1] * (w * factor))
    q, k, v = (each.cast("fp32") for each in (q, k, v))
    straight, turned = q @ k.permute(1, 0), (k @ q.permute(1, 0)).permute(1, 0)
    first, second = (tinyc.functions.softmax(each).cast("fp16").cast("fp32") for each in (straight, turned))
    left = (v.permute(1, 0) @ first.permute(1, 0)).permute(1, 0)
    return first @ v, left, second @ v, *(each.sum(-1) for each in weights)


def _streams(s: Any, w: Any, u: Any) -> Any:
    away = s - _largest(s)
    return (
        (away.exp() * w).sum(-1),
        (w * away.exp2()).sum(-1),
        (0.25 * away).exp2().sum(-1),
        (s * 0.3 - _largest(s) * 0.3).exp2().sum(-1),
        (0.3 * s - 0.3 * _largest(s)).exp2().sum(-1),
        ((away * 0.3).exp() * w).sum(-1),
        (away.exp() * w * (u * 2.0)).sum(-1),
        ((u * 2.0) * (away.exp() * w)).sum(-1),
    )


def _scores(s: Any, h: Any) -> Any:
    """Scores that are computed: by one function, from a narrower dtype."""
    return tuple((x - _largest(x)).exp().sum(-1) for x in (s.relu(), h.cast("fp32")))


def _rounded(s: Any, v: Any) -> Any:
    from tinyc import functions as tc

    p = tc.softmax(s).cast("fp16").cast("fp32")
    return p @ v, (v.permute(1, 0) @ p.permute(1, 0))


def _guarded(x: Any) -> Any:
    padded = x.pad([(4, 4), (0, 0)])
    return padded[4:12], padded[:3], padded[13:], x.reshape(-1)


def _compared(x: Any, y: Any) -> Any:
    from tinyc import functions as tc

    return tc.where(x < y, 0.0, y), x.sum().reshape(1) + 1.0


def _ladder(x: Any) -> Any:
    """Reshapes between sizes that do not divide each other: the index grows a division at a time."""
    for shape in ((10, 9), (6, 15), (9, 10), (15, 6), (5, 18)):
        x = x.reshape(*shape).permute(1, 0).reshape(90)
    return x


def _conv(x: Any, w: Any) -> Any:
    from tinyc import functions as tc

    return tc.conv(x, w, pad=1)


def _uop(id: str, uop: str, src: list[Any], **arg: Any) -> dict[str, Any]:
    return {"id": id, "uop": uop, "src": src, "arg": arg}


def _view(id: str, of: str, shape: list[int], *indices: str) -> dict[str, Any]:
    return _uop(id, "VIEW", [of], result_shape=shape, index_map=list(indices))


VIEWS: dict[str, Any] = {
    "uops": [
        _uop("x", "INPUT", [], tensor_id="x", dtype="fp32", shape=[60]),
        _view("halves", "x", [20], "i0//2"),
        _view("sixths", "halves", [12], "i0//3"),
        _view("groups", "x", [8, 3, 4], "(4*i0 + 8*i1 + i2)//8"),
        _view("wider", "x", [8, 6], "(4*i0 + i1)//8 + i0"),
        _view("shifted", "sixths", [5, 4], "(2*i0 + i1)//2 + (i1 + 1)//2"),
        _view("again", "shifted", [5, 6], "(i0 + i1)//3", "(i0 + 2*i1)//7"),
        _view("once more", "again", [5, 7], "(3*i0 + i1)//7", "(i0 + 2*i1 + 1)//5"),
        _view("and again", "once more", [5, 5], "(i0 + i1)//2", "(2*i0 + 3*i1)//4"),
        _view("at last", "and again", [4, 4], "(i0 + i1 + 1)//2", "(2*i0 + 3*i1)//5"),
        _uop("sixth", "SIN", ["sixths"]),
        _uop("inside", "VALID", [], result_shape=[60], lo=[3], hi=[50]),
        _uop("same", "CAST", ["x"], to="fp32"),
        _uop("sine", "SIN", ["same"]),
        _uop("kept", "WHERE", ["inside", "sine", "x"]),
    ]
}

MASKED: dict[str, Any] = {
    "uops": [
        _uop("a", "INPUT", [], tensor_id="a", dtype="fp32", shape=[64, 1]),
        _uop("b", "INPUT", [], tensor_id="b", dtype="fp32", shape=[96, 80]),
        _uop("first", "VALID", [], result_shape=[96], lo=[0], hi=[40]),
        _uop("firsts", "RESHAPE", ["first"], result_shape=[1, 96, 1]),
        _uop("early", "EXPAND", ["firsts"], result_shape=[64, 96, 80]),
        _uop("wide", "RESHAPE", ["a"], result_shape=[64, 1, 1]),
        _uop("wider", "EXPAND", ["wide"], result_shape=[64, 96, 80]),
        _uop("rows", "RESHAPE", ["b"], result_shape=[1, 96, 80]),
        _uop("all rows", "EXPAND", ["rows"], result_shape=[64, 96, 80]),
        _uop("masked", "WHERE", ["early", "wider", 0.0]),
        _uop("product", "MUL", ["masked", "all rows"]),
        _uop("y", "REDUCE", ["product"], op="SUM", axes=[1], dtype="fp32"),
    ]
}
"""A sum over a part of an axis, on which one operand depends by its guard alone."""


#: name -> function, inputs, targets
SMALL: Mapping[str, tuple[Callable[..., Any], Inputs, tuple[str, ...]]] = {
    **{f"identities {d}": (_identities, {"x": (d, (4, 6))}, ("cpu",)) for d in ("fp32", "fp16", "bf16", "i32")},
    "casts": (lambda x: (x.cast("fp32").cast("fp16"), x.cast("fp16"), x.expand_dims(1).sum(1)), {"x": ("fp16", (4, 6))}, ("cpu",)),
    "strength": (_strength, {"x": (4, 6), "y": (4, 6)}, ("cpu",)),
    "divisions": (_divided, {"x": (8, 16), "y": (8, 1), "h": ("fp16", (8, 1))}, ("cpu",)),
    "sums": (_sums, {"s": (8, 1), "x": (8, 16), "y": (8, 16)}, ("cpu",)),
    "extremes": (_extremes, {"x": (8, 16), "h": ("fp16", (8, 16))}, ("cpu",)),
    "streams": (_streams, {"s": (8, 40), "w": (8, 40), "u": (8, 40)}, ("cpu",)),
    "scores": (_scores, {"s": (8, 40), "h": ("fp16", (8, 40))}, ("cpu",)),
    "rounded": (_rounded, {"s": (8, 40), "v": (40, 16)}, ("cpu",)),
    "guards": (_guarded, {"x": (8, 6)}, ("cpu",)),
    "compared": (_compared, {"x": (4, 6), "y": (4, 6)}, ("cpu",)),
    "ladder": (_ladder, {"x": (90,)}, ("cpu",)),
    "sum of sums": (lambda x: x.sum(2).sum(1), {"x": (4, 6, 8)}, ("cpu",)),
    "flipped": (lambda x: (x.flip(0).permute(1, 0) + 1.0).reshape(24).relu(), {"x": (4, 6)}, ("cpu",)),
    "filters": (_conv, {"x": (1, 8, 6, 6), "w": (256, 8, 3, 3)}, ("cpu",)),
    "fp16 filters": (_conv, {"x": ("fp16", (1, 8, 6, 6)), "w": ("fp16", (256, 8, 3, 3))}, ("cpu",)),
    "very deep product": (lambda a, b: a @ b, {"a": (16, 100_000), "b": (100_000, 16)}, ("cpu",)),
    "long attention": (lambda q, k, v: tinyc.functions.softmax(q @ k) @ v, {"q": (4, 8), "k": (8, 300_000), "v": (300_000, 8)}, ("cpu",)),
    "attention": (_attention, {"q": ("fp16", (64, 32)), "k": ("fp16", (80, 32)), "v": ("fp16", (80, 48)), "s": (64, 80), "w": (64, 80)}, ("sm80",)),
    "turned": (lambda x: x.permute(1, 0) + 1.0, {"x": (64, 96)}, ("cpu",)),
    "batched": (lambda a, b: (a @ b).permute(1, 2, 0), {"a": (3, 64, 96), "b": (3, 96, 80)}, TARGETS),
    "turned product": (lambda a, b: (a @ b).permute(1, 0), {"a": (64, 96), "b": (96, 80)}, TARGETS),
    "deep product": (lambda a, b: a @ b, {"a": (64, 16384), "b": (16384, 64)}, TARGETS),
    "large product": (lambda a, b: a @ b, {"a": (2048, 256), "b": (256, 640)}, TARGETS),
    "tall product": (lambda a, b: a @ b, {"a": (128, 4096), "b": (4096, 4096)}, TARGETS),
    "long sum": (lambda x: x.sum(), {"x": (300_007,)}, ("sm80",)),
    "long scores": (lambda s: tinyc.functions.softmax(s), {"s": (4, 200_000)}, ("cpu",)),
}  # fmt: skip
