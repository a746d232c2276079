"""What a kernel did: instructions, bank conflicts, sectors, tensor-core operations, loop by loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from .ptx import Instruction, Target, Targets
from .threads import WARP
from .types import Array

BANKS = 32
SECTOR = 32


@dataclass(frozen=True)
class SharedAccess:
    """One instruction that accesses shared memory. ``executed``: by so many warps.

    ``wavefronts``: how often the banks were gone through; ``ideal``: the least for such accesses. 32 banks of 4 bytes;
    the lanes of a warp go together for accesses of up to 4 bytes, a half for 8, a quarter for 16 and for each matrix of
    ldmatrix; a wavefront serves one word of each bank, to any number of lanes.
    """

    line: int
    cuda: str
    instruction: str
    executed: int
    wavefronts: int
    ideal: int

    @property
    def conflicts(self) -> int:
        return self.wavefronts - self.ideal


@dataclass(frozen=True)
class GlobalAccess:
    """One instruction that accesses global memory. ``sectors``: of 32 bytes, counted for each warp that executed it;
    ``ideal``: had the same bytes lain side by side."""

    line: int
    cuda: str
    instruction: str
    executed: int
    sectors: int
    ideal: int


@dataclass(frozen=True)
class Loop:
    """The instructions between a label and a branch back to it. ``iterations``: of all warps together.

    ``classes``: instructions of each class per iteration, inner loops included. ``tensor_operations``: multiplications
    and additions of tensor cores per iteration of one warp.
    """

    first_line: int
    last_line: int
    cuda: str
    iterations: int
    classes: Mapping[str, float]
    tensor_operations: float


@dataclass(frozen=True)
class Counters:
    """All counts are of warps: an instruction that 8 warps execute counts 8, however many lanes are active."""

    instructions: Mapping[str, int]
    classes: Mapping[str, int]
    shared: tuple[SharedAccess, ...]
    global_: tuple[GlobalAccess, ...]
    loops: tuple[Loop, ...]
    tensor_operations: int
    barriers: int

    @property
    def bank_conflicts(self) -> int:
        return sum(each.conflicts for each in self.shared)


def instruction_class(instruction: Instruction) -> str:
    """tensor, copy, shared, global, local, constant, atomic, barrier, warp, control, conversion, move, integer, half,
    float or double."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in ("mma", "wmma", "wgmma"):
        return "tensor"
    if opcode == "cp":
        return "copy"
    if opcode in ("atom", "red"):
        return "atomic"
    if opcode in ("ld", "st", "ldu", "ldmatrix", "stmatrix", "prefetch"):
        spaces = {"shared": "shared", "local": "local", "param": "constant", "const": "constant"}
        named = (spaces[part] for each in modifiers if (part := each.split("::")[0]) in spaces)
        return "shared" if opcode.endswith("matrix") else next(named, "global")
    if opcode in ("bar", "barrier", "membar", "fence"):
        return "warp" if "warp" in modifiers else "barrier"
    if opcode in ("shfl", "vote", "match", "redux", "activemask", "movmatrix", "elect"):
        return "warp"
    if opcode in ("bra", "brx", "ret", "exit", "trap"):
        return "control"
    if opcode in ("cvt", "cvta"):
        return "conversion"
    if opcode in ("mov", "selp", "slct", "prmt"):
        return "move"
    kind = modifiers[-1] if modifiers else ""
    if "f16" in kind:
        return "half"
    return {"f32": "float", "f64": "double"}.get(kind, "integer")


def tensor_operations(instruction: Instruction) -> int:
    """Multiplications and additions of one warp's ``mma``: 2 m n k."""
    if instruction.opcode != "mma":
        return 0
    for modifier in instruction.modifiers:
        if modifier[0] == "m" and "n" in modifier and "k" in modifier:
            m, rest = modifier[1:].split("n")
            n, k = rest.split("k")
            return 2 * int(m) * int(n) * int(k)
    return 0


