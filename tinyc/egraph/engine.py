"""The only module that imports egglog. It hides what differs between its versions (13.2 and 14) and its traps.

* Rule files are loaded by ``(include "<absolute path>")``: parsing large text is quadratic in the engine.
* A panic of the engine is a BaseException; every failure leaves here as :class:`EngineError`.
* Run reports of 13.2 give a thousandth of the true time; :meth:`Engine.run` returns seconds.
* Programs go in as syntax objects in the body of one rule, so that the engine rebuilds once.

This module runs in the worker process (``worker.py``), never in the caller's.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from egglog import bindings

from .graph import RECORD

VERSION = importlib.metadata.version("egglog")

Term = tuple[str, tuple[Any, ...]]
"""A flat term: constructor name and arguments. An argument is an int (i64), a str (String) or a Ref."""


Argument = int | str
"""An integer, a string literal as ``"'text"``, or the name of a class."""

Row = tuple[tuple[Argument, ...], Argument]
"""Arguments and result of a constructor, function or relation."""

CONTAINERS = {"Ixs": ("vec", "Ix"), "Ints": ("vec", "i64"), "Axes": ("set", "Atom")}
"""Sorts of the schema whose values are made of others."""


@dataclass(frozen=True)
class Tables:
    """``rows`` per table name; ``containers``: the elements of each vector and set among the arguments. ``whole``: the
    tables that were asked for with their subsumed rows."""

    rows: dict[str, list[Row]]
    containers: dict[str, tuple[Argument, ...]]
    whole: dict[str, list[Row]]


@dataclass(frozen=True, slots=True)
class Ref:
    """The term at this position of the list that is being inserted."""

    index: int


class EngineError(Exception):
    """An error or panic of the engine, as its message."""


@dataclass(frozen=True)
class RunResult:
    """What one run of a schedule did. ``seconds`` and ``matches``: per rule name."""

    changed: bool
    seconds: dict[str, float]
    matches: dict[str, int]


class Engine:
    """One e-graph."""

    def __init__(self) -> None:
        self._egraph = bindings.EGraph()
        self._span = bindings.PanicSpan()

    def include(self, path: Path) -> None:
        """Loads a rule file."""
        text = str(path)
        if '"' in text or "\\" in text or "\n" in text:
            raise EngineError(f"the path {text!r} holds a character that a rule file's path cannot have")
        self.command(f'(include "{text}")')

    def command(self, text: str) -> list[Any]:
        """Runs a few short commands. Never give it text that a user named."""
        try:
            return list(self._egraph.run_program(*self._egraph.parse_program(text)))
        except BaseException as error:  # PanicException is not an Exception
            if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
                raise
            raise EngineError(_message(error)) from None

    def insert(self, terms: Sequence[Term], facts: Iterable[Term], sets: Iterable[tuple[Term, Any]]) -> None:
        """Adds terms, relation facts and function values ``(set call value)`` in one rule and runs it."""
        b, span = bindings, self._span

        def argument(value: Any) -> Any:
            match value:
                case Ref(index):
                    return b.Var(span, f"t{index}")
                case bool() | int():
                    return b.Lit(span, b.Int(int(value)))
                case str():
                    return b.Lit(span, b.String(value))
            raise TypeError(value)

        def call(term: Term) -> Any:
            return b.Call(span, term[0], [argument(value) for value in term[1]])

        actions: list[Any] = [b.Let(span, f"t{index}", call(term)) for index, term in enumerate(terms)]
        actions += [b.Expr_(span, call(fact)) for fact in facts]
        for (name, args), value in sets:
            actions.append(b.Set(span, name, [argument(arg) for arg in args], argument(value)))
        rule = b.Rule(span, actions, [], "program/insert", "tinyc-program")
        config = b.RunConfig("tinyc-program")
        try:
            self._egraph.run_program(
                b.AddRuleset(span, "tinyc-program"),
                b.RuleCommand(rule),
                b.RunSchedule(b.Run(span, config)),
            )
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
                raise
            raise EngineError(_message(error)) from None

    def run(self, schedule: str) -> RunResult:
        """Runs ``(run-schedule <schedule>)``. Seconds are true seconds in every version of the engine."""
        started = time.perf_counter()
        outputs = self.command(f"(run-schedule {schedule})")
        wall = time.perf_counter() - started
        report = next(output.report for output in outputs if hasattr(output, "report"))
        seconds = {
            rule: spent.total_seconds() for rule, spent in report.search_and_apply_time_per_rule.items()
        }
        total = sum(seconds.values())
        # 13.2 reports milliseconds in the field for microseconds: a thousandth. A sum that is a hundred times
        # below the wall time, and below what the resolution could hide, can only be that.
        if 0 < total < wall / 100:
            seconds = {rule: min(spent * 1000, wall) for rule, spent in seconds.items()}
        matches = {rule: int(count) for rule, count in report.num_matches_per_rule.items()}
        return RunResult(bool(report.updated), seconds, matches)

    def sizes(self) -> dict[str, int]:
        """Rows per constructor, function and relation; without the records of matches, which are no part of it."""
        (output,) = self.command("(print-size)")
        return {name: int(count) for name, count in output.sizes if not name.startswith(RECORD)}

    def facts(self, relation: str, limit: int = 100_000) -> list[tuple[Any, ...]]:
        """The rows of a relation over strings and integers."""
        (output,) = self.command(f"(print-function {relation} {limit})")
        dag = output.termdag
        rows = []
        for term, _ in output.terms:
            node = dag.get(term) if isinstance(term, int) else term
            rows.append(tuple(_literal(dag.get(arg)) for arg in node.args))
        return rows

    def tables(self, names: Iterable[str], whole: Iterable[str] = ()) -> Tables:
        """The rows of constructors, functions and relations, without those that are subsumed; and of ``whole``, with
        them. Classes are named as if the first were read alone.

        Read from a frozen copy: the engine's serialized form holds every row of every table as text, and takes thirty
        times as long.
        """
        frozen = self._egraph.freeze().functions
        reader = _Reader(self._egraph)

        def read(name: str, subsumed: bool) -> list[Row]:
            table = frozen.get(name)
            return (
                []
                if table is None
                else [
                    (
                        tuple(map(reader.argument, table.input_sorts, row.inputs)),
                        reader.argument(table.output_sort, row.output),
                    )
                    for row in table.rows
                    if subsumed or not row.subsumed
                ]
            )

        rows = {name: read(name, False) for name in names}
        return Tables(rows, reader.containers, {name: read(name, True) for name in whole})


class _Reader:
    """Names the values of a frozen e-graph in the order in which they are met."""

    def __init__(self, egraph: Any) -> None:
        self._egraph = egraph
        self._names: dict[tuple[str, Any], str] = {}
        self.containers: dict[str, tuple[Argument, ...]] = {}

    def argument(self, sort: str, value: Any) -> Argument:
        if sort == "i64":
            return int(self._egraph.value_to_i64(value))
        if sort == "String":
            return "'" + str(self._egraph.value_to_string(value))
        known = self._names.get((sort, value))
        if known is not None:
            return known
        name = self._names[sort, value] = f"{sort}-{len(self._names)}"
        kind, element = CONTAINERS.get(sort, ("", ""))
        if kind == "vec":
            items = self._egraph.value_to_vec(value)
            self.containers[name] = tuple(self.argument(element, item) for item in items)
        elif kind == "set":
            members = (self.argument(element, item) for item in self._egraph.value_to_set(value))
            self.containers[name] = tuple(sorted(members, key=str))
        return name


def _literal(term: Any) -> Any:
    return term.value.value


def _message(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text.strip()
