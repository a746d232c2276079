"""Loads, stores, atomics and asynchronous copies. PTX ISA, "Data Movement and Conversion Instructions" and "Parallel
Synchronization and Communication Instructions: atom, red"."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..errors import refused
from ..machine import Machine
from ..ptx import Address, Instruction, Operand, Symbol, Vector
from ..semantics import operation
from ..steps import Run
from ..threads import Lanes
from ..types import WIDTH, Array, array_type
from .operands import Names, Reader, address, constant, reader, wants, writer
from .places import Place, located, noted

_SPACES = {"global": "global", "shared": "shared", "shared::cta": "shared", "local": "local"}
_STRONG = ("volatile", "relaxed", "acquire", "release", "acq_rel")
_SCOPES = ("cta", "cluster", "gpu", "sys")
#: hints that change no value: what caches should keep
_HINTS = {
    *("ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "weak"),
    *("L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"),
    *("L2::evict_normal", "L2::evict_first", "L2::evict_last", "L2::64B", "L2::128B", "L2::256B"),
}


def access(instruction: Instruction, pc: int, names: Names) -> Run | None:
    """What an instruction does that reads or writes memory; None where it is none such."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in ("ld", "ldu"):
        return noted(pc, _load(instruction, names))
    if opcode == "st":
        return noted(pc, _store(instruction, names))
    if opcode in ("atom", "red"):
        return noted(pc, _atomic(instruction, names))
    if opcode == "cp" and modifiers[:1] == ("async",):
        return noted(pc, _copy(instruction, names))
    return None


