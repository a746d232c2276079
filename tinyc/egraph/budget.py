"""Limits of an optimisation, and what is said when one of them is reached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from tinyc.ir.diagnostics import Diagnostic, TinycError, show


@dataclass(frozen=True)
class Budget:
    """Limits of one optimisation. Running out is no failure: the best program so far is used, with a warning.

    ``seconds``: wall time. ``enodes``: rows of constructors. ``iterations``: rounds per phase (a round is one step
    while the e-graph grows fast, up to 64 while it does not). ``memory_bytes``: of the engine's process.

    ``phase_seconds``, ``phase_enodes``: of each phase, of the e-nodes that it adds; the next phase follows, without the
    rules of a user's that were growing. They are looked at between rounds, since the engine cannot be interrupted.

    ``rule_seconds``, ``rule_matches``, ``rule_enodes``: of each rule, in each phase. A rule that is over its budget is put
    aside for the rest of the optimisation, and the others go on. The base lowering (tinyc's own rules of phases prop
    and movement) is never put aside. Where ``rule_enodes`` is not given, a user's rule that explodes (a sixteenth
    of ``enodes`` is its own, after three rounds of fast growth) is put aside and the phase begins anew without it.

    ``extract_seconds``, ``extract_steps``: of the exact search for the cheapest kernels, wall time and partial kernels
    that it looks at. Where either is 0 the greedy choice is taken as it is. The steps are a count: a search that they
    end ends alike on every machine.

    ``extract_processes``: that this search may use, on Linux; by default as many as there are cores for it, up to 4. The others are forks,
    which end with the search; with 1 there are none. What it finds does not depend on them.
    """

    seconds: float = 30.0
    enodes: int = 200_000
    iterations: int = 50
    memory_bytes: int = 2 << 30
    phase_seconds: float | None = None
    phase_enodes: int | None = None
    rule_seconds: float | None = None
    rule_matches: int | None = None
    rule_enodes: int | None = None
    extract_seconds: float = 30.0
    extract_steps: int = 250_000
    extract_processes: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise TinycError(
                    "InvalidArgument",
                    f"Budget.{field.name} is {show(value)}",
                    "give a number that is not negative",
                    at={"layer": "egraph", "value": f"Budget.{field.name}"},
                )

    def to_request(self) -> dict[str, Any]:
        """As the worker reads it: numbers that JSON has, ``phases.Limits`` with other names."""
        given = {name: value for name, value in asdict(self).items() if not name.startswith("extract")}
        limits = {name: min(value, 2**62) for name, value in given.items() if value is not None}
        return {**given, **limits, "memory_bytes": int(limits["memory_bytes"])}


@dataclass(frozen=True)
class Banned:
    """A rule that was put aside: the limit that it was over, in which round of the phase, and how many e-nodes it added
    in that round."""

    rule: str
    limit: str
    round: int
    added: int


#: limit, as the worker names it -> what is said of its value
_SPENT = {
    "seconds": "{0.seconds:g} s, of which the next round would take too much",
    "enodes": "{0.enodes} e-nodes",
    "iterations": "{0.iterations} rounds",
    "memory": "{0.memory_bytes} bytes of memory, of which the next round would take too much",
    "phase_seconds": "{0.phase_seconds} s for a phase",
    "phase_enodes": "{0.phase_enodes} e-nodes more for a phase",
}
_OVER = {
    "seconds": "{0.rule_seconds} s for a rule",
    "matches": "{0.rule_matches} matches for a rule",
    "enodes": "{0.rule_enodes} e-nodes for a rule",
    "total": "{0.enodes} e-nodes for all, which one step of it broke and was undone",
    "explodes": "a sixteenth of {0.enodes} e-nodes after rounds of fast growth; the phase began anew without it",
    "iterations": "rounds in which a phase comes to an end",
    "phase_seconds": "{0.phase_seconds} s for a phase, at the end of which it was still growing",
    "phase_enodes": "{0.phase_enodes} e-nodes more for a phase, at the end of which it was still growing",
}


def phase_stopped(phase: str, enodes: int, steps: int, limit: str, rule: str, budget: Budget) -> Diagnostic:
    """A phase that a limit ended. ``rule``: which grew most in its last round."""
    spent = _SPENT.get(limit, limit).format(budget)
    blame = f"; rule {rule} grew most in its last round" if rule else ""
    return Diagnostic(
        "BudgetExhausted",
        f"phase {phase} stopped at {enodes} e-nodes after {steps} steps: its budget of {spent} is spent{blame}",
        "raise the budget, or leave out the ruleset of that rule (without=…)",
        {"layer": "egraph", "rule": rule or None},
    )


def rules_put_aside(phase: str, banned: Sequence[Banned], budget: Budget) -> Diagnostic:
    """Rules that were over their budget, the first to be put aside first."""
    said = [
        f"rule {each.rule} in round {each.round}, where it added {each.added} e-nodes (its budget: "
        f"{_OVER[each.limit].format(budget)})"
        for each in banned
    ]
    return Diagnostic(
        "BudgetExhausted",
        f"put aside in phase {phase}, while the other rules went on: {'; '.join(said)}",
        "leave out its ruleset (without=…), make the rule build less, or raise the budget",
        {"layer": "egraph", "rule": banned[0].rule},
    )


def engine_lost(why: str, after: str, used: str, rounds: Iterable[Mapping[str, Any]]) -> Diagnostic:
    """The engine's process ended, after phase ``after`` or, if that is empty, before any was done. ``rounds``: its messages
    about them, of which the last names a rule to blame."""
    where = f"after phase {after}" if after else "in its first phase"
    last = next((each for each in reversed(list(rounds)) if each["grew_most"]), None)
    blame, rule = "", None
    if last is not None:
        rule = last["grew_most"]
        blame = (
            f"; in the last round that finished (phase {last['phase']}, round {last['round']}, {last['enodes']} e-nodes) "
            f"rule {rule} grew most, by {last['added']} e-nodes"
        )
    return Diagnostic(
        "EngineLost",
        f"the rewrite engine was lost {where}: {why}; {used}{blame}",
        "raise the budget, or leave out the ruleset that grows (without=…)",
        {"layer": "egraph", "rule": rule},
    )
