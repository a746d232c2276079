"""How often rules match, what they cost and how much they add, over the example programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tinyc.egraph.rulefiles import RuleBase, load_rules
from tinyc.egraph.saturate import Budget, Saturation, saturate
from tinyc.extract.cost.hardware import hardware
from tinyc.index.boundaries import boundaries
from tinyc.index.derive import index_book
from tinyc.index.hints import CAPACITY
from tinyc.ir.tiny import Program

from .examples import TARGETS, Example, examples, together

BUDGET = Budget(seconds=60.0)

GROUP = 5
"""Examples that are saturated as one program, where they are not small."""

VERSION = 1
"""Of the JSON form."""

IDLE_BUDGET_S = 0.05
"""Seconds that a rule may cost per 1000 e-nodes of programs in which it matches nothing, above :data:`IDLE_FLOOR_S`. The
engine measures them, to a millisecond; a rule of tinyc's takes an eighth of it on a busy machine, one whose left-hand side
makes the matcher explode a hundred times as much. To look for nothing is pure loss, and every program pays for it."""

IDLE_FLOOR_S = 0.1
"""Seconds that are no matter: what a busy machine does to the measurement."""


@dataclass(frozen=True)
class RuleStats:
    """One rule over all programs. ``programs``: in how many it matched. ``time_s``: true seconds of search and
    application. ``enodes``: e-nodes that it added, shared out where rules ran together (exact of a profile).
    ``idle_time_s``: seconds in programs where it matched nothing, and ``idle_enodes`` the size of those.
    ``phases``: phase -> matches, seconds, e-nodes."""

    rule: str
    ruleset: str
    programs: int
    matches: int
    time_s: float
    enodes: int
    idle_time_s: float
    idle_enodes: int
    phases: dict[str, dict[str, float]]

    @property
    def over_budget(self) -> bool:
        """Whether it costs more than its budget where it matches nothing."""
        return self.idle_time_s > IDLE_FLOOR_S + IDLE_BUDGET_S * self.idle_enodes / 1000


@dataclass(frozen=True)
class ProgramStats:
    """One saturation."""

    program: str
    target: str
    enodes: int
    time_s: float
    complete: bool


@dataclass(frozen=True)
class Stats:
    """``exact``: e-nodes per rule were counted, not shared out. ``by``: what the rules are sorted by, "" for the order of
    their files; the programs are sorted with them, the largest first."""

    programs: tuple[ProgramStats, ...]
    rules: tuple[RuleStats, ...]
    exact: bool
    by: str = ""

    def sorted(self, by: str) -> Stats:
        """The rules with most of something first: "time", "matches" or "growth"; by name where they are equal."""
        orders: dict[str, Callable[[RuleStats], float]] = {
            "time": lambda rule: rule.time_s,
            "matches": lambda rule: rule.matches,
            "growth": lambda rule: rule.enodes,
        }
        rules = sorted(self.rules, key=lambda rule: (-orders[by](rule), -rule.matches, rule.rule))
        programs = sorted(self.programs, key=lambda each: (-each.enodes, each.program, each.target))
        return Stats(tuple(programs), tuple(rules), self.exact, by)

    @property
    def phases(self) -> list[tuple[str, dict[str, float]]]:
        """(phase, matches, seconds and e-nodes of all rules in it), the most expensive first."""
        found: dict[str, dict[str, float]] = {}
        for rule in self.rules:
            for phase, counts in rule.phases.items():
                total = found.setdefault(phase, dict.fromkeys(counts, 0.0))
                for name, count in counts.items():
                    total[name] += count
        return sorted(found.items(), key=lambda item: (-item[1]["time_s"], -item[1]["matches"], item[0]))

    def to_json(self) -> dict[str, Any]:
        rules = [{**asdict(each), "over_budget": each.over_budget} for each in self.rules]
        return {
            "version": VERSION,
            "exact": self.exact,
            "by": self.by,
            "phases": {name: dict(counts) for name, counts in self.phases},
            "programs": [asdict(each) for each in self.programs],
            "rules": rules,
        }


@dataclass
class _Sums:
    programs: int = 0
    idle_time_s: float = 0.0
    idle_enodes: int = 0
    phases: dict[str, dict[str, float]] = field(default_factory=dict)


def saturated(
    program: Program, base: RuleBase, target: str, profile: bool = False, blame: bool = True
) -> Saturation:
    """The e-graph of a program as it is compiled for ``target``, with all rulesets, those that are off as well.

    Raises what :func:`tinyc.egraph.saturate.saturate` does.
    """
    off = [ruleset.name for ruleset in base.rulesets if not ruleset.default]
    apart = boundaries(program, index_book(program), CAPACITY[target])
    limits = hardware(target).limits
    return saturate(
        program, base, also=off, budget=BUDGET, profile=profile, apart=apart, machine=limits, blame=blame
    )


def collect(
    programs: Iterable[Example], files: Sequence[str | Path] = (), profile: bool = False, rounds: int = 1
) -> Stats:
    """Saturates every program for each of its targets. ``rounds``: how often; the least time of a rule counts.

    Raises TinycError as the saturations do.
    """
    base = load_rules(files)
    sums = {rule.name: _Sums() for rule in base.rules}
    done: list[ProgramStats] = []
    for example in programs:
        for target in example.targets:
            runs = [saturated(example.program, base, target, profile) for _ in range(rounds)]
            done.append(_add(example.name, target, runs, sums))
    rules = []
    for rule in base.rules:
        total = sums[rule.name]
        matches, time_s, enodes = (
            sum(counts[name] for counts in total.phases.values()) for name in ("matches", "time_s", "enodes")
        )
        counts = (total.programs, int(matches), float(time_s), int(enodes))
        rules.append(
            RuleStats(rule.name, rule.ruleset, *counts, total.idle_time_s, total.idle_enodes, total.phases)
        )
    return Stats(tuple(done), tuple(rules), profile)


def _add(name: str, target: str, runs: Sequence[Saturation], sums: dict[str, _Sums]) -> ProgramStats:
    first = runs[0]
    size = first.phases[-1].enodes if first.phases else 0
    for rule, total in sums.items():
        matched, spent = 0, 0.0
        for number, phase in enumerate(first.phases):
            matches = phase.rule_matches.get(rule, 0)
            seconds = min(
                run.phases[number].rule_seconds.get(rule, 0.0) for run in runs if number < len(run.phases)
            )
            growth = phase.rule_growth.get(rule, 0)
            if matches or seconds or growth:
                counter = total.phases.setdefault(phase.name, {"matches": 0, "time_s": 0.0, "enodes": 0})
                counter["matches"] += matches
                counter["time_s"] += seconds
                counter["enodes"] += growth
            matched, spent = matched + matches, spent + seconds
        total.programs += matched > 0
        if not matched:
            total.idle_time_s += spent
            total.idle_enodes += size
    spent = min(sum(phase.seconds for phase in run.phases) for run in runs)
    return ProgramStats(name, target, size, spent, first.complete)


def unmatched(files: Sequence[str | Path], wanted: Iterable[str]) -> tuple[str, ...]:
    """Those of the rules ``wanted`` that match in no example. Stops as soon as all have matched.

    The examples are saturated a few at a time, as one program; the larger ones for the CPU alone, unless a rule that is
    still sought belongs to phase plan. Raises TinycError as the saturations do.
    """
    base = load_rules(files)
    plans = {rule.name for rule in base.rules if rule.phase == "plan"}
    left = dict.fromkeys(wanted)
    for group, target in _groups(list(examples())):
        if not left:
            break
        if target != TARGETS[0] and len(group) <= GROUP and not plans & set(left):
            continue
        found = [saturated(together(group), base, target, blame=False)]
        if not found[0].complete:  # one by one, so that what is at fault is named
            found = [saturated(program, base, target) for program in group]
        for phase in (phase for each in found for phase in each.phases):
            for rule, count in phase.rule_matches.items():
                if count:
                    left.pop(rule, None)
    return tuple(left)


def _groups(everything: Sequence[Example]) -> Iterator[tuple[list[Program], str]]:
    """What is saturated together: the small examples, then the others."""
    for target in TARGETS:
        yield [each.program for each in everything if each.small and target in each.targets], target
    others = [each for each in everything if not each.small]
    for target in TARGETS:
        programs = [each.program for each in others if target in each.targets]
        for start in range(0, len(programs), GROUP):
            yield programs[start : start + GROUP], target
