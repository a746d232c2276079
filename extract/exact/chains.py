"""Buffers that hold one value at different steps of an elementwise computation: x, x * c, exp(x * c).

Which of them is stored changes little: a kernel that stores an earlier one does less, its readers do more. A long chain of them
makes the search for kernels long nevertheless. Taken as one buffer, which costs no more to fill than the first and from which
any of them is read, they give a bound of the program that is close and found soon.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ..choice import COPYING, Kernel, Key
from ..cost.model import Work
from ..mates import ELEMENTWISE, squeezed
from ..pricing import priced
from ..problem import Option, Problem
from ..view import Item

PLACES = 8
"""Of a chain at most, where it is tried to store it."""


def chains(
    problem: Problem, options: Mapping[Key, Sequence[Option]], names: Collection[str]
) -> dict[str, str]:
    """For each of the buffers ``names`` that is one step behind another of them, that one. What fills the first fills the
    second with less work, and a reader of the first may compute it from the second."""
    fixed = plain_values(problem, options)
    readers: dict[str, list[Key]] = {}
    for key, found in options.items():
        for option in found:
            if option.item.head == "Read":
                readers.setdefault(str(option.item.payload[0]), []).append(key)
    result: dict[str, str] = {}
    for name in names:
        before = _before(problem, options, fixed, name, names)
        if before is not None and all(_through(options, fixed, key, before) for key in readers.get(name, ())):
            result[name] = before
    return result


def firsts(problem: Problem, step: Mapping[str, str]) -> dict[str, str]:
    """The first buffer of each one's chain. A chain ends where to compute its last value from the first costs as much as a
    kernel that copies the buffer: what is lost by taking it as one is less than that."""
    found: dict[str, tuple[str, float]] = {}
    for name in step:
        passed = [name]
        while passed[-1] in step and passed[-1] not in found:
            passed.append(step[passed[-1]])
        first, seconds = found.get(passed[-1], (passed[-1], 0.0))
        for each in reversed(passed[:-1]):
            roots = [(way.root, False) for way in problem.view.buffers[each].ways]
            seconds += min(
                (
                    option.own
                    for root in roots
                    for option in problem.options[root]
                    if option.item.head != "Read"
                ),
                default=0.0,
            )
            size = problem.works.bytes(problem.view.buffers[each])
            if seconds > problem.model.kernel(Work(bytes_read=size, bytes_written=size)):
                first, seconds = each, 0.0
            found[each] = first, seconds
    return {name: first for name, (first, _) in found.items() if name != first}


def stored(problem: Problem, kernels: Mapping[str, Kernel]) -> dict[str, Kernel] | None:
    """Kernels in which what is read of a chain is read from the one buffer of it that is filled: the one with which they
    cost least. ``kernels``: by the buffers that they fill; they may read others of a chain. None where that cannot be."""
    chain = _Chain(problem)
    found = dict(kernels)
    # by the buffer that is filled: of those that are read, the steps to each
    paths: dict[str, dict[str, list[str]]] = {}
    for read in dict.fromkeys(read for kernel in kernels.values() for read in reads(kernel)):
        path = [] if read in kernels else chain.path(read, kernels)
        if path:
            paths.setdefault(path[0], {})[read] = path
    for name, wanted in paths.items():
        users = {
            each: other for each, other in found.items() if each != name and wanted.keys() & set(reads(other))
        }
        steps = [name]
        if not any(name in reads(other) for each, other in found.items() if each != name):
            steps = [same[0] for same in zip(*wanted.values(), strict=False) if len(set(same)) == 1]
        steps = [*steps[:: max(1, len(steps) // PLACES)], steps[-1]]
        kernel = found[name]
        ways = [
            way
            for each in dict.fromkeys(steps)
            if (way := chain.through(each, kernel, users, wanted)) is not None
        ]
        if not ways:
            return None
        best = min(ways, key=lambda way: sum(each.seconds for each in way.values()))
        del found[name]
        found |= best
    return found


def reads(kernel: Kernel) -> list[str]:
    """The buffers that a kernel reads, inputs among them."""
    return [str(item.payload[0]) for item in kernel.items.values() if item.head == "Read"]


class _Chain:
    """Kernels rewritten along chains."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.options = problem, problem.options
        self.fixed = plain_values(problem, problem.options)
        self.names = frozenset(name for name, each in problem.view.buffers.items() if each.arg is None)
        self.known: dict[str, str | None] = {}

    def before(self, name: str) -> str | None:
        if name not in self.known and name in self.names:
            self.known[name] = _before(self.problem, self.options, self.fixed, name, self.names)
        return self.known.get(name)

    def path(self, name: str, filled: Collection[str]) -> list[str]:
        """The chain from a buffer that is filled to ``name``; empty where there is none."""
        found = {name: None}
        while (last := next(reversed(found))) not in filled:
            before = self.before(last)
            if before is None or before in found:
                return []
            found[before] = None
        return list(found)[::-1]

    def through(
        self, name: str, kernel: Kernel, users: Mapping[str, Kernel], paths: Mapping[str, Sequence[str]]
    ) -> dict[str, Kernel] | None:
        """The kernels where ``name`` is filled instead of the buffer that ``kernel`` fills. ``paths``: the chain from that to
        what ``users`` read."""
        found: dict[str, Kernel] = {}
        chain = next(iter(paths.values()))
        steps = [] if name == kernel.buffer.cls else chain[: chain.index(name) + 1][::-1]
        for way in self.problem.view.buffers[name].ways if steps else (kernel.way,):
            items = dict(kernel.items)
            if not steps or self._down((way.root, False), items, steps, kernel.root):
                filled = priced(self.problem, self.problem.view.buffers[name], way, items)
                if filled is not None:
                    found[name] = filled
                    break
        if name not in found:
            return None
        for each, user in users.items():
            items = dict(user.items)
            for key, item in user.items.items():
                read = str(item.payload[0]) if item.head == "Read" else name
                if read in paths and read != name:
                    del items[key]
                    if not self._down(key, items, paths[read][paths[read].index(name) :][::-1], None):
                        return None
            changed = priced(self.problem, user.buffer, user.way, items)
            if changed is None:
                return None
            found[each] = changed
        return found

    def _down(self, key: Key, items: dict[Key, Item], path: Sequence[str], end: Key | None) -> bool:
        """Computes a value of the first buffer of ``path`` from that of the last: read from it, or at ``end``."""
        for before in path[1:]:
            option, child = self._step(key, before, end if before == path[-1] else None)
            if option is None:
                return False
            items[key] = option.item
            for other in option.children:
                if other in self.fixed:
                    self._plain(other, items)
            key = child
            if key in items and end is None:  # it is at hand
                return True
        if key != end:
            items[key] = next(item for item in self._read(key) if str(item.payload[0]) == path[-1])
        return True

    def _step(self, key: Key, before: str, end: Key | None) -> tuple[Option | None, Key]:
        """The option by which a value is computed from one of ``before``, or from ``end``, and that value."""
        for option in self.options[key]:
            varying = [child for child in dict.fromkeys(option.children) if child not in self.fixed]
            if option.item.head in ELEMENTWISE and len(varying) == 1:
                (child,) = varying
                read = any(str(item.payload[0]) == before for item in self._read(child))
                if child == end if end is not None else read:
                    return option, child
        return None, key

    def _read(self, key: Key) -> Iterator[Item]:
        return (option.item for option in self.options[key] if option.item.head == "Read")

    def _plain(self, key: Key, items: dict[Key, Item]) -> None:
        """Computes a value that is made of constants and inputs."""
        stack = [key]
        while stack:
            key = stack.pop()
            if key not in items:
                option = self.options[key][0]
                items[key] = option.item
                stack += option.children


