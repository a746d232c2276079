"""Shuffles, votes, matches and reductions against the ISA's definitions, lane by lane."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest

from tinyc.codegen.emulator.semantics.warp import collective, source_lanes

WARPS = 6
RNG = np.random.default_rng(3)


def shuffled(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The ISA's pseudocode of shfl.sync."""
    bval, cval, segmask = b & 31, c & 31, c >> 8 & 31
    max_lane = lane & segmask | cval & ~segmask & 31
    min_lane = lane & segmask
    if mode == "up":
        j = lane - bval
        inside = j >= max_lane
    elif mode == "down":
        j = lane + bval
        inside = j <= max_lane
    elif mode == "bfly":
        j = lane ^ bval
        inside = j <= max_lane
    else:
        j = min_lane | bval & ~segmask & 31
        inside = j <= max_lane
    return (j if inside else lane), inside


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles(mode: str) -> None:
    a = RNG.integers(0, 2**32, (64, 32), np.uint32)
    b = RNG.integers(0, 40, (64, 32)).astype(np.uint32)
    b[:32] = np.arange(32, dtype=np.uint32)[:, None]
    c = RNG.integers(0, 2**13, (64, 32)).astype(np.uint32)
    c[:32] = 0 if mode == "up" else 31
    found = collective("shfl", ("sync", mode, "b32"))
    assert found.results == ("b32", "pred") and found.operands == ("b32",) * 4
    members, active = np.full((64, 32), 0xFFFFFFFF, np.uint32), np.ones((64, 32), bool)
    result, inside = found.compute(a, b, c, members, active)
    lanes, same = source_lanes(mode, b, c)
    assert np.array_equal(inside, same)
    for warp in range(64):
        for lane in range(32):
            expected = shuffled(mode, lane, int(b[warp, lane]), int(c[warp, lane]))
            assert (lanes[warp, lane], inside[warp, lane]) == expected
            assert result[warp, lane] == a[warp, expected[0]]


def test_widths_of_cuda_s_shuffles() -> None:
    """__shfl_down_sync(~0, x, 1, 8) has the clamp 0x181f: each lane reads the next one in its group of 8."""
    a = np.arange(32, dtype=np.uint32)[None]
    full, active = np.full_like(a, 0xFFFFFFFF), np.ones((1, 32), bool)
    one, clamp = np.full_like(a, 1), np.full_like(a, 0x181F)
    down, inside = collective("shfl", ("sync", "down", "b32")).compute(a, one, clamp, full, active)
    assert down[0].tolist() == [lane + 1 if lane % 8 != 7 else lane for lane in range(32)]
    assert inside[0].tolist() == [lane % 8 != 7 for lane in range(32)]


def masks() -> tuple[np.ndarray, np.ndarray]:
    """Members and active lanes: all, some, one, and two groups that name different members."""
    members = np.full((WARPS, 32), 0xFFFFFFFF, np.uint32)
    active = np.ones((WARPS, 32), bool)
    members[1] = 0x0F0F0F0F
    members[2], active[2] = 0x1, False
    active[2, 0] = True
    members[3, :16], members[3, 16:] = 0x0000FFFF, 0xFFFF0000
    active[4, 10:20] = False
    members[5] = 0x80000001
    return members, active


def there(members: np.ndarray, active: np.ndarray, warp: int, lane: int) -> list[int]:
    return [j for j in range(32) if active[warp, j] and members[warp, lane] >> j & 1]


def takes_part(members: np.ndarray, active: np.ndarray) -> list[tuple[int, int]]:
    return [(w, lane) for w in range(WARPS) for lane in range(32) if lane in there(members, active, w, lane)]


