"""Schedule Plans as text that people write: one primitive a line (document 004 §8, draft §12.6).

.. code-block:: text

    schedule contraction for sm80        # or: loops
    split m 128 64                       # tiles of a block, of a warp (sm90: of a warpgroup)
    split n 64 64
    split k 64
    reorder m.o n.o k.o m.i n.i k.i      # says what the kernels' fixed skeleton does; another order is refused
    bind m.o block.y
    fuse b n.o block.x                   # several axis parts, flattened, on one place
    pipeline 2 prefetch 2 overlap cp_async_group
    cache_read A smem k.i
    vectorize n.i.i 8
    unroll k.i                           # says what the skeleton does, as reorder
    predicate_tail m.i.i n.i.i k.i.i
    epilogue bias relu
    algo_choice matmul implicit_gemm
    layout A swizzle
    layout C row
    local_edge sum_k relu reg
    tensorize acc lhs a32 rhs b32 m m n n k k

``split inner 64`` cuts the innermost of loops, ``split inner 8 32`` has 32 threads share each sum. Names that are no words stand in quotes, as in JSON. What a
:class:`.schedule.Plan` holds is printed and read back without loss; reorder and unroll hold nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from .diagnostics import TinycError, show
from .schedule import BARRIER_MODELS, Plan
from .schedule_json import plan_from_json
from .schedule_names import nearest

#: the loops of the skeleton, outermost first
SKELETON = (
    "b",
    "m.o",
    "n.o",
    "k.o",
    "m.i.o",
    "n.i.o",
    "k.i.o",
    "m.i",
    "n.i",
    "k.i",
    "m.i.i",
    "n.i.i",
    "k.i.i",
)
#: what the skeleton unrolls: the steps within a tile
UNROLLED = ("k.i", "k.i.o", "k.i.i", "m.i.i", "n.i.i")
_WORD = re.compile(r"[\w.]+")
_TOKEN = re.compile(r'\s*(?:(?P<comment>#.*)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<word>[\w.]+))')


@dataclass(frozen=True)
class Token:
    """A word or a string, and where it stands: line and column count from 1."""

    text: str
    line: int
    column: int


# ---- printing -------------------------------------------------------------------------------------------------------


def plan_to_text(plan: Plan) -> str:
    """``plan`` in the form of this page, in its order."""
    return "".join(f"{' '.join(words)}\n" for words in _statements(plan))


def _statements(plan: Plan) -> Iterator[list[str]]:
    yield ["schedule", plan.algo, *(["for", plan.arch] if plan.arch else [])]
    if plan.tile is not None and plan.algo == "loops":
        yield ["split", "inner", str(plan.tile[1]), *([str(plan.tile[2])] if plan.tile[2] > 1 else [])]
    elif plan.tile is not None:
        warp = plan.warp_tile or ()
        for number, (axis, size) in enumerate(zip("mnk", plan.tile, strict=True)):
            yield ["split", axis, str(size), *(str(part) for part in warp[number : number + 1])]
    for part, where in plan.bind:
        yield ["bind", part, where]
    overlap = plan.async_
    if plan.stages is not None or overlap is not None or plan.barrier_model is not None:
        words = [str(plan.stages)] if plan.stages is not None else []
        if overlap is not None:
            words += ["prefetch", str(overlap.prefetch_depth)]
            words += ["overlap"] if overlap.epilogue_overlap else [] if overlap.enable else ["sync"]
        yield ["pipeline", *words, *([plan.barrier_model] if plan.barrier_model else [])]
    for entry in plan.cache:
        single = [] if entry.pingpong else ["single"]
        yield ["cache_read", _name(entry.tensor), entry.where, entry.at, *single]
    if plan.vectorize is not None:
        yield ["vectorize", plan.vectorize.axis, str(plan.vectorize.width)]
    if plan.predicate_tail:
        yield ["predicate_tail", *plan.predicate_tail]
    if plan.epilogue:
        yield ["epilogue", *map(_name, plan.epilogue)]
    for kind, name in plan.algo_choice:
        yield ["algo_choice", kind, name]
    if plan.layout_hints is not None:
        for letter, swizzled in (("A", plan.layout_hints.a_swizzle), ("B", plan.layout_hints.b_swizzle)):
            yield from [["layout", letter, "swizzle"]] if swizzled else []
        yield ["layout", "C", plan.layout_hints.c_stride]
    for edge in plan.local_edges:
        depth = [] if edge.depth is None else [str(edge.depth)]
        yield ["local_edge", _name(edge.source), _name(edge.target), edge.buffer, *depth]
    if plan.contraction is not None:
        roles = plan.contraction
        words = [_name(roles.reduce), "lhs", _name(roles.lhs), "rhs", _name(roles.rhs)]
        for role, names in roles.groups().items():
            words += [role, *map(_name, names)] if names or role != "b" else []
        yield ["tensorize", *words]


def _name(name: str) -> str:
    return name if _WORD.fullmatch(name) and name not in _MARKS else json.dumps(name)


_MARKS = ("lhs", "rhs", "b", "m", "n", "k")
"""Words that begin a part of ``tensorize``: a name that is one of them stands in quotes."""


# ---- reading --------------------------------------------------------------------------------------------------------


def plan_from_text(text: str) -> Plan:
    """The Plan that a text in the form of this page describes.

    Raises:
        TinycError: PlanInvalid with ``line 3, column 7: …``, and nothing else.
    """
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), 1):
        tokens = _tokens(line, number)
        if tokens:
            reader.statement(tokens)
    return reader.plan()


def _tokens(line: str, number: int) -> list[Token]:
    tokens: list[Token] = []
    at = 0
    while line[at:].strip():
        found = _TOKEN.match(line, at)
        if found is None:
            column = len(line) - len(line[at:].lstrip()) + 1
            _refuse(
                Token("", number, column),
                f"{show(line[column - 1])} begins no word",
                "quote names as JSON does",
            )
        at = found.end()
        if found["string"] is not None:
            start = Token(found["string"], number, found.start("string") + 1)
            try:
                tokens.append(Token("\0" + json.loads(start.text), number, start.column))
            except json.JSONDecodeError as error:
                _refuse(start, f"{show(start.text)} is no string: {error.msg}", "write it as JSON does")
        elif found["word"] is not None:
            tokens.append(Token(found["word"], number, found.start("word") + 1))
    return tokens


def _refuse(token: Token, why: str, suggestion: str) -> NoReturn:
    where = f"line {token.line}, column {token.column}"
    at = {"layer": "plan", "line": token.line, "value": where}
    raise TinycError("PlanInvalid", f"{where}: {why}", suggestion, at)


def _plain(token: Token) -> str:
    return token.text.removeprefix("\0")


@dataclass
class _Reader:
    """Collects the JSON form, and where each place of it was said."""

    data: dict[str, Any] = field(default_factory=dict)
    said: dict[str, Token] = field(default_factory=dict)
    tile: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    first: Token = Token("", 1, 1)

    def statement(self, tokens: list[Token]) -> None:
        head, rest = tokens[0], tokens[1:]
        read: Callable[[Token, list[Token]], None] | None = getattr(self, f"_{head.text}", None)
        if head.text not in PRIMITIVES or read is None:
            meant = nearest(head.text, list(PRIMITIVES))
            hint = f"{meant!r} may be meant" if meant else f"the primitives are {', '.join(PRIMITIVES)}"
            _refuse(head, f"there is no primitive {show(_plain(head))}", hint)
        read(head, rest)

    def plan(self) -> Plan:
        if self.tile:
            self._tile()
        try:
            return plan_from_json(self.data, "")
        except TinycError as error:
            path = error.at.get("value", "")
            token = self.first
            for place in sorted(self.said, key=len):
                token = self.said[place] if path.startswith(place) else token
            _refuse(token, error.why.removeprefix(f"{path}: "), error.suggestion)

    # ---- the pieces ----

    def put(self, key: str, value: Any, token: Token) -> None:
        if f".{key}" in self.said:
            _refuse(token, f"{key} is said in line {self.said[f'.{key}'].line} already", "say it once")
        self.said[f".{key}"] = token
        self.data[key] = value

    def add(self, key: str, value: Any, token: Token) -> None:
        entries = self.data.setdefault(key, [])
        self.said[f".{key}[{len(entries)}]"] = token
        entries.append(value)

    def pair(self, key: str, name: Token, value: Token) -> None:
        entries = self.data.setdefault(key, {})
        if _plain(name) in entries:
            _refuse(name, f"{show(_plain(name))} is there already", "say it once")
        place = f".{key}[{show(_plain(name))}]" if key == "bind" else f".{key}.{_plain(name)}"
        self.said[place] = value
        entries[_plain(name)] = _plain(value)

    def several(
        self, head: Token, rest: list[Token], form: str, least: int, most: int = 1 << 30
    ) -> list[Any]:
        """The texts of ``rest``, numbers as such."""
        if not least <= len(rest) <= most:
            _refuse(head, f"{len(rest)} words behind {head.text}", f"write {form}")
        return [_value(token) for token in rest]

    # ---- primitives ----

    def _schedule(self, head: Token, rest: list[Token]) -> None:
        words = self.several(head, rest, "schedule contraction for sm80", 1, 3)
        self.put("algo", words[0], rest[0])
        if len(rest) > 1:
            if len(rest) != 3 or words[1] != "for":
                _refuse(rest[1], "only `for` and a target may follow", "write schedule contraction for sm80")
            self.put("arch", words[2], rest[2])

    def _split(self, head: Token, rest: list[Token]) -> None:
        words = self.several(head, rest, "split m 128 64", 2, 3)
        axis = words[0]
        if axis not in ("m", "n", "k", "inner"):
            _refuse(rest[0], f"{show(axis)} is not cut into tiles", "split m, n and k, or inner for loops")
        if axis in self.tile:
            _refuse(rest[0], f"{axis} is split already", "split it once")
        if len(words) == 3 and axis == "k":
            _refuse(rest[2], f"warps do not share {axis}", f"write split {axis} {rest[1].text}")
        self.tile[axis] = (rest, *words[1:])

    def _tile(self) -> None:
        token = next(iter(self.tile.values()))[0][0]
        if "inner" in self.tile:
            if len(self.tile) > 1:
                _refuse(token, "loops have one axis that is cut", "split inner, or m, n and k")
            if self.data.setdefault("algo", "loops") != "loops":
                _refuse(token, "a contraction has m, n and k", "split these, or schedule loops")
            rest, points, *threads = self.tile["inner"]
            self.put("tile", [1, points, *(threads or [1])], rest[1])
            return
        missing = [axis for axis in "mnk" if axis not in self.tile]
        if missing:
            _refuse(token, f"{', '.join(missing)} is not split", "split m, n and k")
        self.put("tile", [self.tile[axis][1] for axis in "mnk"], token)
        for number, axis in enumerate("mnk"):
            self.said[f".tile[{number}]"] = self.tile[axis][0][1]
        warp = [self.tile[axis][2:] for axis in "mn"]
        if bool(warp[0]) != bool(warp[1]):
            _refuse(token, "a warp has a part of m and one of n", "give both a second size, or none")
        if warp[0]:
            self.put("warp_tile", f"{warp[0][0]}x{warp[1][0]}", self.tile["m"][0][2])

    def _reorder(self, head: Token, rest: list[Token]) -> None:
        self.several(head, rest, "reorder m.o n.o k.o", 2)
        last = -1
        for token in rest:
            if token.text not in SKELETON or SKELETON.index(token.text) <= last:
                order = " ".join(SKELETON[:4])
                _refuse(
                    token, f"the kernels do not walk {show(_plain(token))} here", f"their order is {order} …"
                )
            last = SKELETON.index(token.text)

    def _unroll(self, head: Token, rest: list[Token]) -> None:
        self.several(head, rest, "unroll k.i", 1, 1)
        if rest[0].text not in UNROLLED:
            _refuse(
                rest[0],
                f"the kernels do not unroll {show(_plain(rest[0]))}",
                f"they unroll {', '.join(UNROLLED)}",
            )

    def _bind(self, head: Token, rest: list[Token]) -> None:
        self.several(head, rest, "bind m.o block.y", 2, 2)
        self.pair("bind", rest[0], rest[1])

    def _fuse(self, head: Token, rest: list[Token]) -> None:
        self.several(head, rest, "fuse b n.o block.x", 3)
        for token in rest[:-1]:
            self.pair("bind", token, rest[-1])

    def _pipeline(self, head: Token, rest: list[Token]) -> None:
        self.several(head, rest, "pipeline 2 prefetch 2 overlap cp_async_group", 1)
        words = list(rest)
        if isinstance(_value(words[0]), int):
            token = words.pop(0)
            self.put("stages", _value(token), token)
        overlap: dict[str, Any] = {}
        while words:
            token = words.pop(0)
            if token.text == "prefetch" and words and not overlap:
                overlap = {"enable": True, "prefetch_depth": _value(words[0])}
                self.put("async", overlap, words.pop(0))
            elif token.text in ("overlap", "sync") and overlap:
                overlap |= {"epilogue_overlap": True} if token.text == "overlap" else {"enable": False}
            elif token.text in BARRIER_MODELS.values():
                self.put("barrier_model", token.text, token)
            else:
                form = "pipeline 2 prefetch 2 overlap cp_async_group"
                _refuse(token, f"{show(_plain(token))} is no part of a pipeline here", f"write {form}")

    def _cache_read(self, head: Token, rest: list[Token]) -> None:
        words = self.several(head, rest, "cache_read A smem k.i", 3, 4)
        if len(words) == 4 and words[3] != "single":
            _refuse(rest[3], f"{show(words[3])} is not single", "write single, or nothing")
        entry = {"tensor": _plain(rest[0]), "where": words[1], "at": words[2], "pingpong": len(words) == 3}
        self.add("cache", entry, rest[0])

    def _vectorize(self, head: Token, rest: list[Token]) -> None:
        words = self.several(head, rest, "vectorize n.i.i 8", 2, 2)
        self.put("vectorize", {"axis": words[0], "width": words[1]}, rest[0])
        self.said[".vectorize.width"] = rest[1]

    def _predicate_tail(self, head: Token, rest: list[Token]) -> None:
        self.several(head, rest, "predicate_tail m.i.i", 1)
        for token in rest:
            self.add("predicate_tail", _plain(token), token)

    def _epilogue(self, head: Token, rest: list[Token]) -> None:
        self.several(head, rest, "epilogue bias relu", 1)
        for token in rest:
            self.add("epilogue", _plain(token), token)

    def _algo_choice(self, head: Token, rest: list[Token]) -> None:
        self.several(head, rest, "algo_choice matmul implicit_gemm", 2, 2)
        self.pair("algo_choice", rest[0], rest[1])

    def _layout(self, head: Token, rest: list[Token]) -> None:
        words = self.several(head, rest, "layout A swizzle, or layout C row", 2, 2)
        hints = self.data.setdefault("layout_hints", {})
        if words[0] == "C":
            self.said[".layout_hints.C_stride"] = rest[1]
            hints["C_stride"] = words[1]
        elif words[0] in ("A", "B") and words[1] == "swizzle":
            hints[f"{words[0]}_swizzle"] = True
        else:
            _refuse(
                rest[0],
                f"there is no layout {show(words[0])} {show(words[1])}",
                "write layout A swizzle, or layout C row",
            )

    def _local_edge(self, head: Token, rest: list[Token]) -> None:
        words = self.several(head, rest, "local_edge sum_k relu reg", 3, 4)
        edge = {"from": _plain(rest[0]), "to": _plain(rest[1]), "buffer": words[2]}
        self.add("local_edges", edge | ({"depth": words[3]} if len(words) == 4 else {}), rest[2])

    def _tensorize(self, head: Token, rest: list[Token]) -> None:
        form = "tensorize acc lhs a32 rhs b32 m i0 n i1 k r0"
        self.several(head, rest, form, 8)
        roles: dict[str, Any] = {"reduce": _plain(rest[0])}
        lists = {"b": "batch", "m": "m", "n": "n", "k": "k"}
        current: list[str] | None = None
        tokens = iter(rest[1:])
        for token in tokens:
            if token.text in ("lhs", "rhs"):
                roles[token.text] = _plain(next(tokens, token))
                current = None
            elif token.text in lists:
                current = roles.setdefault(lists[token.text], [])
            elif current is not None:
                current.append(_plain(token))
            else:
                _refuse(token, f"{show(_plain(token))} has no role", f"write {form}")
        self.put("contraction", roles, rest[0])


# fmt: off
PRIMITIVES = (
    "schedule", "split", "reorder", "fuse", "bind", "pipeline", "cache_read", "vectorize",
    "unroll", "predicate_tail", "epilogue", "algo_choice", "layout", "local_edge", "tensorize",
)
# fmt: on


def _value(token: Token) -> Any:
    """A number where the word is one, else the text."""
    text = token.text
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else _plain(token)
