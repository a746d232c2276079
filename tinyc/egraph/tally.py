"""What the phases of a saturation are given and count: limits, rulesets, and who added what. Runs in the worker's process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from .engine import RunResult

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Limits:
    """Of one saturation, see ``saturate.Budget``. None: no limit."""

    seconds: float
    enodes: int
    rounds: int
    memory_bytes: int
    phase_seconds: float | None
    phase_enodes: int | None
    rule_seconds: float | None
    rule_enodes: int | None
    rule_matches: int | None


@dataclass(frozen=True)
class Rulesets:
    """``members``: ruleset -> (own ruleset, rule) of each of its rules. ``builds``: every rule -> constructor -> how often its
    right-hand side builds it. ``helpers``: saturated before every step. ``kept``: rules that are never put aside, as
    there is no program without them. ``users``: rules that are not tinyc's own. ``alone``: every rule runs by itself,
    always."""

    members: Mapping[str, Sequence[tuple[str, str]]]
    builds: Mapping[str, Mapping[str, int]]
    helpers: Sequence[str]
    kept: Collection[str]
    users: Collection[str]
    alone: bool

    def any_of_users(self, names: Sequence[str]) -> bool:
        """Whether a rule of a user's is in one of these rulesets."""
        return any(rule in self.users for name in names for _, rule in self.members.get(name, ()))


@dataclass
class Tally:
    """What the rules did in one phase. ``recent``: e-nodes of the round that runs or ran last."""

    seconds: dict[str, float] = field(default_factory=dict)
    matches: dict[str, int] = field(default_factory=dict)
    enodes: dict[str, float] = field(default_factory=dict)
    recent: dict[str, float] = field(default_factory=dict)
    changing: dict[str, None] = field(
        default_factory=dict
    )  # rules that ran alone and changed something, in order

    def most(self) -> str:
        """The rule that grew most in the last round, by name where several did; "" where none grew."""
        grown = {rule: count for rule, count in self.recent.items() if count >= 0.5}
        return max(sorted(grown), key=lambda rule: grown[rule], default="")


def by_rule(counts: Mapping[str, Number], known: Collection[str]) -> dict[str, Number]:
    """Both directions of a birewrite, which the engine names ``rule=>`` and ``rule<=``, are one rule."""
    summed: dict[str, Number] = {}
    for name, count in counts.items():
        rule = name if name in known else name.removesuffix("=>").removesuffix("<=")
        summed[rule] = summed[rule] + count if rule in summed else count
    return summed


def shares(
    before: Mapping[str, int],
    after: Mapping[str, int],
    result: RunResult,
    builds: Mapping[str, Mapping[str, int]],
) -> list[tuple[str, float]]:
    """(rule, e-nodes) that add up to the growth between two sizes. What no rule builds shrank: two terms became one by a
    union."""
    found: list[tuple[str, float]] = []
    for name, count in after.items():
        grown = count - before.get(name, 0)
        if not grown or not name[:1].isupper():
            continue
        weights = {
            rule: matches * builds.get(rule, {}).get(name, 0) for rule, matches in result.matches.items()
        }
        if not any(weights.values()):
            weights = result.matches
        total = sum(weights.values())
        found += [(rule, grown * weight / total) for rule, weight in weights.items() if weight]
    return found


def enodes(sizes: Mapping[str, int]) -> int:
    """Rows of constructors; facts are spelled in lower case."""
    return sum(count for name, count in sizes.items() if name[:1].isupper())


def mapped_bytes() -> int:
    """The address space of this process."""
    import resource

    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()