def _before(
    problem: Problem,
    options: Mapping[Key, Sequence[Option]],
    fixed: frozenset[Key],
    name: str,
    names: Collection[str],
) -> str | None:
    """The buffer of the one value that all ways to compute a buffer are made of, beside constants and inputs."""
    buffer = problem.view.buffers[name]
    values = {
        frozenset(option.children) - fixed
        for way in buffer.ways
        for option in options.get((way.root, False), ())
        if option.item.head != "Read"
    }
    heads = {
        option.item.head
        for way in buffer.ways
        for option in options.get((way.root, False), ())
        if option.item.head != "Read"
    }
    if len(values) != 1 or not heads <= ELEMENTWISE:
        return None
    (children,) = values
    if len(children) != 1:
        return None
    (child,) = children
    shapes = {squeezed(way) for way in buffer.ways}
    for other, way in problem.filled_by.get(child[0], ()):
        if (
            other.cls != name
            and other.cls in names
            and {squeezed(way)} == shapes
            and problem.works.bytes(other) <= problem.works.bytes(buffer)
        ):
            return other.cls
    return None


def _through(options: Mapping[Key, Sequence[Option]], fixed: frozenset[Key], key: Key, before: str) -> bool:
    """Whether a value can be computed from what is read from ``before``, beside constants and inputs."""
    for option in options[key]:
        children = [child for child in dict.fromkeys(option.children) if child not in fixed]
        if option.item.head in ELEMENTWISE and len(children) == 1:
            reads = (each.item for each in options.get(children[0], ()) if each.item.head == "Read")
            if any(str(item.payload[0]) == before for item in reads):
                return True
    return False


def plain_values(problem: Problem, options: Mapping[Key, Sequence[Option]]) -> frozenset[Key]:
    """Values that are made of constants, indices and inputs alone, in every way."""
    buffers = problem.view.buffers
    found: dict[Key, bool] = {}

    def plain(option: Option) -> bool:
        if option.item.head == "Read":
            name = str(option.item.payload[0])
            return name in buffers and buffers[name].arg is not None
        return option.item.head in COPYING | ELEMENTWISE and all(
            found.get(child, False) for child in option.children
        )

    for key in problem.order:  # operands come first
        if key in options:
            found[key] = bool(options[key]) and all(map(plain, options[key]))
    return frozenset(key for key, is_fixed in found.items() if is_fixed)
