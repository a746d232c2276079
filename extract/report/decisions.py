"""What else could have been chosen, and the term of the cost by which it lost.

Each choice of consequence is forbidden in turn and the program is extracted again, greedily: a buffer that is not
stored, a value that is not fused, an algorithm that is not taken. Plans are ranked already. Equal layers decide alike,
so they are forbidden together.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Generic, TypeVar

from ..choice import Choice, Kernel, Key
from ..cost.model import terms_of
from ..plans.candidate import Candidate
from ..plans.rank import RankedPlan
from ..problem import Problem
from ..relaxation import TIE, Pass
from ..view import Buffer, Item

EFFORT = 30_000
"""Options that the trials may look at together, each in two passes: a second or two. A count and not a time, so that the same program always
gives the same decisions."""

MAX_BOUNDARIES = 20
"""Kernel boundaries that are tried the other way."""

MAX_ALGORITHMS = 10
"""Kinds of reductions whose algorithm is tried another way."""

MAX_PLANS = 20
"""Kinds of kernels whose Plans are compared."""

ALGORITHMS = {
    "Contract": "a tiled product",
    "Reduce": "plain loops",
    "Stream": "one streaming pass",
}
"""What computes a reduction, by the head of its item. Heads that are not named here are called what they are."""


@dataclass(frozen=True)
class Decision:
    """One choice, and what lost against it.

    Attributes:
        kind: "boundary" (stored or fused), "algorithm" or "plan".
        subject: what it is about: a node of the document with its operation, for a plan a Region.
        count: how many equal ones were decided alike, this one included.
        chosen, runner_up: in words.
        change_s: the estimate with the runner-up less that of the program as chosen, on the scale of the search; of a
            plan the kernel's. Negative: it would be cheaper, but the search did not find it.
        terms_s: the change of each term of the cost that changes; they add up to ``change_s``.
        lost_by: the term that grew most, empty where none did.
    """

    kind: str
    subject: str
    count: int
    chosen: str
    runner_up: str
    change_s: float
    terms_s: Mapping[str, float]
    lost_by: str


T = TypeVar("T")

Deferred = Callable[[], tuple[Decision, ...]]


def no_decisions() -> tuple[Decision, ...]:
    return ()


class Later(Generic[T]):
    """What ``make`` gives, made at the first call and kept; what it took to make is let go. Threads may share it."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._made: list[T] = []
        self._lock = threading.Lock()

    def __call__(self) -> T:
        with self._lock:
            if self._make is not None:
                self._made, self._make = [self._make()], None
            return self._made[0]


@dataclass(frozen=True)
class Known:
    """A chosen program with the names that people know. ``nodes``: what to call the document's nodes, by number. ``regions``:
    names of the Regions, in the order of the choice's kernels. ``allowed``: whether another choice makes Regions that the
    target takes."""

    problem: Problem
    choice: Choice
    nodes: tuple[str, ...]
    regions: tuple[str, ...]
    allowed: Callable[[Choice], bool]


