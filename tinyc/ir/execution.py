"""ExecutionPlan (document 000 §3): what runs in which order, over which buffers, and where they lie.

Steps may be given in any order. The plan's order is topological and stable: always the first step, as given, whose
operands are there. Inputs are buffers and no instructions; every tensor that a step writes is one buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .arena import EMPTY, Arena, plan_arena
from .buffer import ALIGNMENT, BufferId, BufferInfo, aligned
from .diagnostics import TinycError, show
from .instruction import Instruction
from .region import MemRef, Region
from .tiny import Program
from .verify import topological


@dataclass(frozen=True)
class ExecutionPlan:
    """Instructions in order over buffers 0, 1, 2, …; inputs and outputs in signature order.

    A buffer may be an output twice, and an input may be an output. ``arena``: the block that holds all buffers that
    are neither; it is planned for the instructions one after the other.
    """

    instructions: tuple[Instruction, ...]
    buffers: tuple[BufferInfo, ...]
    input_buffers: tuple[BufferId, ...]
    output_buffers: tuple[BufferId, ...]
    arena: Arena = EMPTY

    def internal(self) -> tuple[BufferInfo, ...]:
        """The buffers that lie in the arena."""
        outside = {*self.input_buffers, *self.output_buffers}
        return tuple(buffer for buffer in self.buffers if buffer.id not in outside)


@dataclass(frozen=True)
class Step:
    """One operation to be ordered. ``reads``: names of tensors in operand order. ``writes``: what it makes."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[MemRef, ...]
    op: str = "REGION"


def plan_execution(
    steps: Sequence[Step], inputs: Sequence[MemRef], outputs: Sequence[str], alignment: int = ALIGNMENT
) -> ExecutionPlan:
    """The plan of ``steps`` (in any order); ``outputs`` are names of tensors. Buffers are numbered inputs first.

    Raises TinycError: DuplicateId for two steps of one name or two makers of one tensor, UnknownReference for a tensor
    that is read or put out and that nobody makes, CyclicGraph with the names of the steps that wait for each other.
    """
    maker: dict[str, Step | None] = {}
    made: list[tuple[str, Step | None]] = [(ref.name, None) for ref in inputs]
    made += [(ref.name, step) for step in steps for ref in step.writes]
    for name, second in made:
        if name in maker:
            one, two = (f"step {show(each.name)}" if each else "an input" for each in (maker[name], second))
            why = f"{show(name)} is made twice: by {one} and by {two}"
            raise _error("DuplicateId", why, "let one step write each tensor, and none an input", name)
        maker[name] = second
    for name, user in (
        *((name, f"step {show(step.name)} reads") for step in steps for name in step.reads),
        *((name, "an output is") for name in outputs),
    ):
        if name not in maker:
            why = f"{user} {show(name)}, which is no input and which no step writes"
            raise _error("UnknownReference", why, "name an input or what a step writes", name)
    return _numbered(_ordered(steps, maker), inputs, outputs, alignment)


def _ordered(steps: Sequence[Step], maker: dict[str, Step | None]) -> list[tuple[int, Step]]:
    """The steps, each with its number as given, in topological order."""

    def sources(item: tuple[int, Step]) -> Iterable[str]:
        made = (maker[name] for name in dict.fromkeys(item[1].reads))
        return dict.fromkeys(step.name for step in made if step is not None)

    try:
        return topological(list(enumerate(steps)), lambda item: item[1].name, sources)
    except TinycError as error:
        at = {"layer": "execution", "value": error.at.get("node")}
        raise TinycError(error.kind, error.why, error.suggestion, at) from None


def _numbered(
    steps: Sequence[tuple[int, Step]], inputs: Sequence[MemRef], outputs: Sequence[str], alignment: int
) -> ExecutionPlan:
    refs = [*inputs, *(ref for _, step in steps for ref in step.writes)]
    ids = {ref.name: number for number, ref in enumerate(refs)}
    instructions = tuple(
        Instruction(
            number,
            tuple(ids[name] for name in step.reads),
            tuple(ids[ref.name] for ref in step.writes),
            step.name,
            step.op,
        )
        for number, step in steps
    )
    ins, outs = tuple(range(len(inputs))), tuple(ids[name] for name in outputs)
    lives = lifetimes(instructions, len(refs), ins, outs)
    buffers = tuple(
        BufferInfo(id, ref.name, ref.shape, ref.dtype, lives[id], ref.bytes) for id, ref in enumerate(refs)
    )
    return planned(ExecutionPlan(instructions, buffers, ins, outs), alignment)


