"""The phases of one saturation, run round by round within their budgets. Runs in the worker's process.

Every rule is in a ruleset of its own, and a ruleset of the rule files is those of its rules combined, which costs no time.
So a rule can run by itself, where what it adds is to be known exactly, and can be put aside when it is over its budget
while the others go on.

Where rules ran together, what they added is shared out among those that build the constructors that grew, by their
matches. While the e-graph grows fast, the rules with the largest shares run alone, and a run that breaks the budget is
undone: the engine copies its tables on write, so that keeping a copy is cheap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from .engine import Engine, EngineError, RunResult
from .tally import Limits, Rulesets, Tally, by_rule, enodes, mapped_bytes, shares

BATCH = 64
"""Steps per call of the engine while the e-graph grows slowly."""

FAST = 1.25
"""Growth per round from which steps are taken one by one."""

EXPLODING = 3
"""Rounds of fast growth, one after the other, after which a rule of a user's may explode."""

EXPLODED = 1 / 16
"""The share of the e-nodes that such a rule has added."""

WATCHED = 4_000
"""E-nodes from which the rules that grow most run alone, or a tenth of the budget if that is less."""

SUSPECTS = 6
"""Rules that run alone at most."""

COPIES = 12
"""Copies of the e-graph at most: one that was not needed stays until the end."""

HELPER_STEPS = 512
"""Steps in which the rulesets of phase ``prop`` come to an end, where there are rules of a user's among them."""

OF_A_PHASE = ("iterations", "phase_enodes", "phase_seconds")
"""Limits after which the next phase follows."""

PATIENCE = 0.8
"""The share of the time after which no round is begun that may not end in time."""


class OutOfBudget(Exception):
    """The phase ends here; its text is the name of the limit."""


