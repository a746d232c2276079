"""What is kept of many labels, and of many ways to do without a buffer: those that no other is as good as."""

from __future__ import annotations

import random

from tinyc.extract.exact.labels import Label, Labels, State
from tinyc.extract.exact.within import Within, best

STATE = State(((0, frozenset([()])),), (), frozenset())


def test_of_each_state_the_labels_are_kept_that_no_other_is_as_good_as() -> None:
    rng = random.Random(3)
    for _ in range(50):
        width = rng.randint(1, 4)
        every = [
            Label(
                (float(rng.randint(0, 3)), float(rng.randint(0, 3))),
                rng.getrandbits(width),
                rng.getrandbits(width),
                0.0,
                None,
                (),
            )
            for _ in range(40)
        ]
        labels = Labels(width)
        for each in every:
            if not labels.worse(STATE, each):
                labels.add(STATE, each)

        def as_good(one: Label, other: Label) -> bool:
            less = all(a <= b for a, b in zip(one.work, other.work, strict=True))
            return less and not one.reads & ~other.reads and not one.shunned & ~other.shunned

        kept = labels.of(STATE)
        assert labels.states() == [STATE]
        assert all(any(as_good(one, each) for one in kept) for each in every)
        assert not any(as_good(one, other) for one in kept for other in kept if one is not other)


def test_the_ways_are_kept_of_which_no_other_needs_less_and_takes_no_longer() -> None:
    rng = random.Random(5)
    for _ in range(50):
        ways = [
            Within(
                rng.getrandbits(3),
                rng.getrandbits(4),
                float(rng.randint(0, 3)),
                None,
                None,
                False,
                True,
            )
            for _ in range(40)
        ]

        def as_good(one: Within, other: Within) -> bool:
            less = not one.reads & ~other.reads and not one.marks & ~other.marks
            return less and one.seconds <= other.seconds

        kept = best(ways)
        assert all(any(as_good(one, each) for one in kept) for each in ways)
        # of two that take as long, the one that needs more may come first
        assert not any(as_good(one, other) and one.seconds < other.seconds for one in kept for other in kept)
    assert best([]) == []
