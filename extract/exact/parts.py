"""Parts of a program that can be looked at by themselves, and what is the same in each of them.

A long program is a chain: at some places few buffers carry all that comes after. What is cut there is bounded part by part.
Whatever the whole program does, in each part it fills buffers that make what the next parts need. A part is given the
buffers of the parts before for nothing, and their values for no more than any kernel does to compute them; so the costs of
the parts add up to no more than those of any program. Equal layers are equal parts, and are solved once.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ..choice import REDUCING, How, Key, outside
from ..cost.model import Work
from ..mates import group, mates
from ..problem import Option, Problem
from .cuts import START, Cut
from .distance import Layers
from .inside import (
    INSIDE,
    Beneath,
    beneath,
    holding_the_same,
    origins,
)
from .once import HOWS, of_fields
from .part import Part
from .tables import Known

USERS = 2
"""Parts that may need one buffer, without its being carried past the cuts between them."""


class _Program:
    """What the parts of one program ask of it."""

    def __init__(
        self,
        problem: Problem,
        cuts: Sequence[Cut] = (),
        known: Known | None = None,
    ) -> None:
        """``known``: see :func:`~tinyc.extract.exact.inside.beneath`."""
        self.beneath = Known() if known is None else known
        self.problem, self.view = problem, problem.view
        self.given = frozenset(name for cut in cuts for name in (*cut.names, *cut.carried))
        self.same = holding_the_same(problem)
        self.groups: dict[str, Beneath] = {}  # of what is made by the parts so far
        self.layers: Layers = {}
        self.seen: set[Key] = set()  # the values of these parts
        self.computed: set[str] = set()  # the same, by what they are, and all that is beneath what they make
        # bytes of elements that a kernel fetches at least that computes one of them
        self.fetched: dict[Key, float] = {}
        self._readers: dict[str, frozenset[Key] | None] = {}
        self.values: dict[str, list[Key]] = {}  # by what they are, wherever they are needed
        for key in problem.order:
            if not key[1]:
                self.values.setdefault(self.view.origin(key[0]), []).append(key)

        # what a kernel reads at least to compute a value, beside the program's inputs and what any part is given
        self.read: dict[Key, float] = {}
        for key in problem.order:  # operands come first; those of a circle that do not count as nothing
            self.read[key] = min((self.needed(option) for option in problem.options[key]), default=0.0)

    def done(self, part: Part) -> None:
        """Takes note of the values of a part: of what they are computed from, what depends on the same axes is fetched as often."""
        self.seen |= part.options.keys()
        self.computed.update(self.view.origin(key[0]) for key in part.options)
        free = self.view.free
        had: dict[Key, float] = {}  # that is fetched at least to have a value, be it read
        for key in sorted(part.options, key=self.problem.bit.__getitem__):  # operands first
            ways = [self.fetched.get(key, 0.0)] if key in part.inside else []
            reads: list[float] = []
            for option in self.problem.options[key]:
                if option.item.head == "Read":
                    buffer = self.view.buffers[str(option.item.payload[0])]
                    counts = buffer.arg is None or self.unshared(buffer.cls)
                    reads.append(self.problem.works.fetched(key, option.item) if counts else 0.0)
                elif key not in part.inside:
                    below = (child for child in option.children if free[child[0]] == free[key[0]])
                    ways.append(max((had.get(child, 0.0) for child in below), default=0.0))
            self.fetched[key] = min(ways, default=0.0)
            had[key] = min((*ways, *reads), default=0.0)

    def places(self, name: str) -> list[Key]:
        """Where the values of a buffer may be computed."""
        return [key for origin in origins(self.problem, (name,)) for key in self.values.get(origin, ())]

    def unshared(self, name: str) -> bool:
        """Whether an input is read by the parts so far alone."""
        if name not in self._readers:
            problem = self.problem
            keys = {problem.order[number] for number in problem.readers.get(name, ())}
            users = {problem.order[user] for key in keys for user in problem.users[problem.bit[key]]}
            # what is filled with it as it is may be in any part
            copied = any(not key[1] and key[0] in problem.filled_by for key in keys)
            self._readers[name] = None if copied else frozenset(users)
        found = self._readers[name]
        return found is not None and found <= self.seen

    def needed(self, option: Option) -> float:
        """What is read for an option at least."""
        if option.item.head != "Read":
            return max((self.read.get(child, 0.0) for child in option.children), default=0.0)
        buffer = self.view.buffers[str(option.item.payload[0])]
        return (
            0.0
            if buffer.arg is not None or buffer.cls in self.given
            else float(self.problem.works.bytes(buffer))
        )

    def inside(self, given: Sequence[str]) -> tuple[int, frozenset[Key]]:
        """What a kernel reads at least that computes one of these values itself, and the values of which that can be
        said. The others may be made of the same."""
        amounts: dict[str, float] = {}
        for name in given:
            places = (self.problem.options[key] for key in self.places(name))
            others = (option for options in places for option in options if option.item.head != "Read")
            amounts[name] = min(map(self.needed, others), default=0.0)
        reading = [name for name, amount in amounts.items() if amount]
        keys = frozenset(key for name in reading for key in self.places(name))
        return int(min((amounts[name] for name in reading), default=0)), keys


def whole(problem: Problem) -> Part:
    """All of the program as one part."""
    return _walk(_Program(problem), START, tuple(dict.fromkeys(problem.view.graph.outputs)), ())


def sizes(problem: Problem, at: Sequence[Cut]) -> list[int]:
    """The options of each part of the program between the cuts ``at``."""
    return [len(part.options) for part in _walked(_Program(problem, at), at)]


def carrying(problem: Problem, at: Sequence[Cut]) -> list[Cut]:
    """The cuts, with what more than :data:`USERS` parts need carried past them, where no cut leads to it."""
    found = _walked(_Program(problem, at), at)
    count = Counter(name for part in found for name in part.buffers)
    shared = {name for name, parts in count.items() if parts > USERS}
    shared = shared & _beside(problem, at) if shared else shared
    return _of_parts([replace(cut, carried=cut.carried | shared) for cut in at], found)


def _of_parts(at: Sequence[Cut], found: Sequence[Part]) -> list[Cut]:
    """The cuts, with what is carried past each as far as it is of a part before."""
    before: set[str] = set()
    result: list[Cut] = []
    for cut, part in zip(at, found, strict=False):
        before.update(part.buffers)
        result.append(replace(cut, carried=cut.carried & before))
    return result


def _beside(problem: Problem, at: Sequence[Cut]) -> set[str]:
    """The buffers that can be filled from what cuts carry, without a value of what one leads through."""
    view = problem.view
    carried = frozenset[str]().union(*(cut.carried for cut in at))
    through = frozenset(origins(problem, [name for cut in at for name in cut.names if name not in carried]))
    filled = {name for name, buffer in view.buffers.items() if buffer.arg is not None} | carried
    had: set[Key] = set()

    def ready(option: Option) -> bool:
        if option.item.head == "Read":
            return str(option.item.payload[0]) in filled
        return all(child in had for child in option.children)

    size = -1
    while size != len(had):
        size = len(had)
        for key in problem.order:  # operands come first
            if (
                key not in had
                and view.origin(key[0]) not in through
                and any(map(ready, problem.options[key]))
            ):
                had.add(key)
                filled.update(buffer.cls for buffer, _ in problem.filled_by.get(key[0], ()) if not key[1])
    return filled


def _walked(program: _Program, at: Sequence[Cut]) -> list[Part]:
    """The parts between cuts, of which nothing is known yet."""
    outputs = tuple(dict.fromkeys(program.view.graph.outputs))
    names = [*(cut.names for cut in at), outputs]
    pairs = zip([START, *at], names, strict=True)
    return [_walk(program, before, after, () if after == outputs else after) for before, after in pairs]


def parts(
    problem: Problem,
    at: Sequence[Cut],
    loosely: bool = False,
    further: bool = False,
    told: bool = False,
    known: Known | None = None,
    most: float = float("inf"),
    finely: bool = False,
) -> tuple[list[Part], list[Cut]]:
    """The program, first things first, in parts between the cuts ``at``, and those of them that could be used: cut ``n`` is
    between the parts n and n + 1. ``further``, ``told``, ``finely``: with more levels of what is made, see
    :func:`~tinyc.extract.exact.inside.beneath`; the second not beside what is carried past cuts, where bounds are looser for it.
    ``known``: as there. ``most``: options of a part; if one has more, what parts share is carried past the cuts."""
    outputs = tuple(dict.fromkeys(problem.view.graph.outputs))
    asked, mate = list(at), mates(problem) if loosely else {}
    at = asked
    known = Known() if known is None else known
    while True:
        program = _Program(problem, at, known)
        ends = [START, *at, Cut(outputs, (0.0,) * len(outputs))]
        walked = _walked(program, at)
        bad = _bad(program, walked)  # most are seen so, before what is beneath each is looked at
        if not bad:
            large = max(len(part.options) for part in walked) > most
            carried = carrying(problem, asked) if large else _of_parts(at, walked)
            if carried != at:
                at, most = carried, float("inf") if large else most
                continue
            within = [*(_within_reductions(program, part) for part in walked[1:]), False]
            counts = [0 if finely else len(part.options) for part in walked]
            beside = [*map(max, itertools.pairwise(counts)), 0]
            found = [
                _between(program, before, after, outputs, mate, further, told, inner, options)
                for (before, after), inner, options in zip(
                    itertools.pairwise(ends), within, beside, strict=True
                )
            ]
            bad = _bad(program, found)
            if not bad:
                return _rooted(program, found), at
        at = [cut for number, cut in enumerate(at) if number not in bad]


def _bad(program: _Program, found: Sequence[Part]) -> set[int]:
    """The cuts between parts that share a buffer, and those that a part may do without. Of cut ``n``, the parts before
    and after have the numbers n and n + 1."""
    bad: set[int] = set()
    owner: dict[str, int] = {}
    for number, part in enumerate(found):
        for buffer in part.buffers:
            bad.update(range(owner.setdefault(buffer, number), number))
        if any(_had(part, *_without(program, part, name)) for name in part.given):
            bad.add(number - 1)
    return bad


def _rooted(program: _Program, found: Sequence[Part]) -> list[Part]:
    """The parts, with what in each is rooted in what is given, as far as all that is made is."""
    result: list[Part] = []
    chained = True
    for part in found:
        without = [_without(program, part, name) for name in part.given]
        rooted = frozenset(part.buffers).difference(*(filled for filled, _ in without))
        result.append(replace(part, rooted=rooted if chained and part.given else frozenset()))
        chained &= all(not _had(replace(part, made=(made,)), *each) for each in without for made in part.made)
    return result


def _between(
    program: _Program,
    before: Cut,
    after: Cut,
    outputs: tuple[str, ...],
    mate: Mapping[str, str],
    further: bool,
    told: bool,
    within: bool,
    options: int,
) -> Part:
    """``within``: whether what is made is needed within reductions, if it is not filled. ``options``: see
    :func:`~tinyc.extract.exact.inside.beneath`."""
    problem = program.problem
    valued = () if after.names == outputs else after.names
    part = _walk(program, before, after.names, valued)
    again = part.options.keys() & program.seen
    heads = {key: {option.item.head for option in part.options[key]} for key in again}
    part = replace(part, twice=frozenset(key for key in again if "Contract" in heads[key]))
    earlier = frozenset(program.computed)
    program.done(part)
    carried = [name for name in after.carried if name in part.buffers and name not in program.groups]
    groups = {
        name: beneath(
            problem,
            program.values,
            name,
            group(problem, mate, name, part.buffers, part.given)[:-1],
            part.buffers,
            program.same,
            before.names,
            further,
            told and len(valued) == 1 and not before.carried and not after.carried,
            within and len(valued) == 1 and not before.carried and not after.carried,
            options,
            program.beneath,
            program.groups,
            program.unshared,
            program.layers,
            earlier,
        )
        for name in (*valued, *carried)
        if name in part.buffers and name not in outputs
    }
    program.groups |= groups
    program.computed.update(*(each.counted for each in groups.values()))
    made = {name: each for name, each in groups.items() if name in valued}
    return replace(part, prices=before.prices, groups=made)


# ---- what a part is made of ---------------------------------------------------------------------------------------------


def _walk(program: _Program, before: Cut, made: Sequence[str], valued: Sequence[str]) -> Part:
    """What is computed from what there is at a cut up to ``made``. ``valued``: those of ``made`` that may be had without a buffer."""
    problem, view, given = program.problem, program.view, before.names
    outer = frozenset(origins(program.problem, (*given, *before.carried)))
    common: dict[str, None] = {}
    targets = {name: tuple(program.places(name)) for name in valued}
    options: dict[Key, Sequence[Option]] = {}
    buffers: dict[str, None] = {}
    inside: dict[Key, Mapping[How, Work]] = {}
    sums: dict[Key, frozenset[bool]] = {}
    known = {name: program.groups[name] for name in given if name in program.groups}
    # filled or not, that is not told apart
    known |= {
        name: replace(program.groups[name], kinds=())
        for name in sorted(before.carried)
        if name in program.groups and name not in known
    }
    able = frozenset[Key]().union(*(each.able for each in known.values()))
    never = {key for name in known for key in program.places(name)} - able
    stack = [key for keys in targets.values() for key in keys]
    waiting = list(made)
    while stack or waiting:
        if not stack:
            name = waiting.pop()
            if name in before.carried and name not in given:
                common[name] = None
            elif name not in buffers and name not in given and view.buffers[name].arg is None:
                buffers[name] = None
                stack += [(way.root, False) for way in view.buffers[name].ways]
            continue
        key = stack.pop()
        if key in options or key not in problem.options:
            continue
        found: Sequence[Option] = problem.options[key]
        if not key[1] and view.origin(key[0]) in outer:
            others = [option for option in found if option.item.head != "Read"]
            found = [option for option in found if option.item.head == "Read"]
            if others and key not in never:
                inside[key] = {how: _least(problem, key, others, how) for how in HOWS}
                sums[key] = frozenset(option.item.head in REDUCING for option in others)
                found = [*found, Option(INSIDE, (), min(option.own for option in others), 0.0)]
        options[key] = found
        for option in found:
            stack += option.children
            if option.item.head == "Read" and option.item is not INSIDE:
                waiting.append(str(option.item.payload[0]))
    common |= {
        name: None for name, each in known.items() if name not in given and not each.able.isdisjoint(inside)
    }
    known = {name: each for name, each in known.items() if name in given or name in common}
    amount, reads = program.inside(given) if inside else (0, frozenset[Key]())
    reads &= inside.keys() - able  # of the others more is known
    return Part(
        tuple(given),
        tuple(made),
        options,
        targets,
        tuple(buffers),
        inside,
        amount if reads else 0,
        reads,
        known,
        fetched={key: program.fetched.get(key, 0.0) for key in inside},
        sums=sums,
        common=tuple(common),
    )


def _least(problem: Problem, key: Key, options: Sequence[Option], how: How) -> Work:
    """No more, of any work, than each of the options does."""
    return of_fields(min, [problem.works.work(key, option.item, how) for option in options])


def _within_reductions(program: _Program, part: Part) -> bool:
    """Whether a part needs all that it is given within reductions, where it is not filled."""
    return bool(part.given) and not any(
        _had(part, *_without(program, part, name, within=True)) for name in part.given
    )


def _without(program: _Program, part: Part, name: str, within: bool = False) -> tuple[set[str], set[Key]]:
    """The buffers that can be filled, and the values that can be had, without ``name`` of what is given. ``within``: of its values,
    without those within reductions alone."""
    view = program.view
    places = frozenset(key for key in program.places(name) if not (within and outside(view.free[key[0]])))
    filled = {buffer for buffer, each in view.buffers.items() if each.arg is not None}
    filled |= {*part.given, *part.common} - {name}
    had: set[Key] = set()

    def ready(key: Key, option: Option) -> bool:
        if option.item is INSIDE:
            return key not in places
        if option.item.head == "Read":
            return str(option.item.payload[0]) in filled
        return all(child in had for child in option.children)

    grown = True
    while grown:
        grown = False
        for key in reversed(tuple(part.options)):
            if key not in had and any(ready(key, option) for option in part.options[key]):
                had.add(key)
                grown = True
        for buffer in part.buffers:
            if buffer not in filled and any((way.root, False) in had for way in view.buffers[buffer].ways):
                filled.add(buffer)
                grown = True
    return filled, had


def _had(part: Part, filled: Collection[str], had: Collection[Key]) -> bool:
    """Whether all that is made can be had where these can."""
    return all(made in filled or any(key in had for key in part.targets.get(made, ())) for made in part.made)
