"""The door of the emulator: :func:`emulate` runs one kernel on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from tinyc.ir.diagnostics import TinycError, show

from .copies import Delivery
from .counters import Counters, Counting
from .decode import Names, decode
from .decode.access import widths
from .findings import Finding, Findings
from .machine import Machine, MemoryPlan
from .memory import GlobalMemory, Region
from .parse import parse_ptx
from .ptx import Kernel, Module, Variable
from .shadow import WARPS, Cells
from .threads import Shape, Threads
from .types import Array

#: threads that are run together; more are run block after block
TOGETHER = 4096
#: bytes of shared memory that a block can have (sm_80 and later)
SHARED_LIMIT = 227 << 10
#: unused addresses of shared memory after each variable: all banks once, and more than an access has bytes
GAP = 128


@dataclass(frozen=True)
class Uninitialised:
    """An argument whose bytes nothing has written yet: an output. Reading them before the kernel wrote them is found."""

    shape: tuple[int, ...]
    dtype: DTypeLike


@dataclass(frozen=True)
class Emulated:
    """What a kernel left behind. ``outputs``: a new array for each argument that is a pointer, in their order.

    ``findings``: empty for a kernel that is right. ``complete``: False where a deadlock ended it early.
    """

    outputs: tuple[Array, ...]
    findings: tuple[Finding, ...]
    counters: Counters
    complete: bool


def emulate(
    ptx: str,
    kernel: str,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    arguments: Sequence[Any],
    *,
    shared_bytes: int = 0,
    delivery: Delivery = "late",
    seed: int = 0,
    source: str | None = None,
    limit: int = 2_000_000,
    together: int = TOGETHER,
    excuse_ended: bool = False,
    excuse_equal: bool = False,
) -> Emulated:
    """Runs ``kernel`` of a PTX text and watches it.

    ``grid`` and ``block``: one to three sizes, x first. ``arguments``: one per parameter; a numpy array for a pointer, which
    is copied and not changed (arrays of one object are one buffer), :class:`Uninitialised` for one to be written, a number
    or numpy scalar for any other, bytes for a structure. ``shared_bytes``: of dynamic shared memory. ``delivery``: when the
    bytes of ``cp.async`` arrive; ``seed`` for "random". ``source``: the CUDA text, for lines in findings. ``limit``: of
    instructions that groups of threads execute, for the blocks that run together. ``together``: how many threads run at one time; blocks that wait for each
    other must all be among them. ``excuse_ended``: threads that end before a barrier or an exchange of lanes that names them
    are no finding (PTX waits for those that have not ended). ``excuse_equal``: lanes of a warp that store equal values at one
    address with one instruction are none either (which of them stores is not said, and makes no difference).

    Raises PtxInvalid for PTX that is not known, InvalidArgument for arguments that do not fit, EmulationStopped at the limit.
    """
    module = parse_ptx(ptx, kernel)
    if kernel not in module.kernels:
        raise _wrong(f"the PTX has no kernel {show(kernel)}", "give the name of one of its entries")
    found = module.kernels[kernel]
    grid_shape, block_shape = _shape(grid, "grid", None), _shape(block, "block", 1024)
    _check_block(found, block_shape)
    memory = GlobalMemory()
    parameters, buffers = _arguments(found, arguments, memory)
    names, shared, shared_size, local = _layout(module, found, memory, parameters, shared_bytes)
    memory.close()
    steps = decode(found, names)
    plan = _plan(found, memory, shared, (shared_size, shared_bytes), local)
    if plan.shared_size > SHARED_LIMIT:
        raise _wrong(
            f"{plan.shared_size} bytes of shared memory; a block can have {SHARED_LIMIT}", "take less"
        )
    findings, counting = Findings(source), Counting(found.instructions)
    random = np.random.default_rng(seed)
    blocks = grid_shape[0] * grid_shape[1] * grid_shape[2]
    stride = Threads(grid_shape, block_shape, 0, 1).stride
    if blocks * stride >= 2**31:
        raise _wrong(f"{blocks} blocks are too many", "emulate smaller shapes")
    at_once = max(together // stride, 1)
    complete = True
    for first in range(0, blocks, at_once):
        threads = Threads(grid_shape, block_shape, first, min(at_once, blocks - first))
        machine = Machine(
            found,
            steps,
            threads,
            plan,
            findings,
            counting,
            delivery,
            random,
            limit,
            excuse_ended,
            excuse_equal,
        )
        complete = machine.run()
        if not complete:
            break
    outputs = tuple(
        memory.content(region).view(dtype).reshape(shape).copy() for region, shape, dtype in buffers
    )
    return Emulated(outputs, findings.found(), counting.result(), complete)


def _wrong(why: str, suggestion: str) -> TinycError:
    return TinycError("InvalidArgument", why, suggestion, {"layer": "ptx", "op": "emulate"})


def _shape(sizes: int | tuple[int, ...], what: str, most: int | None) -> Shape:
    given = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if not 1 <= len(given) <= 3 or not all(isinstance(size, int) and size > 0 for size in given):
        raise _wrong(f"{show(sizes)} is no {what}", "give one to three positive integers")
    x, y, z = (*given, 1, 1)[:3]
    if most is not None and x * y * z > most:
        raise _wrong(f"a block of {x * y * z} threads; there can be {most}", "take smaller blocks")
    return x, y, z


def _check_block(kernel: Kernel, block: Shape) -> None:
    if kernel.block is None:
        return
    if kernel.exact and block != kernel.block:
        raise _wrong(f"{kernel.name} must have blocks of {kernel.block}, not {block}", "give that block")
    most = kernel.block[0] * kernel.block[1] * kernel.block[2]
    if block[0] * block[1] * block[2] > most:
        raise _wrong(
            f"{kernel.name} is compiled for at most {most} threads a block, not {block}", "take fewer threads"
        )


_Buffer = tuple[Region, tuple[int, ...], Any]


def _arguments(kernel: Kernel, given: Sequence[Any], memory: GlobalMemory) -> tuple[bytes, list[_Buffer]]:
    """The bytes of all parameters, and the buffers behind pointers."""
    if len(given) != len(kernel.parameters):
        raise _wrong(
            f"{kernel.name} has {len(kernel.parameters)} parameters, and {len(given)} arguments are given",
            "give one for each",
        )
    size = max((each.offset + each.size for each in kernel.parameters), default=0)
    content, buffers, known = bytearray(size), list[_Buffer](), dict[int, Region]()
    for position, (parameter, value) in enumerate(zip(kernel.parameters, given, strict=True)):
        part = slice(parameter.offset, parameter.offset + parameter.size)
        if isinstance(value, Uninitialised) or (isinstance(value, np.ndarray) and value.ndim):
            if parameter.size != 8:
                raise _wrong(
                    f"argument {position} is an array, and {parameter.name} no pointer", "give a number"
                )
            dtype, name = np.dtype(value.dtype), f"argument {position}"
            if isinstance(value, Uninitialised):
                count = int(np.prod(value.shape, dtype=np.int64))
                region = memory.add(name, count * dtype.itemsize, None)
            else:
                region = known.get(id(value)) or memory.add(name, value.nbytes, value.tobytes())
                known[id(value)] = region
            buffers.append((region, tuple(value.shape), dtype))
            content[part] = region.address.to_bytes(8, "little")
        else:
            content[part] = _scalar(position, parameter.name, parameter.type, parameter.size, value)
    return bytes(content), buffers


def _scalar(position: int, name: str, type: str, size: int, value: Any) -> bytes:
    if isinstance(value, bytes | bytearray):
        found = bytes(value)
    elif isinstance(value, np.generic | np.ndarray):
        found = value.tobytes()
    elif isinstance(value, float) and type in ("f32", "f64"):
        found = np.dtype(type.replace("f", "float")).type(value).tobytes()
    elif isinstance(value, int) and -(1 << (8 * size - 1)) <= value < 1 << (8 * size):
        number = float(value) if type in ("f32", "f64") else None
        found = (value % (1 << 8 * size)).to_bytes(size, "little") if number is None else b""
        if number is not None:
            found = np.dtype(type.replace("f", "float")).type(number).tobytes()
    else:
        raise _wrong(f"argument {position}, {show(value)}, does not fit {name} of type {type}", "see the PTX")
    if len(found) != size:
        raise _wrong(f"argument {position} has {len(found)} bytes, and {name} {size}", "give as many bytes")
    return found


def _layout(
    module: Module, kernel: Kernel, memory: GlobalMemory, parameters: bytes, shared_bytes: int
) -> tuple[Names, tuple[tuple[int, int], ...], int, int]:
    """Where every variable lies; where those in shared memory begin and end, and the bytes that they take; the bytes of local memory."""
    places: dict[str, tuple[str, int]] = {}
    variables = (*module.variables, *kernel.variables)
    for each in variables:
        if each.space in ("global", "const"):
            region = memory.add(each.name, each.size or 0, each.initial or b"", each.space == "global")
            places[each.name] = (each.space, region.address)
    region = memory.add("the parameters", max(len(parameters), 1), parameters, False)
    places["%parameters"] = ("param", region.address)
    for parameter in kernel.parameters:
        places[parameter.name] = ("param", region.address + parameter.offset)
    if shared_bytes < 0:
        raise _wrong(f"{shared_bytes} bytes of shared memory", "give 0 or more")
    static = [each for each in variables if each.space == "shared" and each.size is not None]
    dynamic = [each for each in variables if each.space == "shared" and each.size is None]
    end = _packed(static, places)
    local = _packed([each for each in variables if each.space == "local"], places)
    start = max((-(-end // each.alignment) * each.alignment for each in dynamic), default=end)
    places.update({each.name: ("shared", start) for each in dynamic})
    last = [(start, start + shared_bytes)] if dynamic or shared_bytes else []
    shared = _apart(static, dynamic, last, places)
    return Names(places, parameters, len(kernel.registers)), shared, (last or [(end, end)])[0][1], local


def _apart(
    static: list[Variable],
    dynamic: list[Variable],
    last: list[tuple[int, int]],
    places: dict[str, tuple[str, int]],
) -> tuple[tuple[int, int], ...]:
    """Moves the variables in shared memory apart, so that to leave one is not to reach the next; where each begins and ends. By the
    same number of banks, all of them, so that conflicts stay as they are. ``last``: of the dynamic part."""
    gap = max([GAP, *(each.alignment for each in (*static, *dynamic))])
    found = []
    for number, each in enumerate(static):
        start = places[each.name][1] + number * gap
        places[each.name] = ("shared", start)
        found.append((start, start + (each.size or 0)))
    for start, end in last:
        moved = len(static) * gap
        places.update({each.name: ("shared", start + moved) for each in dynamic})
        found.append((start + moved, end + moved))
    return tuple(found)


def _packed(variables: list[Variable], places: dict[str, tuple[str, int]]) -> int:
    """One variable after the other, each at its alignment; gives the bytes of all."""
    end = 0
    for each in variables:
        end = -(-end // each.alignment) * each.alignment
        places[each.name] = (each.space, end)
        end += each.size or 0
    return end


def _plan(
    kernel: Kernel,
    memory: GlobalMemory,
    shared: tuple[tuple[int, int], ...],
    sizes: tuple[int, int],
    local: int,
) -> MemoryPlan:
    narrowest = {"shared": 16, "global": 16, "local": 16}
    for instruction in kernel.instructions:
        for space, size in widths(instruction):
            narrowest[space] = min(narrowest[space], max(size, 1))
    cells = Cells(len(memory.bytes.data), narrowest["global"], WARPS, one_block=False)
    for region in memory.regions:
        if region.written:
            cells.fill(region.offset, region.size)
    return MemoryPlan(memory, cells, shared, *sizes, local, narrowest["shared"])