def decide(known: Known) -> tuple[Decision, ...]:
    """Every boundary and algorithm of consequence, the dearest runner-up first. Bounded in number and in effort."""
    trials = max(4, EFFORT // known.problem.size)
    tried = [*_boundaries(known)[:MAX_BOUNDARIES], *_algorithms(known)[:MAX_ALGORITHMS]]
    found = (decision for trial in tried[:trials] if (decision := trial()) is not None)
    return in_order(found)


def in_order(decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """The dearest runner-up first."""
    return tuple(sorted(decisions, key=lambda each: (-each.change_s, each.kind, each.subject, each.chosen)))


def compared(
    kind: str,
    subject: str,
    words: tuple[str, str],
    chosen: Mapping[str, float],
    other: Mapping[str, float],
    count: int = 1,
) -> Decision:
    """The decision for ``words`` (chosen, runner-up) from the terms of the two, in seconds."""
    names = dict.fromkeys((*chosen, *other))
    changes = {name: other.get(name, 0.0) - chosen.get(name, 0.0) for name in names}
    scale = max(sum(chosen.values()), sum(other.values()))
    changes = {name: change for name, change in changes.items() if abs(change) > 1e-9 * scale}
    most = max(sorted(changes), key=lambda name: changes[name], default="")
    lost_by = most if most and changes[most] > 0 else ""
    return Decision(kind, subject, count, *words, sum(changes.values()), changes, lost_by)


Trial = Callable[[], Decision | None]


# ---- kernel boundaries ----------------------------------------------------------------------------------------------


def _boundaries(known: Known) -> list[Trial]:
    """Buffers to do without, then values to store: what is reduced first, then what is smallest."""
    stored, fused = _stored(known), _fused(known)
    return [
        *(_without_buffer(known, group) for group in stored),
        *(_with_buffer(known, each) for each in fused),
    ]


def _stored(known: Known) -> list[list[Kernel]]:
    """The kernels whose buffers another kernel reads, equal ones together; the cheapest to compute first."""
    read = {name for kernel in known.choice.kernels for name in _reads(kernel)}
    groups = _grouped((kernel for kernel in known.choice.kernels if kernel.buffer.cls in read), _kind)
    return sorted(groups, key=lambda kernels: kernels[0].seconds)


def _without_buffer(known: Known, kernels: Sequence[Kernel]) -> Trial:
    def trial() -> Decision | None:
        banned = frozenset(kernel.buffer.cls for kernel in kernels)
        readers = [
            region
            for region, kernel in zip(known.regions, known.choice.kernels, strict=True)
            if kernels[0].buffer.cls in _reads(kernel)
        ]
        other = _solved(known.problem, known.choice, banned)
        again = "computed again in" if len(readers) > 1 else "fused into"
        words = (f"stored, read by {_listed(readers)}", f"{again} {_listed(readers)}")
        return _decision(known, "boundary", _title(known, kernels[0].buffer), words, other, len(kernels))

    return trial


@dataclass(frozen=True)
class _Fused:
    """A value that kernels compute for themselves although it has a buffer. ``regions``: where."""

    buffer: Buffer
    item: Item
    regions: tuple[str, ...]
    kind: Hashable
    origin: str


def _fused(known: Known) -> list[list[_Fused]]:
    """Values with a buffer that is not filled, equal ones together."""
    view = known.problem.view
    filled = {kernel.buffer.cls for kernel in known.choice.kernels}
    # what is filled under another name is stored as well
    stored = {view.origin(kernel.way.root) for kernel in known.choice.kernels}
    places: dict[str, dict[str, tuple[Item, Kernel]]] = {}
    for region, kernel in zip(known.regions, known.choice.kernels, strict=True):
        for (cls, _), item in kernel.items.items():
            if item.head not in ("Read", "Const"):
                places.setdefault(view.origin(cls), {}).setdefault(region, (item, kernel))
    found: dict[str, _Fused] = {}
    for name in known.problem.names:
        buffer = view.buffers[name]
        origins = {view.origin(way.root) for way in buffer.ways}
        for origin in sorted(origins & places.keys() - stored):
            if buffer.arg is None and name not in filled:
                item, kernel = next(iter(places[origin].values()))
                kind = (_kind(kernel), buffer.dtype, buffer.shape, item.head, item.op)
                found.setdefault(origin, _Fused(buffer, item, tuple(places[origin]), kind, origin))
    groups = _grouped(found.values(), lambda each: each.kind)

    def rank(group: list[_Fused]) -> tuple[bool, int, int]:
        first = group[0]
        return (first.item.head not in ALGORITHMS, -len(first.regions), prod(first.buffer.shape))

    return sorted(groups, key=rank)


def _with_buffer(known: Known, group: Sequence[_Fused]) -> Trial:
    def trial() -> Decision | None:
        view, first = known.problem.view, group[0]
        origins = {each.origin for each in group}
        classes = frozenset(cls for cls in view.items if view.origin(cls) in origins)
        problem = known.problem.storing(known.problem.stored | classes)
        other = _solved(problem, known.choice, frozenset())
        size = known.problem.works.bytes(first.buffer)
        words = (f"fused into {_listed(first.regions)}", f"its own kernel, {_bytes(size)}")
        return _decision(known, "boundary", _title(known, first.buffer), words, other, len(group))

    return trial


# ---- algorithms -----------------------------------------------------------------------------------------------------


def _algorithms(known: Known) -> list[Trial]:
    """Reductions that could be computed another way, those of the dearest kernels first."""
    view = known.problem.view
    found: dict[str, tuple[Kernel, Item]] = {}
    for kernel in known.choice.kernels:
        for key, item in kernel.items.items():
            ways = {option.item.head for option in known.problem.options[key]} - {"Read", item.head}
            if item.head in ALGORITHMS and ways & ALGORITHMS.keys():
                found.setdefault(view.origin(key[0]), (kernel, item))
    groups = _grouped(found.items(), lambda pair: (_kind(pair[1][0]), pair[1][1].head, pair[1][1].op))
    groups.sort(key=lambda group: -group[0][1][0].seconds)
    return [_otherwise(known, tuple(origin for origin, _ in group), group[0][1][1]) for group in groups]


def _otherwise(known: Known, origins: tuple[str, ...], chosen: Item) -> Trial:
    def trial() -> Decision | None:
        view, wanted = known.problem.view, frozenset(origins)

        def banned(key: Key, item: Item) -> bool:
            return item.head == chosen.head and view.origin(key[0]) in wanted

        other = _solved(known.problem.leaving_out(banned), known.choice, frozenset())
        if other is None:
            return None
        taken = {
            item.head
            for kernel in other.kernels
            for key, item in kernel.items.items()
            if view.origin(key[0]) in wanted and item.head in ALGORITHMS
        }
        names = " and ".join(sorted(ALGORITHMS[head] for head in taken)) or "another form of it"
        kernels = len(other.kernels) - len(known.choice.kernels)
        more = f", {abs(kernels)} {'more' if kernels > 0 else 'fewer'} kernel{'s' * (abs(kernels) > 1)}"
        words = (ALGORITHMS[chosen.head], names + (more if kernels else ""))
        title = _origin_title(known, origins[0])
        return _decision(known, "algorithm", title, words, other, len(origins))

    return trial


# ---- plans ----------------------------------------------------------------------------------------------------------


def plan_decisions(ranked: Mapping[str, Sequence[RankedPlan]]) -> tuple[Decision, ...]:
    """For each kernel its Plan, and the cheapest of those that cost more; kernels whose Plans cost the same together.
    ``ranked``: region name -> its Plans, the chosen one first."""
    groups = _grouped(ranked.items(), lambda pair: tuple((each.candidate, each.estimate) for each in pair[1]))
    groups.sort(key=lambda group: -group[0][1][0].estimate if group[0][1] else 0.0)
    found = (_plan_decision(*group[0], len(group)) for group in groups[:MAX_PLANS])
    return tuple(each for each in found if each is not None)


def _plan_decision(region: str, plans: Sequence[RankedPlan], count: int) -> Decision | None:
    """None where no Plan costs more."""
    for number, other in enumerate(plans):
        if other.estimate > plans[0].estimate * (1 + TIE):
            chosen, lost = _spelled(plans[0].candidate, other.candidate)
            same = f" ({number - 1} equal)" if number > 1 else ""
            return compared("plan", region, (chosen + same, lost), plans[0].terms, other.terms, count)
    return None


def plan_words(plan: Candidate) -> str:
    """A candidate in words, all of it."""
    return " ".join(_parts(plan).values())


def _spelled(first: Candidate, second: Candidate) -> tuple[str, str]:
    """Both in words: the tile, and whatever else tells them apart."""
    one, two = _parts(first), _parts(second)
    told = [name for name in one if name == "tile" or one[name] != two[name]]
    return " ".join(one[name] for name in told), " ".join(two[name] for name in told)


def _parts(plan: Candidate) -> dict[str, str]:
    warp = "x".join(map(str, plan.warp_tile)) if plan.warp_tile else "none"
    return {
        "algorithm": plan.algo,
        "tile": "x".join(map(str, plan.tile)),
        "warp": f"warp {warp}",
        "stages": f"{plan.stages or 1} stages",
        "vector": f"vector {plan.width}" if plan.width else "any vector",
        "async": "async" if plan.async_enable else "not async",
    }


# ---- what they share ------------------------------------------------------------------------------------------------


def _solved(problem: Problem, choice: Choice, banned: frozenset[str]) -> Choice | None:
    """The cheapest program without the buffers in ``banned``: near the chosen one, or from the start."""
    paid = frozenset(kernel.buffer.cls for kernel in choice.kernels) - banned
    solved = (Pass(problem, paid, banned).solve(), Pass(problem, banned=banned).solve())
    return min((each for each in solved if each is not None), key=lambda each: each.seconds, default=None)


def _decision(
    known: Known, kind: str, subject: str, words: tuple[str, str], other: Choice | None, count: int
) -> Decision | None:
    """None where there is no other way, or where it makes no difference."""
    if other is None or abs(other.seconds - known.choice.seconds) <= TIE * known.choice.seconds:
        return None
    if other.seconds < known.choice.seconds and not known.allowed(other):
        return None  # that it costs less is why it was chosen at first, and refused
    return compared(kind, subject, words, _terms(known, known.choice), _terms(known, other), count)


def _terms(known: Known, choice: Choice) -> Counter[str]:
    total: Counter[str] = Counter()
    for kernel in choice.kernels:
        for name, seconds in terms_of(known.problem.model, kernel.work).items():
            total[name] += seconds  # type: ignore[assignment]
    return total


def _kind(kernel: Kernel) -> Hashable:
    """Equal for kernels of one structure."""
    counts = Counter((item.head, item.op) for item in kernel.items.values())
    return kernel.buffer.dtype, kernel.buffer.shape, kernel.way.shape, frozenset(counts.items())


def _grouped(values: Iterable[T], kind: Callable[[T], Hashable]) -> list[list[T]]:
    groups: dict[Hashable, list[T]] = {}
    for value in values:
        groups.setdefault(kind(value), []).append(value)
    return list(groups.values())


def _reads(kernel: Kernel) -> frozenset[str]:
    return frozenset(str(item.payload[0]) for item in kernel.items.values() if item.head == "Read")


def _title(known: Known, buffer: Buffer) -> str:
    numbers = [known.problem.view.graph.names.get(way.root) for way in buffer.ways]
    named = [number for number in numbers if number is not None]
    return known.nodes[min(named)] if named else "a value"


def _origin_title(known: Known, origin: str) -> str:
    kind, _, number = origin.partition(" ")
    return known.nodes[int(number)] if kind == "node" else "a value"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"


def _bytes(size: float) -> str:
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= limit:
            return f"{size / limit:.3g} {unit}"
    return f"{size:.0f} B"