@pytest.mark.parametrize("likely", [0.0, 0.02, 0.5, 0.98, 1.0])
def test_votes(likely: float) -> None:
    members, active = masks()
    predicate = RNG.random((WARPS, 32)) < likely
    for mode in ("all", "any", "uni", "ballot"):
        kind = "b32" if mode == "ballot" else "pred"
        found = collective("vote", ("sync", mode, kind))
        assert found.results == (kind,) and found.operands == ("pred", "b32")
        (result,) = found.compute(predicate, members, active)
        for warp, lane in takes_part(members, active):
            votes = {j: bool(predicate[warp, j]) for j in there(members, active, warp, lane)}
            expected = {
                "all": all(votes.values()),
                "any": any(votes.values()),
                "uni": len(set(votes.values())) == 1,
                "ballot": sum(1 << j for j, yes in votes.items() if yes),
            }[mode]
            assert result[warp, lane] == expected, (mode, warp, lane)


@pytest.mark.parametrize("kind", ["b32", "b64"])
@pytest.mark.parametrize("values", [1, 3])
def test_matches(kind: str, values: int) -> None:
    members, active = masks()
    a = RNG.integers(0, values, (WARPS, 32)).astype(f"uint{kind[1:]}")
    if kind == "b64":
        a <<= np.uint64(40)
    (some,) = collective("match", ("any", "sync", kind)).compute(a, members, active)
    every, same = collective("match", ("all", "sync", kind)).compute(a, members, active)
    assert collective("match", ("any", "sync", kind)).results == ("b32",)
    assert collective("match", ("all", "sync", kind)).results == ("b32", "pred")
    for warp, lane in takes_part(members, active):
        group = there(members, active, warp, lane)
        assert some[warp, lane] == sum(1 << j for j in group if a[warp, j] == a[warp, lane])
        one = len({int(a[warp, j]) for j in group}) == 1
        assert same[warp, lane] == one and every[warp, lane] == (sum(1 << j for j in group) if one else 0)


@pytest.mark.parametrize("kind", ["u32", "s32", "b32"])
def test_reductions(kind: str) -> None:
    members, active = masks()
    a = RNG.integers(0, 2**32, (WARPS, 32), np.uint32)
    names = ("and", "or", "xor") if kind == "b32" else ("add", "min", "max")

    def number(bits: int) -> int:
        return bits - 2**32 if kind == "s32" and bits >> 31 else bits

    for name in names:
        (result,) = collective("redux", ("sync", name, kind)).compute(a, members, active)
        assert result.dtype == np.uint32
        for warp, lane in takes_part(members, active):
            values = [number(int(a[warp, j])) for j in there(members, active, warp, lane)]
            function = {"add": operator.add, "min": min, "max": max, "and": operator.and_, "or": operator.or_}
            function["xor"] = operator.xor
            assert result[warp, lane] == functools.reduce(function[name], values) & 0xFFFFFFFF


def test_activemask() -> None:
    active = RNG.random((WARPS, 32)) < 0.5
    (result,) = collective("activemask", ("b32",)).compute(active)
    expected = [sum(1 << lane for lane in range(32) if active[warp, lane]) for warp in range(WARPS)]
    assert result.tolist() == [[bits] * 32 for bits in expected]


def test_election_of_the_lowest_member() -> None:
    members, active = masks()
    leader, elected = collective("elect", ("sync",)).compute(members, active)
    for warp, lane in takes_part(members, active):
        first = there(members, active, warp, lane)[0]
        assert leader[warp, lane] == first and elected[warp, lane] == (lane == first)


@pytest.mark.parametrize(
    ("opcode", "modifiers"),
    [
        ("shfl", ("bfly", "b32")),
        ("shfl", ("sync", "bfly", "b64")),
        ("shfl", ("sync",)),
        ("vote", ("sync", "ballot", "pred")),
        ("vote", ("all", "pred")),
        ("match", ("sync", "any", "b32")),
        ("redux", ("sync", "add", "b32")),
        ("redux", ("sync", "min", "f32")),
        ("activemask", ()),
        ("bar", ("sync",)),
    ],
)
def test_what_is_not_known(opcode: str, modifiers: tuple[str, ...]) -> None:
    assert collective(opcode, modifiers) is None