def widths(instruction: Instruction) -> tuple[tuple[str, int], ...]:
    """(space, bytes) of each access that an instruction makes; nothing for one that makes none."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in ("ldmatrix", "stmatrix"):
        return (("shared", 16),)
    if opcode == "cp" and len(instruction.operands) >= 3:
        size = constant(instruction.operands[2], instruction)
        return (("shared", size), ("global", size))
    if opcode not in ("ld", "ldu", "st", "atom", "red") or not modifiers or modifiers[-1] not in WIDTH:
        return ()
    count = 4 if "v4" in modifiers else 2 if "v2" in modifiers else 1
    found = [_SPACES[each] for each in modifiers if each in _SPACES]
    if "param" in modifiers or "const" in modifiers:
        return ()
    return tuple((space, count * WIDTH[modifiers[-1]] // 8) for space in found or ("shared", "global"))


def _form(instruction: Instruction, extra: tuple[str, ...] = ()) -> tuple[str, str, int, str]:
    """Space, order (a strong one or ""), length of the vector and type of a load or store."""
    space, order, count, type = "generic", "", 1, ""
    for at, each in enumerate(instruction.modifiers):
        if each in _SPACES:
            space = _SPACES[each]
        elif each in extra:
            space = "global"
        elif each in _STRONG:
            order = each
        elif each in ("v2", "v4"):
            count = int(each[1:])
        elif each in WIDTH and at == len(instruction.modifiers) - 1:
            type = each
        elif each not in _HINTS and each not in _SCOPES:
            raise refused(f".{each} is not known here", instruction)
    if not type or WIDTH[type] not in (8, 16, 32, 64) or count * WIDTH[type] > 128:
        raise refused("its type is not known", instruction)
    return space, order, count, type


def _elements(operand: Operand, count: int, instruction: Instruction) -> tuple[Operand, ...]:
    found = operand.elements if isinstance(operand, Vector) else (operand,)
    if len(found) != count:
        raise refused(f"{count} registers are expected, not {len(found)}", instruction)
    return found


def _load(instruction: Instruction, names: Names) -> Run:
    space, order, count, type = _form(instruction, ("const", "param"))
    result, source = wants(instruction, 2)
    bits = WIDTH[type]
    writers = [writer(each, type, instruction, True) for each in _elements(result, count, instruction)]
    if "param" in instruction.modifiers and isinstance(source, Address) and isinstance(source.base, Symbol):
        return _parameter(instruction, names, source, count, type, writers)
    where = address(source, instruction, names)
    size, dtype, strong = count * bits // 8, array_type(type), bool(order)
    cached, wide = "nc" in instruction.modifiers, "cta" not in instruction.modifiers

    def load(machine: Machine, lanes: Lanes) -> None:
        addresses = machine.own(where(machine, lanes), lanes)
        values = np.zeros((count, len(lanes.index)), dtype)
        for place in located(machine, lanes.index, addresses, space, size, instruction):
            if strong:
                _observe(machine, place)
            place.read(strong)
            if cached:
                place.unchanged()
            for at in range(count):
                values[at, place.lanes] = place.bytes.load(place.offsets + at * (bits // 8), bits)
        if order == "acquire":
            machine.clocks.fence(lanes.index, wide)
        for write, value in zip(writers, values, strict=True):
            write(machine, lanes, machine.spread(value, lanes))

    return load


def _parameter(
    instruction: Instruction,
    names: Names,
    source: Address,
    count: int,
    type: str,
    writers: list[Callable[[Machine, Lanes, Array], None]],
) -> Run:
    """Parameters have one value for all threads."""
    assert isinstance(source.base, Symbol)
    each = WIDTH[type] // 8
    first = names.variables["%parameters"][1]
    start = names.variables[source.base.name][1] - first + source.base.offset + source.offset
    content = names.parameters[start : start + count * each]
    if start < 0 or len(content) < count * each or start % (count * each):
        raise refused("it reads beyond the parameters, or between two", instruction)
    values = np.frombuffer(content, array_type(type)).tolist()
    dtype = array_type(type).type

    def load(machine: Machine, lanes: Lanes) -> None:
        for write, value in zip(writers, values, strict=True):
            write(machine, lanes, machine.constant(value, dtype, lanes))

    return load


def _store(instruction: Instruction, names: Names) -> Run:
    space, order, count, type = _form(instruction)
    target, source = wants(instruction, 2)
    bits = WIDTH[type]
    readers = [reader(each, type, instruction, names, True) for each in _elements(source, count, instruction)]
    where = address(target, instruction, names)
    size, strong, wide = count * bits // 8, bool(order), "cta" not in instruction.modifiers

    def store(machine: Machine, lanes: Lanes) -> None:
        addresses = machine.own(where(machine, lanes), lanes)
        values = [machine.own(read(machine, lanes), lanes) for read in readers]
        if order == "release":
            machine.clocks.fence(lanes.index, wide)
        for place in located(machine, lanes.index, addresses, space, size, instruction, writes=True):
            own = [value[place.lanes] for value in values]
            place.write(strong, own if machine.excuse_equal else None)
            if strong:
                _publish(machine, place, False)
            for at, value in enumerate(own):
                place.bytes.store(place.offsets + at * (bits // 8), bits, value)

    return store


def _observe(machine: Machine, place: Place) -> None:
    if machine.clocks.published:
        for position, slot in enumerate(place.slots.tolist()):
            machine.clocks.observe(slot, place.publish_key(position))


def _publish(machine: Machine, place: Place, adds: bool) -> None:
    if machine.clocks.fenced or machine.clocks.published:
        for position, slot in enumerate(place.slots.tolist()):
            machine.clocks.publish(slot, place.publish_key(position), adds)


# ---- atomics -----------------------------------------------------------------------------------------------------------

_BITWISE = ("and", "or", "xor")
_TYPES = {
    "add": ("u32", "s32", "u64", "f32", "f64", "f16", "f16x2", "bf16", "bf16x2"),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    **dict.fromkeys(_BITWISE, ("b32", "b64")),
    "exch": ("b32", "b64"),
    "cas": ("b16", "b32", "b64"),
    "inc": ("u32",),
    "dec": ("u32",),
}


_EXCHANGES: Mapping[str, Callable[..., Array]] = {
    "exch": lambda old, new: new,
    "cas": lambda old, compare, new: np.asarray(np.where(old == compare, new, old)),
    "inc": lambda old, last: (old + np.uint32(1)) * (old < last),
    "dec": lambda old, last: np.asarray(np.where((old == 0) | (old > last), last, old - np.uint32(1))),
}


def _combination(instruction: Instruction, op: str, type: str, space: str) -> Callable[..., Array]:
    """What an atomic leaves in memory, from what was there and its operands."""
    if op in _EXCHANGES:
        return _EXCHANGES[op]
    if type in ("f32", "f64") or "f16" in type:
        # on global memory subnormal numbers count as zero, on shared memory they do not
        forms = [("rn", "ftz", "f32"), ("ftz", "f32")] if (type, space) == ("f32", "global") else []
        forms += [("rn", type), (type,)]
    else:
        forms = [(type,)]
    found = next((each for form in forms if (each := operation(op, form)) is not None), None)
    if found is None:
        raise refused("this atomic is not known", instruction)
    compute = found.compute

    def combined(old: Array, value: Array) -> Array:
        return compute(old, value)[0]

    return combined


def _atomic(instruction: Instruction, names: Names) -> Run:
    """Lanes with one address take turns, the lowest first."""
    order, space, parts = "", "generic", list[str]()
    for each in instruction.modifiers:
        if each in _STRONG:
            order = each
        elif each in _SPACES:
            space = _SPACES[each]
        elif each not in (*_SCOPES, "noftz"):
            parts.append(each)
    if len(parts) != 2 or parts[1] not in _TYPES.get(parts[0], ()):
        raise refused("this atomic is not known", instruction)
    op, type = parts
    result: Operand | None = None
    operands = list(instruction.operands)
    if instruction.opcode == "atom":
        result = operands.pop(0) if operands else None
    if len(operands) != 2 + (op == "cas"):
        raise refused(f"{2 + (op == 'cas') + (result is not None)} operands are expected", instruction)
    where = address(operands[0], instruction, names)
    readers = [reader(each, type, instruction, names) for each in operands[1:]]
    write = writer(result, type, instruction) if result is not None else None
    bits, dtype, wide = WIDTH[type], array_type(type), "cta" not in instruction.modifiers
    combine = {each: _combination(instruction, op, type, each) for each in ("shared", "global", "local")}

    def atomic(machine: Machine, lanes: Lanes) -> None:
        addresses = machine.own(where(machine, lanes), lanes)
        values = [machine.own(read(machine, lanes), lanes) for read in readers]
        before = np.zeros(len(lanes.index), dtype)
        if order in ("release", "acq_rel"):
            machine.clocks.fence(lanes.index, wide)
        for place in located(machine, lanes.index, addresses, space, bits // 8, instruction, writes=True):
            place.read(True)
            place.write(True)
            if machine.clocks.fenced or machine.clocks.published:
                for position, slot in enumerate(place.slots.tolist()):
                    machine.clocks.observe(slot, place.publish_key(position))
                    machine.clocks.publish(slot, place.publish_key(position), True)
            left = np.arange(len(place.lanes))
            while len(left):
                _, turn = np.unique(place.offsets[left], return_index=True)
                now = left[turn]
                old = place.bytes.load(place.offsets[now], bits)
                own = [value[place.lanes[now]] for value in values]
                place.bytes.store(place.offsets[now], bits, combine[place.space](old, *own))
                before[place.lanes[now]] = old
                left = np.delete(left, turn)
        if order in ("acquire", "acq_rel"):
            machine.clocks.fence(lanes.index, wide)
        if write is not None:
            write(machine, lanes, machine.spread(before, lanes))

    return atomic


# ---- asynchronous copies -----------------------------------------------------------------------------------------------


def _copy(instruction: Instruction, names: Names) -> Run:
    modifiers = instruction.modifiers[1:]
    if modifiers == ("commit_group",):
        wants(instruction, 0)
        return lambda machine, lanes: machine.copies.commit(lanes.index)
    if modifiers == ("wait_all",):
        wants(instruction, 0)
        return lambda machine, lanes: machine.copies.wait(lanes.index, None)
    if modifiers == ("wait_group",):
        groups = constant(wants(instruction, 1)[0], instruction)
        if groups < 0:
            raise refused(f"{groups} groups cannot be left", instruction)
        return lambda machine, lanes: machine.copies.wait(lanes.index, groups)
    kept = [each for each in modifiers if not each.startswith("L2::")]
    if kept not in (["ca", "shared", "global"], ["cg", "shared", "global"], ["ca", "shared::cta", "global"],
                    ["cg", "shared::cta", "global"]) or "L2::cache_hint" in modifiers:  # fmt: skip
        raise refused("this cp.async is not known", instruction)
    target, source, *rest = wants(instruction, 3, 4)
    size = constant(rest[0], instruction)
    if size not in ((16,) if kept[0] == "cg" else (4, 8, 16)):
        raise refused(f"copies of {size} bytes do not exist here", instruction)
    into, out_of = address(target, instruction, names), address(source, instruction, names)
    taken, ignored = _taken(instruction, names, rest[1] if len(rest) > 1 else None)

    def copy(machine: Machine, lanes: Lanes) -> None:
        targets = machine.own(into(machine, lanes), lanes)
        sources = machine.own(out_of(machine, lanes), lanes)
        many = np.full(len(lanes.index), size, np.int64)
        if taken is not None:
            many = np.minimum(machine.own(taken(machine, lanes), lanes).astype(np.int64), size)
        if ignored is not None:
            many[machine.own(ignored(machine, lanes), lanes)] = 0
        for place in located(machine, lanes.index, targets, "shared", size, instruction, writes=True):
            _begin(machine, instruction, place, sources[place.lanes], size, many[place.lanes])

    return copy


def _taken(
    instruction: Instruction, names: Names, operand: Operand | None
) -> tuple[Reader | None, Reader | None]:
    """How many bytes come from the source, and whether none do: the fourth operand is a size or a predicate."""
    if operand is None:
        return None, None
    if getattr(operand, "type", "") == "pred" or hasattr(operand, "register"):
        return None, reader(operand, "pred", instruction, names)
    return reader(operand, "u32", instruction, names), None


def _begin(
    machine: Machine, instruction: Instruction, place: Place, sources: Array, size: int, taken: Array
) -> None:
    """Starts the copies whose target is right. Where no byte is taken the source may be any address."""
    offsets = np.zeros(len(sources), np.int64)
    good = taken == 0
    for amount in np.unique(taken[taken > 0]).tolist():
        lanes = np.flatnonzero(taken == amount)
        slots = place.slots[lanes]
        near = sources[lanes]
        for found in located(machine, slots, near, "global", amount, instruction, alignment=size):
            offsets[lanes[found.lanes]] = found.offsets
            good[lanes[found.lanes]] = True
    machine.copies.start(
        place.slots[good],
        place.offsets[good],
        place.addresses[good],
        offsets[good],
        sources[good],
        size,
        taken[good],
        machine.at,
    )
