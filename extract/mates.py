"""Buffers that are as good as one: a value that is used for one other alone, and that other. h W, and x + h W.

Which of the two is stored changes little, but a choice that stores h W reads it and x wherever it needs the sum, and that of
each layer before. A program is cut where the sum is stored (``cuts.py``); that h W is stored instead is a level of its own
(``inside.py``).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Set

from .choice import Key
from .problem import Option, Problem
from .view import Item, Way

ELEMENTWISE = frozenset({"Unary", "Binary", "Select", "Cast"})


STEPS = 8
"""Between two mates at most."""


def mates(problem: Problem) -> dict[str, str]:
    """For each buffer whose value is used for one other alone, of as many points, a buffer of that one."""
    view = problem.view
    users: dict[str, set[str]] = {}
    for key, options in problem.options.items():
        for option in options:
            for child in option.children:
                if view.origin(child[0]) != view.origin(key[0]):
                    users.setdefault(view.origin(child[0]), set()).add(view.origin(key[0]))
    filled: dict[str, list[str]] = {}
    for name, buffer in view.buffers.items():
        for origin in {view.origin(way.root) for way in buffer.ways} if buffer.arg is None else ():
            filled.setdefault(origin, []).append(name)
    outputs = frozenset(view.graph.outputs)
    found: dict[str, str] = {}
    for origin, names in filled.items():
        user = _user(users, origin, filled)
        if user is None:
            continue
        for name in names:
            shapes = {squeezed(way) for way in view.buffers[name].ways}
            for other in filled[user]:
                same = {squeezed(way) for way in view.buffers[other].ways} == shapes
                if same and name not in outputs and _behind(problem, name, other):
                    found.setdefault(name, other)
    return found


def _user(users: Mapping[str, Set[str]], origin: str, filled: Container[str]) -> str | None:
    """What a value is used for alone, in a few steps of which none but the last is stored; None where there is no such thing. All by
    origin."""
    seen = {origin}
    for _ in range(STEPS):
        following = users.get(origin, frozenset())
        if len(following) != 1 or not seen.isdisjoint(following):
            return None
        (origin,) = following
        if origin in filled:
            return origin
        seen.add(origin)
    return None


def last(mate: Mapping[str, str], name: str) -> str:
    """The end of a chain of mates."""
    seen = {name}
    while name in mate and mate[name] not in seen:
        name = mate[name]
        seen.add(name)
    return name


def _behind(problem: Problem, name: str, other: str) -> bool:
    """Whether every way to compute what ``other`` holds is elementwise, from what ``name`` holds among others."""
    known: dict[Key, bool] = {(way.root, False): True for way in problem.view.buffers[name].ways}

    def ways(key: Key) -> list[Option]:
        return [each for each in problem.options.get(key, ()) if each.item.head != "Read"]

    def is_so(option: Option, steps: int) -> bool:
        return option.item.head in ELEMENTWISE and any(behind(child, steps) for child in option.children)

    def behind(key: Key, steps: int) -> bool:
        if key not in known:
            options = ways(key)  # none of a value that can only be read: it is of nothing else
            known[key] = steps > 0 and bool(options) and all(is_so(each, steps - 1) for each in options)
        return known[key]

    roots = [(way.root, False) for way in problem.view.buffers[other].ways]
    return all(is_so(each, STEPS - 1) for root in roots for each in ways(root))


def at_ends(mate: Mapping[str, str], filled: frozenset[str]) -> frozenset[str]:
    """The buffers ``filled``, but the last of a chain of mates where another one is."""
    return frozenset(last(mate, name) for name in filled)


def lifted(
    problem: Problem, items: Mapping[Key, Item], root: Key, top: Key, names: Container[str]
) -> dict[Key, Item] | None:
    """A kernel of ``items`` that computes ``root``, with what leads from there up to ``top``. Other operands are read from the
    buffers ``names`` or from inputs; None where that cannot be."""
    path = _path(problem, top, root)
    if path is None:
        return None
    found = dict(items)
    for key, option in path:
        found[key] = option.item
    stack = [child for _, option in path for child in option.children if child != root and child not in found]
    while stack:
        key = stack.pop()
        at_hand = next((each for each in problem.options[key] if _at_hand(problem, each, names)), None)
        if at_hand is None:
            return None
        found[key] = at_hand.item
    return found


def _path(problem: Problem, top: Key, root: Key) -> list[tuple[Key, Option]] | None:
    """The elementwise steps from ``top`` down to ``root``."""
    paths: dict[Key, list[tuple[Key, Option]]] = {top: []}
    for _ in range(STEPS):
        if root in paths:
            return paths[root]
        further: dict[Key, list[tuple[Key, Option]]] = {}
        for end, path in paths.items():
            for option in problem.options.get(end, ()):
                for child in option.children if option.item.head in ELEMENTWISE else ():
                    further.setdefault(child, [*path, (end, option)])
        paths = further
    return paths.get(root)


def _at_hand(problem: Problem, option: Option, names: Container[str]) -> bool:
    """Whether a value is read from a buffer of ``names`` or an input, or made of nothing."""
    if option.item.head == "Read":
        name = str(option.item.payload[0])
        return name in names or problem.view.buffers[name].arg is not None
    return not option.children


def group(
    problem: Problem, mate: Mapping[str, str], made: str, buffers: Container[str], given: Container[str]
) -> tuple[str, ...]:
    """The buffers that are as good as ``made`` for those who read it, and it, the first of them first. To store it instead of
    another takes what is ``given`` beside."""
    before = {other: name for name, other in mate.items() if name in buffers}
    found = [made]
    ways = problem.view.buffers[made].ways
    while (name := before.get(found[0])) is not None and name not in found:
        roots = [(way.root, False) for way in problem.view.buffers[name].ways]
        tops = [(way.root, False) for way in ways]
        if not any(lifted(problem, {}, root, top, given) is not None for root in roots for top in tops):
            break
        found.insert(0, name)
    return tuple(found)


def squeezed(way: Way) -> tuple[int, ...]:
    """The shape without extents of 1: kernels over two that are the same are scheduled alike."""
    return tuple(size for size in way.shape if size != 1)
