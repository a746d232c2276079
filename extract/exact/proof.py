"""What an exact search may spend, and what it knows in the end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..choice import Choice
from ..problem import Problem
from .ilp import TOLERANCE


@dataclass(frozen=True)
class Effort:
    """What the search may spend. ``seconds``: wall time. ``steps``: partial kernels that it looks at, a count: where they
    end it, the same program gives the same kernels on every machine. ``lanes``: processes that it may use; what is found does not
    depend on them."""

    seconds: float
    steps: float
    lanes: int = 1

    def __bool__(self) -> bool:
        return self.seconds > 0 and self.steps > 0

    def less(self, seconds: float) -> Effort:
        """What is left when so many seconds are spent."""
        return replace(self, seconds=max(0.0, self.seconds - seconds))

    def part(self, share: float) -> Effort:
        """A share of it, in (0, 1]."""
        return replace(self, seconds=share * self.seconds, steps=share * self.steps)

    @property
    def unhurried(self) -> Effort:
        """With time for a machine that is slower than it was."""
        return replace(self, seconds=10 * self.seconds)


GREEDY = Effort(0.0, 0.0)
"""No search: the greedy choice is taken."""


@dataclass(frozen=True)
class Proof:
    """How good a choice of kernels is known to be, for the report.

    Attributes:
        seconds: the choice's estimate.
        bound: no choice is estimated at less.
        optimal: there is none that costs less.
        start: the estimate of the greedy choice with which the search began, which is a rough one where a program is long.
        time_s: that the search took.
        parts, distinct: into how many the program was cut, and how many of them differ.
        kernels: that were weighed.
        variables, cuts: of the integer programs.
        limit: what ended the search before a proof: "seconds", "steps", "nodes", or "parts": what is lost between them is little
            enough; or why its choice was not taken:
            "legality", "plans"; "" where nothing did.
    """

    seconds: float
    bound: float
    optimal: bool
    start: float
    time_s: float = 0.0
    parts: int = 0
    distinct: int = 0
    kernels: int = 0
    variables: int = 0
    cuts: int = 0
    limit: str = ""

    @property
    def gap(self) -> float:
        """By which share of ``seconds`` a choice could at most be better."""
        return 0.0 if self.optimal or self.seconds <= 0 else max(0.0, 1 - self.bound / self.seconds)

    def of(self, choice: Choice, why: str = "legality") -> Proof:
        """What the bound says of another choice for the same problem, which is taken for a reason."""
        if choice.seconds == self.seconds:
            return self
        optimal = self.bound >= choice.seconds * (1 - TOLERANCE)
        limit = "" if optimal else why if self.limit in ("", "parts") else self.limit
        return replace(self, seconds=choice.seconds, optimal=optimal, limit=limit)

    def after(self, other: Proof) -> Proof:
        """With what another search of the same program has shown before."""
        bound = max(self.bound, other.bound)
        optimal = bound >= self.seconds * (1 - TOLERANCE)
        return replace(
            self,
            bound=self.seconds if optimal else bound,
            optimal=optimal,
            time_s=self.time_s + other.time_s,
            kernels=self.kernels + other.kernels,
            variables=self.variables + other.variables,
            cuts=self.cuts + other.cuts,
            limit="" if optimal else other.limit if self.limit == "greedy" else self.limit,
        )


def unproven(problem: Problem, choice: Choice) -> Proof:
    """Of a choice that was not held against anything."""
    return Proof(choice.seconds, 0.0, False, choice.seconds, limit="greedy")
