"""What the lanes of a warp do together (PTX ISA: shfl.sync, vote.sync, match.sync, redux.sync, elect.sync, activemask).

Arrays have the shape (warps, 32). ``active`` (bool) says which lanes execute the instruction; each active lane names its members
in a mask of 32 bits. Members that are not active count as exited: they contribute nothing. Whether a lane may be absent, and
whether it may be read, is for the caller to judge (:func:`source_lanes` says which lane a shuffle reads). What a lane that is not
active gets is not defined.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .types import Array, Operation, parse

LANE = np.arange(32, dtype=np.int64)
ONE = np.uint32(1) << np.arange(32, dtype=np.uint32)


def collective(opcode: str, modifiers: tuple[str, ...]) -> Operation | None:
    """The operation of an instruction that lanes execute together, None where it is no such instruction.

    Its operands are the instruction's, the mask of members among them; ``compute`` takes ``active`` after them. shfl and
    match.all give their predicate as a second result, always.
    """
    if opcode == "activemask" and modifiers == ("b32",):
        return Operation(("b32",), (), lambda active: (activemask(active),))
    if (
        opcode == "shfl"
        and modifiers[:1] == ("sync",)
        and modifiers[2:] == ("b32",)
        and modifiers[1] in SHUFFLES
    ):
        mode = modifiers[1]
        return Operation(
            ("b32", "pred"), ("b32", "b32", "b32", "b32"), lambda a, b, c, mask, active: shfl(mode, a, b, c)
        )
    if opcode == "elect" and modifiers == ("sync",):
        return Operation(("b32", "pred"), ("b32",), elect)
    if opcode == "vote":
        found = parse(modifiers, sync=("sync",), mode=("all", "any", "uni", "ballot"), type=("pred", "b32"))
        if (
            found is None
            or not all(found.values())
            or (found["mode"] == "ballot") != (found["type"] == "b32")
        ):
            return None
        mode = found["mode"]
        return Operation(
            (found["type"],), ("pred", "b32"), lambda a, mask, active: (vote(mode, a, mask, active),)
        )
    if opcode == "match":
        found = parse(modifiers, mode=("any", "all"), sync=("sync",), type=("b32", "b64"))
        if found is None or not all(found.values()):
            return None
        mode = found["mode"]
        results = ("b32",) if mode == "any" else ("b32", "pred")
        return Operation(
            results, (found["type"], "b32"), lambda a, mask, active: match(mode, a, mask, active)
        )
    if opcode == "redux" and modifiers[:1] == ("sync",) and modifiers[1:] in REDUCTIONS:
        name, kind = modifiers[1:]
        return Operation(
            (kind,), (kind, "b32"), lambda a, mask, active: (redux(name, kind, a, mask, active),)
        )
    return None


def activemask(active: Array) -> Array:
    """A bit for each active lane, uint32, the same for all lanes."""
    return np.repeat(ballot(active), 32, axis=1)


def ballot(predicate: Array) -> Array:
    """(warps, 1), uint32: the bit of each lane where the predicate holds."""
    return np.bitwise_or.reduce(np.where(predicate, ONE, np.uint32(0)), axis=1, keepdims=True)


def elect(members: Array, active: Array) -> tuple[Array, Array]:
    """The number of the lane that leads, uint32, and whether it is one's own: the lowest member, though the ISA allows any."""
    there = ballot(active) & members
    lowest = np.bitwise_count((there & np.negative(there)) - np.uint32(1)).astype(np.uint32)
    return lowest, lowest == LANE


SHUFFLES = ("up", "down", "bfly", "idx")


def source_lanes(mode: str, b: Array, c: Array) -> tuple[Array, Array]:
    """Which lane each lane reads in a shuffle (int64), and whether the one that was asked for is in range (bool).

    ``b`` is a lane or a distance; ``c`` has the clamp in bits 0 to 4 and the mask of segments in bits 8 to 12. Out of range a lane
    reads itself.
    """
    by, clamp = (b & np.uint32(31)).astype(np.int64), (c & np.uint32(31)).astype(np.int64)
    segment = ((c >> np.uint32(8)) & np.uint32(31)).astype(np.int64)
    limit = (LANE & segment) | (clamp & ~segment)
    if mode == "up":
        source = LANE - by
        inside = source >= limit
    elif mode == "idx":
        source = (LANE & segment) | (by & ~segment)
        inside = source <= limit
    else:
        source = LANE + by if mode == "down" else LANE ^ by
        inside = source <= limit
    return np.where(inside, source, LANE), inside


def shfl(mode: str, a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """Each lane's value of ``a`` from the lane it reads, and whether that was in range."""
    lanes, inside = source_lanes(mode, b, c)
    return np.take_along_axis(a, lanes, axis=1), inside


def vote(mode: str, predicate: Array, members: Array, active: Array) -> Array:
    """Whether the predicate holds for "all" or "any" members, or is the same for them ("uni"): bool; "ballot": a bit for each."""
    there = ballot(active) & members
    yes = ballot(predicate & active) & members
    if mode == "ballot":
        return yes
    if mode == "any":
        return yes != 0
    return yes == there if mode == "all" else (yes == there) | (yes == 0)


def match(mode: str, a: Array, members: Array, active: Array) -> tuple[Array, ...]:
    """ "any": the members that have the same value; "all": all members and true if they have one value, else 0 and false."""
    there = ballot(active) & members
    equal = a[:, :, None] == a[:, None, :]
    same = np.bitwise_or.reduce(np.where(equal, ONE, np.uint32(0)), axis=2) & there
    if mode == "any":
        return (same,)
    everyone = same == there
    return np.where(everyone, there, np.uint32(0)), everyone


REDUCTIONS: dict[tuple[str, ...], tuple[Callable[..., Array], int]] = {
    ("add", "u32"): (np.add.reduce, 0),
    ("add", "s32"): (np.add.reduce, 0),
    ("min", "u32"): (np.minimum.reduce, 2**32 - 1),
    ("max", "u32"): (np.maximum.reduce, 0),
    ("min", "s32"): (np.minimum.reduce, 2**31 - 1),
    ("max", "s32"): (np.maximum.reduce, 2**31),
    ("and", "b32"): (np.bitwise_and.reduce, 2**32 - 1),
    ("or", "b32"): (np.bitwise_or.reduce, 0),
    ("xor", "b32"): (np.bitwise_xor.reduce, 0),
}


def redux(name: str, kind: str, a: Array, members: Array, active: Array) -> Array:
    """The sum (modulo 2**32), the least, the greatest, or the bits of all members' values combined; uint32."""
    reduce, neutral = REDUCTIONS[name, kind]
    there = ballot(active) & members
    mine = (there[:, :, None] & ONE) != 0
    values = np.where(mine, a[:, None, :], np.uint32(neutral))
    if kind == "s32":
        values = values.view(np.int32)
    return np.asarray(reduce(values, axis=2, dtype=values.dtype)).view(np.uint32)
