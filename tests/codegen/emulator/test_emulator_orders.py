"""Which accesses race: random programs of accesses and barriers against vector clocks of every single thread.

The reference keeps everything: a vector of all threads' times for every thread, and every access to every word. What the
emulator keeps is far less; whether a program has a race at all must come out the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tinyc.codegen.emulator import emulate

WARPS, WORDS = 3, 32
THREADS = 32 * WARPS


@dataclass(frozen=True)
class Op:
    """``kind``: read, write, atomic, block (barrier), warp, half (of a warp), pair (of warps), hand (arrive and sync).

    ``warps``: those that take part, ``lanes``: (modulus, remainder) of the lanes that access; word = lane * a + b.
    """

    kind: str
    warps: tuple[int, ...]
    lanes: tuple[int, int] = (1, 0)
    a: int = 0
    b: int = 0


def program(rng: np.random.Generator) -> list[Op]:
    """Mostly one warp writes what another reads, or a lane what its warp reads, with a barrier of some kind between."""
    ops = []
    for _ in range(rng.integers(2, 7)):
        warps = tuple(sorted(rng.choice(WARPS, rng.integers(1, WARPS + 1), replace=False).tolist()))
        kind = str(rng.choice(["read", "write", "atomic"], p=[0.6, 0.3, 0.1]))
        own = kind == "read" or rng.random() < 0.7
        modulus = int(rng.choice([1, 2, 16] if own else [32]))
        lanes = (modulus, int(rng.integers(modulus)))
        writers = warps if kind != "write" else warps[:1]
        ops.append(Op(kind, writers, lanes, int(own), int(rng.choice([0, 0, 1, 16]))))
        if rng.random() < 0.85:
            kind = str(rng.choice(["block", "warp", "half", "pair", "hand"], p=[0.35, 0.2, 0.1, 0.2, 0.15]))
            some = tuple(rng.choice(WARPS, 2, replace=False).tolist()) if kind in ("pair", "hand") else warps
            ops.append(Op(kind, some))
    return ops


def accessing(op: Op) -> list[tuple[int, int]]:
    """(thread, word) of each access. Lanes beyond the words wrap."""
    modulus, remainder = op.lanes
    return [
        (32 * warp + lane, (lane * op.a + op.b) % WORDS)
        for warp in op.warps
        for lane in range(32)
        if lane % modulus == remainder
    ]


def races(ops: list[Op]) -> bool:
    """The reference. Two accesses race if one writes, not both are atomic, and neither happens before the other."""
    now = np.eye(THREADS, dtype=int)  # row: what a thread knows; its own entry is its time
    seen: dict[int, list[tuple[int, int, str]]] = {word: [] for word in range(WORDS)}
    found = False

    def meet(waiting: list[int], others: list[int]) -> None:
        every = waiting + others
        known = now[every].max(axis=0)
        now[waiting] = np.maximum(now[waiting], known)
        for thread in every:
            now[thread, thread] += 1

    def lanes(warp: int) -> list[int]:
        return list(range(32 * warp, 32 * warp + 32))

    for op in ops:
        if op.kind in ("read", "write", "atomic"):
            for thread, word in accessing(op):
                for other, time, kind in seen[word]:
                    plain = kind != "atomic" or op.kind != "atomic"
                    if other != thread and plain and (kind, op.kind) != ("read", "read"):
                        found |= time > now[thread, other]
                seen[word].append((thread, now[thread, thread], op.kind))
        elif op.kind == "block":
            meet(list(range(THREADS)), [])
        elif op.kind == "warp":
            for warp in op.warps:
                meet(lanes(warp), [])
        elif op.kind == "half":
            for warp in op.warps:
                meet(lanes(warp)[:16], [])
        elif op.kind == "pair":
            meet(lanes(op.warps[0]) + lanes(op.warps[1]), [])
        else:
            meet(lanes(op.warps[1]), lanes(op.warps[0]))
    return bool(found)


def ptx(ops: list[Op]) -> str:
    lines = []
    for at, op in enumerate(ops):
        mask = sum(1 << warp for warp in op.warps)
        select = f"shr.u32 %r5, {mask}, %r2; and.b32 %r5, %r5, 1; setp.eq.u32 %p1, %r5, 0; @%p1 bra END{at};"
        if op.kind in ("read", "write", "atomic"):
            modulus, remainder = op.lanes
            lines.append(
                f"{select} and.b32 %r6, %r1, {modulus - 1}; setp.ne.u32 %p1, %r6, {remainder}; @%p1 bra END{at};"
            )
            lines.append(
                f"mad.lo.u32 %r7, %r1, {op.a}, {op.b}; rem.u32 %r7, %r7, {WORDS}; shl.b32 %r7, %r7, 2;"
            )
            lines.append("mov.u32 %r8, tile; add.u32 %r7, %r7, %r8;")
            access = {"read": "ld.shared.u32 %r9, [%r7];", "write": "st.shared.u32 [%r7], %r1;",
                      "atomic": "red.shared.add.u32 [%r7], 1;"}[op.kind]  # fmt: skip
            lines.append(access)
        elif op.kind == "block":
            lines.append("bar.sync 0;")
        elif op.kind == "warp":
            lines.append(f"{select} bar.warp.sync -1;")
        elif op.kind == "half":
            lines.append(f"{select} setp.ge.u32 %p1, %r1, 16; @%p1 bra END{at}; bar.warp.sync 0xffff;")
        elif op.kind == "pair":
            lines.append(f"{select} bar.sync 1, 64;")
        else:
            first, second = op.warps
            lines.append(f"setp.ne.u32 %p1, %r2, {first}; @%p1 bra OTHER{at}; bar.arrive 2, 64; bra END{at};")
            lines.append(f"OTHER{at}: setp.ne.u32 %p1, %r2, {second}; @%p1 bra END{at}; bar.sync 2, 64;")
        lines.append(f"END{at}:")
    body = "\n".join(lines)
    return f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry k() {{
.reg .pred %p<3>; .reg .b32 %r<10>; .shared .align 4 .b8 tile[{4 * WORDS}];
mov.u32 %r0, %tid.x; and.b32 %r1, %r0, 31; shr.u32 %r2, %r0, 5;
{body}
ret;
}}"""


@pytest.mark.parametrize("seed", range(16))
def test_races_are_found_where_there_are_some_and_only_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    outcomes = []
    for _ in range(25):
        ops = program(rng)
        result = emulate(ptx(ops), "k", 1, THREADS, [])
        kinds = {each.kind for each in result.findings} - {"uninitialised"}
        assert result.complete and kinds <= {"race"}, (ops, [str(each) for each in result.findings])
        wanted = races(ops)
        assert ("race" in kinds) == wanted, (ops, [str(each) for each in result.findings])
        outcomes.append(wanted)
    assert 4 < sum(outcomes) < 22  # both happen
