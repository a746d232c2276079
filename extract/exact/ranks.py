"""In which order a search decides how the values of a kernel are computed: users first, and each value as soon as all that may use it
are decided. Of two partial kernels that have decided the same values one is dropped as soon as they have the same to decide: where a
constant that both need is left to the end, as an order of the whole part has it, they do not meet before."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def ranks(
    values: Collection[int], operands: Sequence[Collection[int]], circle: Sequence[int]
) -> Mapping[int, int]:
    """Of each of ``values`` its rank; the highest is decided first. ``operands``: of each value those that there may be, which are
    ``values`` as well. ``circle``: of each value the first of the circle that it is in, or -1: those of one circle have ranks in a row."""
    members: dict[int, list[int]] = {}
    for value in sorted(values):
        members.setdefault(_circle(circle, value), []).append(value)
    below = {
        one: {_circle(circle, operand) for value in found for operand in operands[value]} - {one}
        for one, found in members.items()
    }
    users = dict.fromkeys(members, 0)
    for found in below.values():
        for one in found:
            users[one] += 1
    order: list[int] = []
    stack = sorted(one for one, count in users.items() if not count)
    while stack:
        one = stack.pop()
        order += reversed(members[one])
        ready = []
        for each in below[one]:
            users[each] -= 1
            if not users[each]:
                ready.append(each)
        # what has no operands comes next: nothing is gained by keeping it
        stack += sorted(ready, key=lambda each: (not below[each], each))
    return {value: len(order) - place for place, value in enumerate(order)}


def _circle(circle: Sequence[int], value: int) -> int:
    return value if circle[value] < 0 else circle[value]
