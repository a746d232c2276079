"""What a search still may spend."""

from __future__ import annotations

import copy
import time

from .columns import Columns
from .proof import Effort


class Meter:
    """What is left of an effort. ``merging``: of parts with so many buffers, the number of the ways to take some as one
    (``merged.py``) that was found to do: that of an equal layer is tried first."""

    def __init__(self, effort: Effort) -> None:
        self.until = time.perf_counter() + effort.seconds
        self.steps, self.lanes = effort.steps, effort.lanes
        self.merging: dict[int, int] = {}

    @property
    def seconds(self) -> float:
        return self.until - time.perf_counter()

    @property
    def limit(self) -> str:
        """What is used up, if anything is."""
        return "steps" if self.steps <= 0 else "seconds" if self.seconds <= 0 else ""

    def copy(self) -> Meter:
        """Another with as much, to be spent apart."""
        other = copy.copy(self)
        other.merging = dict(self.merging)
        return other

    def labels(self, most: int) -> int:
        return int(min(most, self.steps))

    def spend(self, found: Columns) -> Columns:
        self.steps -= found.labels
        return found
