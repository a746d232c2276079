"""Buffers that hold one value at different steps of an elementwise computation: x, x * c, exp(x * c).

Which of them is stored changes little: a kernel that stores an earlier one does less, its readers do more. A long chain of them
makes the search for kernels long nevertheless. Taken as one buffer, which costs no more to fill than the first and from which
any of them is read, they give a bound of the program that is close and found soon.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..choice import COPYING, Kernel, Key
from ..pricing import priced
from ..problem import Option, Problem
from ..view import Item

ELEMENTWISE = frozenset({"Unary", "Binary", "Select", "Cast"})


def chains(
    problem: Problem, options: Mapping[Key, Sequence[Option]], names: Collection[str]
) -> dict[str, str]:
    """For each of the buffers ``names`` that is one step behind another of them, that one. What fills the first fills the
    second with less work, and a reader of the first may compute it from the second."""
    fixed = _fixed(problem, options)
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


def firsts(step: Mapping[str, str]) -> dict[str, str]:
    """The first buffer of each one's chain."""
    found: dict[str, str] = {}
    for name in step:
        first = name
        while first in step:
            first = step[first]
        found[name] = first
    return found


def stored(problem: Problem, kernels: Mapping[str, Kernel]) -> dict[str, Kernel] | None:
    """Kernels in which what is read of a chain is read from the one buffer of it that is filled: the one with which they
    cost least. ``kernels``: by the buffers that they fill; they may read others of a chain. None where that cannot be."""
    chain = _Chain(problem)
    found = dict(kernels)
    for name, kernel in kernels.items():
        wanted = {
            read
            for other in found.values()
            for read in reads(other)
            if read not in found and chain.path(read, name)
        }
        if not wanted:
            continue
        users = {each: other for each, other in found.items() if each != name and wanted & set(reads(other))}
        steps = [name]
        if not any(name in reads(other) for each, other in found.items() if each != name):
            paths = [chain.path(read, name) for read in sorted(wanted)]
            steps = [each for each in paths[0] if all(each in path for path in paths)]
        ways = [way for each in steps if (way := chain.through(each, kernel, users)) is not None]
        if not ways:
            return None
        best = min(ways, key=lambda way: sum(each.seconds for each in way.values()))
        del found[name]
        found |= best
    return found


def reads(kernel: Kernel) -> list[str]:
    """The buffers that a kernel reads and that are no inputs."""
    return [str(item.payload[0]) for item in kernel.items.values() if item.head == "Read"]


class _Chain:
    """Kernels rewritten along chains."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.options = problem, problem.options
        self.fixed = _fixed(problem, problem.options)
        self.names = frozenset(name for name, each in problem.view.buffers.items() if each.arg is None)
        self.known: dict[str, str | None] = {}

    def before(self, name: str) -> str | None:
        if name not in self.known and name in self.names:
            self.known[name] = _before(self.problem, self.options, self.fixed, name, self.names)
        return self.known.get(name)

    def path(self, name: str, first: str) -> list[str]:
        """From ``first`` to ``name``; empty where they are not of one chain."""
        found: list[str] = [name]
        while found[-1] != first:
            before = self.before(found[-1])
            if before is None or before in found:
                return []
            found.append(before)
        return found[::-1]

    def through(self, name: str, kernel: Kernel, users: Mapping[str, Kernel]) -> dict[str, Kernel] | None:
        """The kernels where ``name`` is filled instead of the buffer that ``kernel`` fills."""
        found: dict[str, Kernel] = {}
        first = kernel.buffer.cls
        for way in self.problem.view.buffers[name].ways if name != first else (kernel.way,):
            items = dict(kernel.items)
            if self._down((way.root, False), items, self.path(name, first)[::-1], kernel.root):
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
                path = self.path(read, name)[::-1] if read != name else []
                if len(path) > 1:
                    del items[key]
                    if not self._down(key, items, path, None):
                        return None
            changed = priced(self.problem, user.buffer, user.way, items)
            if changed is None:
                return None
            found[each] = changed
        return found

    def _down(self, key: Key, items: dict[Key, Item], path: Sequence[str], end: Key | None) -> bool:
        """Computes a value of the first buffer of ``path`` from that of the last: read from it, or at ``end``."""
        if key == end or (key in items and len(path) > 1 and end is None):
            return True
        if len(path) == 1:
            for option in self.options[key]:
                if end is None and option.item.head == "Read" and str(option.item.payload[0]) == path[0]:
                    items[key] = option.item
                    return True
            return False
        for option in self.options[key]:
            varying = [child for child in dict.fromkeys(option.children) if child not in self.fixed]
            if option.item.head in ELEMENTWISE and len(varying) == 1:
                inner = dict(items)
                if self._down(varying[0], inner, path[1:], end):
                    items |= inner
                    items[key] = option.item
                    for child in option.children:
                        if child in self.fixed:
                            self._plain(child, items)
                    return True
        return False

    def _plain(self, key: Key, items: dict[Key, Item]) -> None:
        """Computes a value that is made of constants and inputs."""
        if key not in items:
            option = self.options[key][0]
            items[key] = option.item
            for child in option.children:
                self._plain(child, items)


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
    shapes = {way.shape for way in buffer.ways}
    for other, way in problem.filled_by.get(child[0], ()):
        if (
            other.cls != name
            and other.cls in names
            and {way.shape} == shapes
            and problem.bytes(other) <= problem.bytes(buffer)
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


def _fixed(problem: Problem, options: Mapping[Key, Sequence[Option]]) -> frozenset[Key]:
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
