"""GPU IR with one statement changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

Kernel = TypeVar("Kernel", bound=Any)
Path = tuple[int, ...]


def positions(kernel: Any) -> list[tuple[Path, Any]]:
    """All statements; one of a loop's body has a number more than the loop."""

    def within(statements: tuple[Any, ...], path: Path) -> Iterator[tuple[Path, Any]]:
        for number, statement in enumerate(statements):
            yield (*path, number), statement
            yield from within(getattr(statement, "body", ()), (*path, number))

    return list(within(kernel.stmts, ()))


def edited(kernel: Kernel, path: Path, *new: Any) -> Kernel:
    """``kernel`` with ``new`` in place of the statement at ``path``."""

    def within(statements: tuple[Any, ...], path: Path) -> tuple[Any, ...]:
        at, *rest = path
        inner = new
        if rest:
            inner = (replace(statements[at], body=within(statements[at].body, tuple(rest))),)
        return (*statements[:at], *inner, *statements[at + 1 :])

    changed: Kernel = replace(kernel, stmts=within(kernel.stmts, path))
    return changed


def earlier(kernel: Kernel, path: Path) -> Kernel:
    """With the statement at ``path`` before the one that it followed."""
    everything = dict(positions(kernel))
    before = (*path[:-1], path[-1] - 1)
    return edited(edited(kernel, path, everything[before]), before, everything[path])


def widths(old: int) -> list[int]:
    """Narrower accesses, and for results wider ones."""
    return [new for new in (0, 4, 8) if new < old] if old in (4, 16) else [1, 3, 4, 16, 64]


def shown(value: Any) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)