class Counting:
    """Counts while a kernel runs."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.instructions = instructions
        self.executed = [0] * len(instructions)
        self._shared: dict[int, list[int]] = {}
        self._global: dict[int, list[int]] = {}
        self._known: dict[tuple[str, int, bytes, bytes], tuple[int, int, int]] = {}

    def shared_access(self, at: int, slots: Array, addresses: Array, size: int) -> None:
        """``addresses`` in shared memory, one per lane of ``slots``, of ``size`` bytes each."""
        # a shift by whole words moves all banks alike, so that one pattern is counted once
        key = ("shared", size, slots.tobytes(), (addresses - addresses[0] + addresses[0] % 4).tobytes())
        if key not in self._known:
            self._known[key] = _wavefronts(slots, addresses, size)
        _add(self._shared, at, self._known[key])

    def global_access(self, at: int, slots: Array, addresses: Array, size: int) -> None:
        key = ("global", size, slots.tobytes(), (addresses - addresses[0] + addresses[0] % SECTOR).tobytes())
        if key not in self._known:
            self._known[key] = _sectors(slots, addresses, size)
        _add(self._global, at, self._known[key])

    def result(self) -> Counters:
        names, classes, operations = Counter[str](), Counter[str](), 0
        for instruction, times in zip(self.instructions, self.executed, strict=True):
            if times:
                names[instruction.name] += times
                classes[instruction_class(instruction)] += times
                operations += times * tensor_operations(instruction)
        shared = [SharedAccess(*self._place(at), *found) for at, found in sorted(self._shared.items())]
        everywhere = [GlobalAccess(*self._place(at), *found) for at, found in sorted(self._global.items())]
        return Counters(
            MappingProxyType(dict(names.most_common())),
            MappingProxyType(dict(classes.most_common())),
            tuple(shared),
            tuple(everywhere),
            tuple(self._loops()),
            operations,
            classes["barrier"],
        )

    def _place(self, at: int) -> tuple[int, str, str]:
        found = self.instructions[at]
        return found.line, str(found.cuda or ""), found.name

    def _loops(self) -> list[Loop]:
        last: dict[int, int] = {}
        for at, instruction in enumerate(self.instructions):
            for operand in instruction.operands:
                targets = operand.targets if isinstance(operand, Targets) else (operand,)
                for target in targets:
                    if isinstance(target, Target) and target.at <= at:
                        last[target.at] = at
        return [self._loop(first, end) for first, end in sorted(last.items()) if self.executed[first]]

    def _loop(self, first: int, last: int) -> Loop:
        iterations = self.executed[first]
        classes, operations = Counter[str](), 0
        for at in range(first, last + 1):
            instruction = self.instructions[at]
            classes[instruction_class(instruction)] += self.executed[at]
            operations += self.executed[at] * tensor_operations(instruction)
        head = self.instructions[first]
        return Loop(
            head.line,
            self.instructions[last].line,
            str(head.cuda or ""),
            iterations,
            MappingProxyType({name: count / iterations for name, count in classes.most_common() if count}),
            operations / iterations,
        )


def _add(found: dict[int, list[int]], at: int, counts: tuple[int, int, int]) -> None:
    before = found.setdefault(at, [0, 0, 0])
    for position, count in enumerate(counts):
        before[position] += count


def _wavefronts(slots: Array, addresses: Array, size: int) -> tuple[int, int, int]:
    """The warps that access, their wavefronts, and the least that there could be."""
    lanes = WARP if size <= 4 else WARP * 4 // size
    group = slots // lanes
    group = group - group.min()
    words = max(size // 4, 1)
    word = ((addresses // 4).astype(np.int64)[:, None] + np.arange(words)).ravel()
    unique = np.unique(np.repeat(group, words) * (1 << 32) + word)
    bank = (unique >> 32) * BANKS + unique % BANKS
    per_group = np.bincount(bank, minlength=(int(group.max()) + 1) * BANKS).reshape(-1, BANKS)
    return (
        len(np.unique(slots // WARP)),
        int(per_group.max(axis=1).sum()),
        int((per_group.max(axis=1) > 0).sum()),
    )


def _sectors(slots: Array, addresses: Array, size: int) -> tuple[int, int, int]:
    """The warps that access, the sectors that they touch, and the least for as many different bytes."""
    warp = slots // WARP
    warp = warp - warp.min()
    near = (addresses - addresses.min() + addresses.min() % SECTOR).astype(np.int64)
    place = warp * (1 << 44) + near
    sectors = len(np.unique(place // SECTOR))
    different = np.bincount(np.unique(place) >> 44) * size
    return len(np.unique(warp)), sectors, int((-(-different // SECTOR)).sum())
