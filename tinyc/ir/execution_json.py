"""ExecutionPlans as JSON values and back, without a byte of difference (document 000; document 004 §13).

What follows from the rest is written for the reader all the same (lifetimes, sizes, waves), and must be right when it
is read: a plan that was changed by hand is either a plan that can run or an error that says where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from .arena import Arena, Interval, lower_bound, overlaps
from .args import is_name
from .buffer import BufferInfo, aligned
from .diagnostics import TinycError, show
from .dtypes import DType
from .execution import ExecutionPlan, lifetimes, waves
from .instruction import Instruction

_PLAN = ("instructions", "buffers", "input_buffers", "output_buffers", "arena", "waves")
_INSTRUCTION = ("kernel", "op", "inputs", "outputs", "debug_name")
_BUFFER = ("id", "name", "shape", "dtype", "lifetime", "bytes", "allocated_size", "offset")
_ARENA = ("bytes", "lower_bound", "alignment")
_MOST = (1 << 63) - 1


def execution_to_json(execution: ExecutionPlan) -> dict[str, Any]:
    """``arena``: bytes, the bound that no layout can beat, alignment; ``waves``: see :func:`tinyc.ir.execution.waves`."""
    return {
        "instructions": [
            {
                "kernel": item.kernel,
                "op": item.op,
                "inputs": list(item.inputs),
                "outputs": list(item.outputs),
                "debug_name": item.debug_name,
            }
            for item in execution.instructions
        ],
        "buffers": [
            {
                "id": buffer.id,
                "name": buffer.name,
                "shape": list(buffer.shape),
                "dtype": buffer.dtype.value,
                "lifetime": list(buffer.lifetime),
                "bytes": buffer.bytes,
                "allocated_size": buffer.allocated_size,
                "offset": buffer.offset,
            }
            for buffer in execution.buffers
        ],
        "input_buffers": list(execution.input_buffers),
        "output_buffers": list(execution.output_buffers),
        "arena": {
            "bytes": execution.arena.bytes,
            "lower_bound": execution.arena.lower_bound,
            "alignment": execution.arena.alignment,
        },
        "waves": [list(wave) for wave in waves(execution)],
    }


def execution_from_json(value: object, path: str = "exec") -> ExecutionPlan:
    """The plan of a JSON value, checked: an order in which it can run, memory that does not overlap.

    Raises TinycError MalformedDocument, UnknownReference or DuplicateId, with the path of what is wrong
    (``exec.buffers[2].offset: …``).
    """
    plan = _object(value, path, _PLAN)
    buffers = tuple(_buffer(each, at, n) for n, (each, at) in enumerate(_items(plan, "buffers", path)))
    names: set[str] = set()
    for n, buffer in enumerate(buffers):
        if buffer.name in names:
            raise _error(f"{path}.buffers[{n}].name", f"{show(buffer.name)} is taken", kind="DuplicateId")
        names.add(buffer.name)
    count = len(buffers)
    inputs = _ids(plan["input_buffers"], f"{path}.input_buffers", count)
    if len(set(inputs)) < len(inputs):
        raise _error(f"{path}.input_buffers", "names a buffer twice", kind="DuplicateId")
    outputs = _ids(plan["output_buffers"], f"{path}.output_buffers", count)
    instructions = tuple(_instruction(each, at, count) for each, at in _items(plan, "instructions", path))
    _check_order(instructions, inputs, outputs, count, path)
    arena = _arena(plan["arena"], f"{path}.arena")
    execution = ExecutionPlan(instructions, buffers, inputs, outputs, arena)
    _check_memory(execution, path)
    listed = [list(wave) for wave in waves(execution)]
    if plan["waves"] != listed or not _same_kinds(plan["waves"]):
        raise _error(f"{path}.waves", f"the instructions need each other as {show(listed)}")
    return execution


def _check_order(
    instructions: Sequence[Instruction],
    inputs: Sequence[int],
    outputs: Sequence[int],
    count: int,
    path: str,
) -> None:
    """Every buffer is filled once, before it is read."""
    filled = set(inputs)
    for n, instruction in enumerate(instructions):
        at = f"{path}.instructions[{n}]"
        for id in instruction.inputs:
            if id not in filled:
                raise _error(f"{at}.inputs", f"reads buffer {id}, which nothing has filled before")
        for id in instruction.outputs:
            if id in filled:
                raise _error(f"{at}.outputs", f"fills buffer {id} a second time", kind="DuplicateId")
            filled.add(id)
    for id in sorted({*range(count), *outputs} - filled):
        raise _error(f"{path}.buffers[{id}]", "is no input, and no instruction fills it")


def _check_memory(execution: ExecutionPlan, path: str) -> None:
    """Lifetimes and sizes follow from the rest; what lies in the arena is aligned, inside, and apart while it lives."""
    arena, inputs = execution.arena, set(execution.input_buffers)
    outside = inputs | set(execution.output_buffers)
    lives = lifetimes(
        execution.instructions, len(execution.buffers), execution.input_buffers, execution.output_buffers
    )
    for n, (buffer, lifetime) in enumerate(zip(execution.buffers, lives, strict=True)):
        at = f"{path}.buffers[{n}]"
        if buffer.lifetime != lifetime:
            raise _error(
                f"{at}.lifetime", f"is {list(buffer.lifetime)}, and the instructions make it {list(lifetime)}"
            )
        size = prod(buffer.shape) * buffer.dtype.itemsize
        if buffer.bytes != size:
            raise _error(f"{at}.bytes", f"is {buffer.bytes}, and the elements take {size}")
        size = 0 if n in inputs else aligned(size, arena.alignment)
        if buffer.allocated_size != size:
            raise _error(f"{at}.allocated_size", f"is {buffer.allocated_size} and must be {size}")
        if (buffer.offset is None) != (n in outside):
            rule = "lies outside of the arena: its offset is null" if n in outside else "needs an offset"
            raise _error(f"{at}.offset", f"the buffer {rule}")
        if buffer.offset is not None and buffer.offset % arena.alignment:
            raise _error(f"{at}.offset", f"{buffer.offset} is no multiple of {arena.alignment}")
        if buffer.offset is not None and buffer.offset + buffer.allocated_size > arena.bytes:
            raise _error(f"{at}.offset", f"the buffer ends beyond the arena of {arena.bytes} bytes")
    inner = execution.internal()
    items = [Interval(*buffer.lifetime, buffer.allocated_size) for buffer in inner]
    bound = lower_bound(items)
    if arena.lower_bound != bound:
        raise _error(
            f"{path}.arena.lower_bound", f"is {arena.lower_bound}, and {bound} bytes live at one time"
        )
    if (pair := overlaps(items, [buffer.offset or 0 for buffer in inner])) is not None:
        one, two = (inner[n] for n in pair)
        why = f"buffer {two.id} shares bytes with buffer {one.id} while both live"
        raise _error(f"{path}.buffers[{two.id}].offset", why)


# --- reading ---------------------------------------------------------------------------------------------------


def _instruction(value: object, path: str, count: int) -> Instruction:
    given = _object(value, path, _INSTRUCTION)
    return Instruction(
        _number(given["kernel"], f"{path}.kernel"),
        _ids(given["inputs"], f"{path}.inputs", count),
        _ids(given["outputs"], f"{path}.outputs", count),
        _text(given["debug_name"], f"{path}.debug_name"),
        _text(given["op"], f"{path}.op"),
    )


def _buffer(value: object, path: str, number: int) -> BufferInfo:
    given = _object(value, path, _BUFFER)
    if _number(given["id"], f"{path}.id") != number:
        raise _error(f"{path}.id", f"is {given['id']}: buffers are listed as 0, 1, 2, …")
    lifetime = _numbers(given["lifetime"], f"{path}.lifetime")
    if len(lifetime) != 2:
        raise _error(f"{path}.lifetime", f"is {show(given['lifetime'])}: give [first, last]")
    name = _text(given["name"], f"{path}.name")
    if not is_name(name):
        raise _error(f"{path}.name", f"{show(name)} is no short printable text")
    try:
        dtype = DType(_text(given["dtype"], f"{path}.dtype"))
    except ValueError:
        listed = ", ".join(each.value for each in DType)
        raise _error(f"{path}.dtype", f"is {show(given['dtype'])}: use one of {listed}") from None
    offset = given["offset"]
    return BufferInfo(
        number,
        name,
        tuple(
            _number(size, f"{path}.shape[{axis}]", 1)
            for axis, size in enumerate(_list(given["shape"], f"{path}.shape"))
        ),
        dtype,
        (lifetime[0], lifetime[1]),
        _number(given["bytes"], f"{path}.bytes", most=8 * _MOST),
        _number(given["allocated_size"], f"{path}.allocated_size", most=16 * _MOST),
        None if offset is None else _number(offset, f"{path}.offset", most=None),
    )


def _arena(value: object, path: str) -> Arena:
    given = _object(value, path, _ARENA)
    alignment = _number(given["alignment"], f"{path}.alignment", 1, 1 << 20)
    if alignment & (alignment - 1):
        raise _error(f"{path}.alignment", f"{alignment} is no power of two")
    size, bound = (_number(given[key], f"{path}.{key}", most=None) for key in ("bytes", "lower_bound"))
    return Arena(size, bound, alignment)


def _object(value: object, path: str, keys: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _error(path, f"is {show(value)}: give an object with {', '.join(keys)}")
    for key in value:
        if key not in keys:
            raise _error(path, f"has {show(key)}: the keys are {', '.join(keys)}")
    for key in keys:
        if key not in value:
            raise _error(path, f"has no {key!r}")
    return value


def _items(given: Mapping[str, Any], key: str, path: str) -> list[tuple[object, str]]:
    return [(each, f"{path}.{key}[{n}]") for n, each in enumerate(_list(given[key], f"{path}.{key}"))]


def _list(value: object, path: str) -> list[object]:
    if not isinstance(value, list):
        raise _error(path, f"is {show(value)}: give a list")
    return value


def _number(value: object, path: str, least: int = 0, most: int | None = _MOST) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):  # type: ignore[operator]
        raise _error(path, f"is {show(value)}: give an integer of at least {least}")
    return value  # type: ignore[return-value]


def _numbers(value: object, path: str) -> tuple[int, ...]:
    return tuple(_number(each, f"{path}[{n}]") for n, each in enumerate(_list(value, path)))


def _ids(value: object, path: str, count: int) -> tuple[int, ...]:
    ids = _numbers(value, path)
    for n, id in enumerate(ids):
        if id >= count:
            raise _error(f"{path}[{n}]", f"there is no buffer {id}", kind="UnknownReference")
    return ids


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise _error(path, f"is {show(value)}: give a text")
    return value


def _same_kinds(value: object) -> bool:
    """Whether ``value`` is lists of integers all the way: true == 1 in Python, but not in JSON."""
    if isinstance(value, list):
        return all(map(_same_kinds, value))
    return isinstance(value, int) and not isinstance(value, bool)


def _error(path: str, why: str, kind: str = "MalformedDocument") -> TinycError:
    suggestion = "correct it, or leave the plan to tinyc: it follows from the Regions"
    return TinycError(kind, f"{path}: {why}", suggestion, {"layer": "execution", "value": path})