def planned(execution: ExecutionPlan, alignment: int = ALIGNMENT) -> ExecutionPlan:
    """``execution`` with sizes, offsets and the arena planned from its lifetimes; what it had of them is replaced."""
    offsets, arena = plan_arena(execution.internal(), alignment)
    inputs = set(execution.input_buffers)
    buffers = tuple(
        replace(
            buffer,
            allocated_size=0 if buffer.id in inputs else aligned(buffer.bytes, alignment),
            offset=offsets.get(buffer.id),
        )
        for buffer in execution.buffers
    )
    return replace(execution, buffers=buffers, arena=arena)


def lifetimes(
    instructions: Sequence[Instruction],
    count: int,
    inputs: Sequence[BufferId],
    outputs: Sequence[BufferId],
) -> list[tuple[int, int]]:
    """First and last instruction that touches each of ``count`` buffers: inputs live from the start, outputs to the
    end."""
    first: list[int | None] = [None] * count
    last = [0] * count
    for number, instruction in enumerate(instructions):
        for id in (*instruction.inputs, *instruction.outputs):
            first[id] = number if first[id] is None else first[id]
            last[id] = number
    for id in inputs:
        first[id] = 0
    for id in outputs:
        last[id] = max(len(instructions) - 1, 0)
    return [(start or 0, end) for start, end in zip(first, last, strict=True)]


def waves(execution: ExecutionPlan) -> tuple[tuple[int, ...], ...]:
    """Numbers of instructions, grouped by how many must run before them one after the other (I-40).

    Those of one wave do not need each other. They may run at once only with memory of their own: the arena is planned
    for one after the other.
    """
    level: dict[BufferId, int] = dict.fromkeys(execution.input_buffers, 0)
    grouped: list[list[int]] = []
    for number, instruction in enumerate(execution.instructions):
        wave = max((level[id] for id in instruction.inputs), default=0)
        level.update(dict.fromkeys(instruction.outputs, wave + 1))
        if wave == len(grouped):
            grouped.append([])
        grouped[wave].append(number)
    return tuple(map(tuple, grouped))


def region_execution(
    regions: Sequence[Region], inputs: Sequence[MemRef], outputs: Sequence[MemRef]
) -> ExecutionPlan:
    """One instruction per Region; ``Instruction.kernel`` is its number in ``regions``, which may be in any order.

    ``outputs``: of the program; their shapes are the signature's, whatever axes their kernels run over. Raises what
    :func:`plan_execution` raises.
    """
    shown = {ref.name: ref for ref in outputs}
    made = [ref for region in regions for ref in region.outputs]
    steps = [
        Step(
            region.name,
            tuple(ref.name for ref in region.inputs),
            tuple(shown.get(ref.name, ref) for ref in region.outputs),
        )
        for region in regions
    ]
    alignment = max((ALIGNMENT, *(ref.alignment for ref in made)))
    return plan_execution(steps, inputs, [ref.name for ref in outputs], alignment)


def program_execution(program: Program) -> ExecutionPlan:
    """The plan of a Tiny program as it is written: one instruction per node that is no INPUT (document 000's
    ``from_graph``), operands in operand order (I-01), dtypes of the nodes (I-02), outputs in signature order (I-03).

    Raises TinycError UnboundSymbol where a size is not known.
    """
    if program.symbols:
        why = f"the sizes of {', '.join(program.symbols)} are not known, so memory cannot be planned"
        raise _error("UnboundSymbol", why, "bind the symbols first", program.symbols[0])

    def ref(id: str) -> MemRef:
        kind = program.types[id]
        return MemRef(id, kind.dtype, tuple(map(int, kind.shape)))

    steps = [
        Step(node.id, node.operands(), (ref(node.id),), node.uop)
        for node in program.nodes
        if node.uop != "INPUT"
    ]
    return plan_execution(
        steps, [ref(port.node) for port in program.inputs], [port.node for port in program.outputs]
    )


def _error(kind: str, why: str, suggestion: str, value: str) -> TinycError:
    return TinycError(kind, why, suggestion, {"layer": "execution", "value": value})
