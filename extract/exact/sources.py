"""What may be read of that of which a value is made that is not filled: buffers that are as good as it, partial sums, what the sums
beneath are computed from. Each program reads of one of these sources."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ..choice import REDUCING, Key, outside
from ..problem import Problem

DEAR, SUMS = 0.1, 2
"""What a sum takes at least, of the time that the dearest takes, so that buffers past it are told apart; and so many sums at most."""


NEAR, PARTS, FAR, FARTHER = CLASSES = range(4)
"""How far from hand a value is, where its buffer is not filled: it is computed from what is as good; or from partial sums (split-K); or
farther down, and sums are computed again; and so they are of what its part is given. Each class is a bound of those after it."""


class Source(NamedTuple):
    """What is read of sets of buffers. ``some``: numbers of sets, together: of each of these, some kernel reads a buffer. ``barred``: the
    sets of which no kernel reads any. ``light``: hardly anything is computed then. ``distance``: of the value, one of the first three of
    :data:`CLASSES`."""

    some: tuple[frozenset[int], ...]
    barred: frozenset[int]
    light: bool = False
    distance: int = FAR


def sources_of(
    partial: Sequence[Sequence[str]],
    past: Mapping[str, frozenset[str]],
    light: int,
    summed: bool = False,
    near: int = 0,
    loaded: Mapping[int, Collection[str]] = MappingProxyType({}),
) -> tuple[Source, ...]:
    """What may be read of the sets ``partial``: the first of which some kernel reads, or none. ``past``: of buffers the dear sums that are
    done, if there are several. Where one of a set is past some of these, it is told apart whether some kernel reads what is past the
    others: if none does, each computes them, and else both have to be filled. ``light``: of so many sets, the first, hardly anything
    is computed, and of these ``near``, the first, are no partial sums. ``summed``: whether what is past all of the dear sums is summed
    again. ``loaded``: of sets of operands the sums that load these; what is read past another sum is told apart by whether some kernel
    reads one."""
    nothing = frozenset[str]()
    sums = [frozenset.intersection(*(past.get(name, nothing) for name in names)) for names in partial]
    found: list[Source] = []
    both: list[Source] = []
    for number, own in enumerate(sums):
        some, barred = frozenset({number}), frozenset(range(number))
        missing = nothing.union(*sums) - own
        others = frozenset(other for other in range(number + 1, len(sums)) if sums[other] & missing)
        if own and others:
            found.append(Source((some,), barred | others))
            both.append(Source((some, others), barred, not summed, FAR if summed else NEAR))
        else:
            distance = NEAR if number < near else PARTS if number < light else FAR
            for other, products in sorted(loaded.items()) if own and not summed else ():
                if number < other and not own.issuperset(products):
                    found.append(Source((some, frozenset({other})), barred, number < light, distance))
                    barred |= {other}
            found.append(Source((some,), barred, number < light, distance))
    return (*found, Source((), frozenset(range(len(sums)))), *both)


def _elementwise(problem: Problem, made: Iterable[Key], others: Collection[str]) -> tuple[set[Key], bool]:
    """What the values ``made`` are computed from with no sum on the way, they among it; and whether any of ``others`` is, by origin:
    nothing beneath these."""
    found, stack, passed = set(made), [*made], False
    while stack:
        key = stack.pop()
        if problem.view.origin(key[0]) in others:
            passed = True
            continue
        for option in problem.options[key]:
            if option.item.head not in REDUCING:
                fresh = set(option.children) - found
                found |= fresh
                stack += fresh
    return found, passed


def adds(problem: Problem, made: Iterable[Key], given: Collection[str]) -> bool:
    """Whether the values ``made`` are computed from one that is ``given``, by what it is, with no sum on the way."""
    return _elementwise(problem, made, given)[1]


def side_by_side(
    problem: Problem, keys: Iterable[Key], sums: Collection[str], given: Collection[str]
) -> bool:
    """Whether among ``sums``, by what they are, are two of which neither is computed from the other: not beneath what is ``given``."""
    view, origin = problem.view, problem.view.origin
    below: dict[str, set[str]] = {name: set() for name in sums}
    for key in keys:
        if origin(key[0]) not in sums:
            continue
        seen, stack = {key}, [key]
        while stack:
            for option in problem.options.get(stack.pop(), ()):
                fresh = set(option.children)
                if option.item.head == "Read":
                    fresh = {(way.root, False) for way in view.buffers[str(option.item.payload[0])].ways}
                fresh = {child for child in fresh if origin(child[0]) not in given} - seen
                seen |= fresh
                stack += fresh
        below[origin(key[0])] |= {origin(each[0]) for each in seen}
    return any(
        one not in below[two] and two not in below[one] for one, two in itertools.combinations(below, 2)
    )


def loaded_by(problem: Problem, keys: Iterable[Key]) -> Mapping[str, Collection[str]]:
    """The buffers that products among ``keys`` load their operands from, each with those products, by what they are."""
    found: dict[str, set[str]] = {}
    for key in keys:
        for product in (option for option in problem.options[key] if option.item.head == "Contract"):
            stack = [*product.children]
            while stack:
                for option in problem.options.get(stack.pop(), ()):
                    stack += option.children
                    if option.item.head == "Read":
                        found.setdefault(str(option.item.payload[0]), set()).add(problem.view.origin(key[0]))
    return found


class Summed(NamedTuple):
    """What values are computed from, down to the operands of the first sums on the way. ``keys``: all of it. ``apart``: the buffers that
    it may be read from, those that are told apart; ``past``: of each, the dear sums that are done, if not all have the same.
    ``again``: whether some of these are of what is summed on the way: the products of a gated layer."""

    keys: list[Key]
    apart: list[set[str]]
    past: Mapping[str, frozenset[str]]
    again: bool = False


def beneath_sums(
    problem: Problem,
    made: Iterable[Key],
    given: Collection[str],
    buffers: Collection[str],
    again: bool = False,
) -> Summed:
    """Of the values ``made``. Nothing of ``given``, by what it is, nor what that is computed from. ``buffers``: those that are told
    apart; ``again``: where they are by one dear sum alone, also by those of what it is of."""
    sums = dict.fromkeys(made, 0)  # of each value, on the way to it
    layers: tuple[list[Key], list[Key]] = [*sums], []
    for count, layer in enumerate(layers):
        while layer:
            key = layer.pop()
            if sums[key] < count or problem.view.origin(key[0]) in given:
                continue
            for option in problem.options[key]:
                below = count + (option.item.head in REDUCING)
                for child in option.children:
                    if below < sums.get(child, len(layers)):
                        sums[child] = below
                        layers[below].append(child)
    keys = [key for key in sums if problem.view.origin(key[0]) not in given]
    first, second = ([key for key in keys if sums[key] == count] for count in (0, 1))
    found: dict[str, set[str]] = {}  # by origin
    for key in keys:
        read = {str(each.item.payload[0]) for each in problem.options[key] if each.item.head == "Read"}
        found.setdefault(problem.view.origin(key[0]), set()).update(read.intersection(buffers))
    found = {name: names for name, names in found.items() if names}
    done, dear = _done(problem, first, found, False)
    places = _places(problem, keys, done, dear)
    summed = False
    if again and len(dear) == 1:
        more, others = _done(problem, second, [name for name in found if not done[name]], True)
        summed = len(set(more.values())) > 1
        if summed:
            lower = _places(problem, keys, more, others)
            places = {name: place + lower.get(name, ()) for name, place in places.items()}
            done = {name: more.get(name, each.union(others)) for name, each in done.items()}
    if len(set(done.values())) < 2:
        return Summed(keys, [set[str]().union(*found.values())], {})
    apart: dict[tuple[float, ...], set[str]] = {}
    for name, names in found.items():
        apart.setdefault(places[name], set()).update(names)
    past = {each: done[name] for name, names in found.items() for each in names}
    return Summed(keys, [apart[place] for place in sorted(apart)], past, summed)


def _done(
    problem: Problem, before: Iterable[Key], names: Iterable[str], within: bool
) -> tuple[dict[str, frozenset[str]], Mapping[str, float]]:
    """Of ``names``, by what they are, the dear sums that are done where one is read, of those that are ``before`` any other sum; and
    what these take. ``within``: also those within reductions."""
    origin = problem.view.origin
    dear = _dear(problem, before, within)
    done: dict[str, frozenset[str]] = {}
    for key in sorted(before, key=problem.bit.__getitem__):  # operands first
        ways = (option for option in problem.options[key] if option.item.head not in REDUCING)
        below = (done.get(origin(child[0]), frozenset()) for option in ways for child in option.children)
        own = frozenset({origin(key[0])} & dear.keys())
        done[origin(key[0])] = done.get(origin(key[0]), own).union(*below)
    partial = {  # partial sums of one are as good as it
        origin(child[0]): done[origin(key[0])]
        for key in before
        if origin(key[0]) in dear
        for child in _parts(problem, key)
    }
    nothing = frozenset[str]()
    return {name: done.get(name) or partial.get(name, nothing) for name in names}, dear


def product(problem: Problem, made: Iterable[Key], given: Collection[str]) -> Iterator[tuple[str, bool]]:
    """The buffers of the one dear sum that the values ``made`` are computed from with no other on the way, a bias added say, and of
    its partial sums; with whether it is of these. ``given``: nothing that is computed from these, by what it is."""
    keys, _ = _elementwise(problem, made, given)
    origin, buffers = problem.view.origin, problem.view.buffers
    dear = _dear(problem, keys, True)
    for key in sorted(keys, key=problem.bit.__getitem__) if len(dear) == 1 else ():
        if origin(key[0]) in dear:
            for each in (key, *_parts(problem, key)):
                for option in problem.options[each]:
                    if option.item.head == "Read" and buffers[str(option.item.payload[0])].arg is None:
                        yield str(option.item.payload[0]), each != key


def _places(
    problem: Problem, keys: Iterable[Key], done: Mapping[str, frozenset[str]], dear: Mapping[str, float]
) -> dict[str, tuple[float, ...]]:
    """In which order they are told apart: those in which most is done first. Where a kernel reads none of such a set, it computes a
    sum. In one set, to read what a LayerNorm is of would count as no more than adding a bias."""
    number = {name: place for place, name in enumerate(dear)}
    every = frozenset[str]().union(*done.values())
    beneath = _beneath(problem, keys, [name for name in dear if name in every] if len(every) > 1 else [])
    return {
        name: (
            -sum(map(dear.__getitem__, sums)),
            0 if sums else beneath.get(name, 0),
            *sorted(map(number.__getitem__, sums)),
        )
        for name, sums in done.items()
    }


def _beneath(problem: Problem, keys: Iterable[Key], sums: Sequence[str]) -> dict[str, int]:
    """Of what ``keys`` are, the number of the first of ``sums`` that it is beneath; what it is, and they, by origin."""
    origin, known = problem.view.origin, set(keys)
    found: dict[str, int] = {}
    for number, name in enumerate(sums):
        stack = [key for key in known if origin(key[0]) == name]
        seen = set(stack)
        while stack:
            for option in problem.options[stack.pop()]:
                fresh = known.intersection(option.children) - seen
                seen |= fresh
                stack += fresh
        for key in seen:
            found.setdefault(origin(key[0]), number)
    return found


def _parts(problem: Problem, key: Key) -> Iterator[Key]:
    """Partial sums (split-K) of a value: what it is the sum of, that kernels can only read."""
    buffers = problem.view.buffers
    for option in problem.options[key]:
        for child in option.children if option.item.head == "Reduce" else ():
            ways = [each.item for each in problem.options[child]]
            if all(way.head == "Read" and buffers[str(way.payload[0])].arg is None for way in ways):
                yield child


def _dear(problem: Problem, keys: Iterable[Key], within: bool) -> dict[str, float]:
    """Of the sums among ``keys``, by what they are, the dearest that take about as long, the dearest first, with what each takes.
    ``within``: also within reductions."""
    seconds: dict[str, float] = {}
    for key in sorted(keys, key=problem.bit.__getitem__):  # of equal ones, in equal layers the same is first
        sums = [option.own for option in problem.options[key] if option.item.head in REDUCING]
        whole = [option.own for option in problem.options[key] if option.item.head == "Contract"]
        sums = whole if whole and any(True for _ in _parts(problem, key)) else sums  # not what is left of it
        if sums and (within or outside(problem.view.free[key[0]])):
            name = problem.view.origin(key[0])
            seconds[name] = min(*sums, seconds.get(name, float("inf")))
    least = DEAR * max(seconds.values(), default=0.0)
    dearest = sorted((name for name in seconds if seconds[name] >= least), key=lambda name: -seconds[name])
    return {name: seconds[name] for name in dearest[:SUMS]}