class Saturator:
    """Runs phases on an engine. ``banned``: the rules that were put aside; what limit each was over, in which round, and
    how many e-nodes it added in that."""

    def __init__(
        self, engine: Engine, rulesets: Rulesets, limits: Limits, send: Callable[[dict[str, Any]], None]
    ) -> None:
        self._engine, self._rulesets, self._limits, self._send = engine, rulesets, limits, send
        self._started = time.perf_counter()
        self._mapped = mapped_bytes()
        self._combined: dict[tuple[str, ...], str] = {}
        self._sizes = engine.sizes()
        self._copies: list[dict[tuple[str, ...], str]] = []  # the combined rulesets that each copy knows
        self._last = 0.0  # seconds of the last round
        self._number = 0  # of the round that runs
        self._fast = 0  # rounds of fast growth, one after the other
        self._running = ""  # the rule that runs alone
        self._anew = False  # whether the phase begins anew, as a rule exploded
        self.banned: dict[str, dict[str, Any]] = {}

    def run(self, phase: str, steps: Sequence[str], whole: bool) -> dict[str, Any]:
        """One phase, as a message. ``whole``: an e-graph of a whole program was sent already, so that to stop before
        the deadline is better than to be killed at it."""
        started, before, banned = time.perf_counter(), enodes(self._sizes), len(self.banned)
        stopped, error, rounds, done, batch, grown = None, None, 0, 0, 1, 1.0
        tally, self._fast = Tally(), 0
        watched = not self._rulesets.alone and self._rulesets.any_of_users(steps)
        level = len(self._copies)
        start = (level, self._sizes) if watched and self._copy() else None
        try:
            while True:
                self._check_before(started, rounds, grown, whole)
                began, size, self._number = time.perf_counter(), enodes(self._sizes), rounds + 1
                changed = self._round(steps, tally, batch, grown)
                rounds, done = rounds + 1, done + batch
                self._last = time.perf_counter() - began
                grown = enodes(self._sizes) / max(size, 1)
                self._fast = self._fast + 1 if grown >= FAST else 0
                batch = min(batch * 2, BATCH) if grown < FAST and not self._rulesets.alone else 1
                self._send(self._message(phase, rounds, tally))
                self._put_aside(tally)
                self._exploding(tally)
                if start is not None and self._anew:
                    self._undo(start[0])
                    self._sizes, tally.enodes, tally.recent = start[1], {}, {}
                    changed, grown, batch, self._fast, self._anew = True, 1.0, 1, 0, False
                if not changed:
                    break
                self._check_after(started, before)
        except OutOfBudget as limit:
            stopped = str(limit)
            self._measure(steps, tally)
            if stopped in OF_A_PHASE:
                self._put_aside_growing(tally, stopped)
        except EngineError as failure:
            stopped, error = "engine", str(failure)
        shared = {rule: round(count) for rule, count in tally.enodes.items() if round(count)}
        return {
            "kind": "phase",
            "phase": phase,
            "seconds": time.perf_counter() - started,
            "rounds": rounds,
            "steps": done,
            "enodes_before": before,
            "enodes": enodes(self._sizes),
            "sizes": self._sizes if error is None else {},
            "rule_seconds": tally.seconds,
            "rule_matches": tally.matches,
            "rule_growth": shared,
            "rule_enodes": shared if self._rulesets.alone else None,
            "banned": list(self.banned.values())[banned:],
            "stopped": stopped,
            "error": error,
            "failed_rule": self._running if error else "",
            "recent_rules": list(reversed(tally.changing)) if error else [],
            "grew_most": tally.most(),
        }

    def _message(self, phase: str, rounds: int, tally: Tally) -> dict[str, Any]:
        """After every round, so that it is known which rule to blame when the next one kills this process."""
        most = tally.most()
        return {
            "kind": "round",
            "phase": phase,
            "round": rounds,
            "enodes": enodes(self._sizes),
            "grew_most": most,
            "added": round(tally.recent.get(most, 0)),
        }

    def release(self) -> None:
        """Gives up all copies: the engine is at the one that it began with."""
        self._undo(0)

    # ---- rounds ----

    def _round(self, steps: Sequence[str], tally: Tally, batch: int, grown: float) -> bool:
        """One round; whether it changed anything."""
        suspects = self._suspects(steps, tally, grown)
        tally.recent = {}
        if suspects:
            return self._apart(steps, suspects, tally)
        kept, level = (dict(tally.enodes), self._sizes), len(self._copies)
        copied = self._fast >= EXPLODING - 1 and self._copy()
        changed = self._together(steps, tally, batch)
        if copied and enodes(self._sizes) > self._limits.enodes:
            self._undo(level)
            tally.enodes, self._sizes = kept
            largest = sorted(self._blamable(steps, tally.recent), key=lambda rule: -tally.recent[rule])
            if largest:
                tally.recent = {}
                return self._apart(steps, set(largest[:SUSPECTS]), tally)
            raise OutOfBudget("enodes")
        return changed

    def _together(self, steps: Sequence[str], tally: Tally, batch: int) -> bool:
        """``batch`` steps, each after the helpers are saturated."""
        step = " ".join(f"(run {name})" for name in map(self._name, steps) if name)
        if self._rulesets.any_of_users(self._rulesets.helpers):
            changed = self._help(tally)
            return self._counted(f"(seq {step})", tally) or changed
        helpers = " ".join(f"(run {name})" for name in map(self._name, self._rulesets.helpers) if name)
        return self._counted(f"(repeat {batch} (seq (saturate (seq {helpers})) {step}))", tally)

    def _apart(self, steps: Sequence[str], suspects: Collection[str], tally: Tally) -> bool:
        """One step in which the suspects run alone."""
        changed = self._help(tally)
        for ruleset in steps:
            members = self._rulesets.members.get(ruleset, ())
            for own, rule in members:
                if rule in suspects and rule not in self.banned:
                    changed |= self._one(own, rule, tally)
            others = self._name(ruleset, suspects)
            if others:
                changed |= self._counted(f"(run {others})", tally)
        return changed

    def _one(self, own: str, rule: str, tally: Tally) -> bool:
        """A run of one rule, undone if it breaks the budget."""
        sizes, level = self._sizes, len(self._copies)
        copied = not self._rulesets.alone and rule not in self._rulesets.kept and self._copy()
        self._running = rule
        changed = self._counted(f"(run {own})", tally, rule)
        self._running = ""
        if changed:
            tally.changing.pop(rule, None)
            tally.changing[rule] = None
        added = enodes(self._sizes) - enodes(sizes)
        total = enodes(self._sizes) > self._limits.enodes
        if copied and (total or added > (self._limits.rule_enodes or self._limits.enodes)):
            if total and tally.enodes[rule] < 0.25 * sum(tally.enodes.values()):
                raise OutOfBudget("enodes")  # others have used it up
            self._undo(level)
            self._sizes = sizes
            tally.enodes[rule] -= added
            self._anew = total and self._limits.rule_enodes is None and rule in self._rulesets.users
            self._ban(rule, "explodes" if self._anew else "total" if total else "enodes", tally)
        return changed

    def _help(self, tally: Tally) -> bool:
        """Saturates the helpers."""
        rulesets = self._rulesets
        if rulesets.alone:
            changed = False
            while any(
                [self._one(*each, tally) for name in rulesets.helpers for each in rulesets.members[name]]
            ):
                changed = True
            return changed
        changed = False
        for _ in range(HELPER_STEPS):
            names = filter(None, map(self._name, rulesets.helpers))
            if not self._counted(f"(seq {' '.join(f'(run {name})' for name in names)})", tally):
                return changed
            changed = True
            if enodes(self._sizes) > self._limits.enodes:
                self._put_aside_a_helper(tally, "enodes")
        self._put_aside_a_helper(tally, "iterations")
        return True

    def _counted(self, schedule: str, tally: Tally, alone: str = "") -> bool:
        """Runs a schedule and counts what its rules did."""
        before = self._sizes
        result = self._engine.run(schedule)
        known = self._rulesets.builds
        result = RunResult(result.changed, by_rule(result.seconds, known), by_rule(result.matches, known))
        for rule, spent in result.seconds.items():
            tally.seconds[rule] = tally.seconds.get(rule, 0.0) + spent
        for rule, count in result.matches.items():
            tally.matches[rule] = tally.matches.get(rule, 0) + count
        if result.changed:
            self._sizes = self._engine.sizes()
            grown = float(enodes(self._sizes) - enodes(before))
            for rule, added in [(alone, grown)] if alone else shares(before, self._sizes, result, known):
                tally.enodes[rule] = tally.enodes.get(rule, 0.0) + added
                tally.recent[rule] = tally.recent.get(rule, 0.0) + added
        return result.changed

    def _measure(self, steps: Sequence[str], tally: Tally) -> None:
        """Which of the rules that seem to have grown do so: each runs once more by itself, on a copy. What was shared out by
        matches would blame a rule that only finds again what is there."""
        rules = sorted(
            (rule for rule, added in tally.recent.items() if added > 0), key=lambda rule: -tally.recent[rule]
        )
        large = enodes(self._sizes) > 2 * self._limits.enodes
        sizes, level = self._sizes, len(self._copies)
        if len(rules) < 2 or large or self._rulesets.alone or not self._copy():
            return
        tried, names = Tally(), (*self._rulesets.helpers, *steps)
        alone = {rule: own for name in names for own, rule in self._rulesets.members.get(name, ())}
        for rule in rules[:SUSPECTS]:
            if rule in alone:
                self._counted(f"(run {alone[rule]})", tried, rule)
        self._undo(level)
        self._sizes = sizes
        if tried.most():
            tally.recent = tried.recent

    # ---- budgets ----

    def _check_before(self, started: float, rounds: int, grown: float, whole: bool) -> None:
        limits, now = self._limits, time.perf_counter()
        if rounds >= limits.rounds * (BATCH if self._rulesets.alone else 1):
            raise OutOfBudget("iterations")
        if not whole or not rounds:
            return
        expected = self._last * max(grown, 1.0)
        if now - self._started + expected > PATIENCE * limits.seconds:
            raise OutOfBudget("seconds")
        if grown >= FAST and (mapped_bytes() - self._mapped) * grown > PATIENCE * limits.memory_bytes:
            raise OutOfBudget("memory")

    def _check_after(self, started: float, before: int) -> None:
        limits, size = self._limits, enodes(self._sizes)
        if size > limits.enodes:
            raise OutOfBudget("enodes")
        if limits.phase_enodes is not None and size - before > limits.phase_enodes:
            raise OutOfBudget("phase_enodes")
        if limits.phase_seconds is not None and time.perf_counter() - started > limits.phase_seconds:
            raise OutOfBudget("phase_seconds")

    def _suspects(self, steps: Sequence[str], tally: Tally, grown: float) -> set[str]:
        """The rules that run alone in the next round; none: all run together."""
        if self._rulesets.alone:
            return {rule for name in steps for _, rule in self._rulesets.members.get(name, ())}
        suspects: set[str] = set()
        watched = min(WATCHED, self._limits.enodes // 10)
        blamable = self._blamable(steps, tally.recent)
        if grown >= FAST and enodes(self._sizes) >= watched:
            most = sum(tally.recent.values())
            heavy = sorted(blamable, key=lambda rule: -tally.recent[rule])[:SUSPECTS]
            suspects |= {rule for rule in heavy if tally.recent[rule] >= 0.1 * most}
        limit = self._limits.rule_enodes
        if limit is not None:
            suspects |= {rule for rule in blamable if tally.enodes[rule] > limit / 2}
        return suspects

    def _blamable(self, steps: Sequence[str], grown: Mapping[str, float]) -> list[str]:
        """The rules of ``steps`` that grew and may be put aside."""
        return [
            rule
            for name in steps
            for _, rule in self._rulesets.members.get(name, ())
            if grown.get(rule, 0) > 0 and rule not in self._rulesets.kept and rule not in self.banned
        ]

    def _put_aside(self, tally: Tally) -> None:
        """Bans the rules that are over their budget, for the rest of the saturation."""
        limits = self._limits
        over: dict[str, tuple[float | None, Mapping[str, float]]] = {
            "matches": (limits.rule_matches, tally.matches),
            "seconds": (limits.rule_seconds, tally.seconds),
            "enodes": (limits.rule_enodes, tally.enodes),
        }
        for limit, (most, counts) in over.items():
            for rule, count in counts.items():
                if most is not None and count > most and rule not in self._rulesets.kept:
                    self._ban(rule, limit, tally)

    def _exploding(self, tally: Tally) -> None:
        """Bans the user's rule that explodes, if one does: the largest, as others may grow on what it makes alone."""
        if self._anew or self._fast < EXPLODING or self._limits.rule_enodes is not None:
            return
        users = [rule for rule in self._rulesets.users if rule not in self.banned]
        most = max(users, key=lambda rule: tally.enodes.get(rule, 0.0), default="")
        if tally.enodes.get(most, 0.0) > self._limits.enodes * EXPLODED:
            self._ban(most, "explodes", tally)
            self._anew = True

    def _put_aside_growing(self, tally: Tally, limit: str) -> None:
        """Bans the user's rules that would grow on in the next phase, which runs the rulesets of this one as well."""
        most = max(tally.recent.values(), default=0.0)
        for rule in self._rulesets.users:
            if tally.recent.get(rule, 0.0) > 0.1 * most and rule not in self._rulesets.kept:
                self._ban(rule, limit, tally)

    def _put_aside_a_helper(self, tally: Tally, limit: str) -> None:
        """Bans the helper that may be banned and grew or matched most. Raises OutOfBudget where there is none."""
        rulesets = self._rulesets
        helpers = [
            rule
            for name in rulesets.helpers
            for _, rule in rulesets.members.get(name, ())
            if rule not in rulesets.kept and rule not in self.banned and tally.matches.get(rule)
        ]
        if not helpers:
            raise OutOfBudget(limit)
        most = max(helpers, key=lambda rule: (tally.recent.get(rule, 0), tally.matches[rule], rule))
        self._ban(most, limit, tally)

    def _ban(self, rule: str, limit: str, tally: Tally) -> None:
        added = round(tally.recent.get(rule, 0))
        self.banned.setdefault(rule, {"rule": rule, "limit": limit, "round": self._number, "added": added})

    # ---- the engine ----

    def _name(self, ruleset: str, without: Collection[str] = ()) -> str:
        """A ruleset of the engine with the rules of ``ruleset`` that are not banned; "" if there is none left."""
        members = tuple(
            own
            for own, rule in self._rulesets.members.get(ruleset, ())
            if rule not in self.banned and rule not in without
        )
        if not members:
            return ""
        if members not in self._combined:
            name = f"combined--{len(self._combined)}"
            self._engine.command(f"(unstable-combined-ruleset {name} {' '.join(members)})")
            self._combined[members] = name
        return self._combined[members]

    def _copy(self) -> bool:
        """Keeps a copy of the e-graph to return to; whether there was room for one."""
        if len(self._copies) >= COPIES:
            return False
        self._engine.command("(push)")
        self._copies.append(dict(self._combined))
        return True

    def _undo(self, level: int) -> None:
        """Returns to the copy that was the ``level``-th; what was declared after it does not exist there."""
        while len(self._copies) > level:
            self._engine.command("(pop)")
            self._combined = self._copies.pop()
