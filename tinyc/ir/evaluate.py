"""The numpy reference: what a program means, node by node.

Every node is computed in fp32 (i32: wrapping 32-bit integers) and rounded to its own dtype, so that fusing never
changes a result. ``REDUCE(x, dtype)`` is by definition ``REDUCE(CAST(x, dtype), dtype)``, accumulated in fp32 and
rounded once, after ``init``. With ``float64=True`` floats are neither rounded nor narrowed below float64; immediates
still have the value that they have in their dtype.

Movement gives numpy views, and a MUL that is only summed is never stored where a matrix product gives the sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from . import numeric
from .diagnostics import TinycError, show, show_shape
from .dtypes import DType, dtype_of
from .numeric import Array
from .tiny import MOVEMENT, Imm, Node, Port, Program, TensorType
from .verify import bind, solve_symbols


@dataclass(frozen=True)
class _Product:
    """A MUL whose only uses are SUMs: its factors, of equal shapes."""

    left: Array
    right: Array


def evaluate(
    program: Program, inputs: Mapping[str, np.ndarray], float64: bool = False
) -> tuple[np.ndarray, ...]:
    """The outputs of ``program`` in signature order, as new contiguous arrays.

    ``inputs``: by port name, of exactly the declared dtypes and shapes; free symbols are bound from the shapes.
    With ``float64`` the outputs of float dtypes are float64. Raises TinycError InputMismatch, UnboundSymbol, and
    what :func:`tinyc.ir.verify.bind` raises.
    """
    _check_names(program, inputs)
    if program.symbols:
        shapes = {name: np.shape(array) for name, array in inputs.items()}
        program = bind(program, solve_symbols(program, shapes))
        if program.symbols:
            why = f"the inputs do not say how large {', '.join(program.symbols)} is"
            raise TinycError("UnboundSymbol", why, "bind the symbols first", {"layer": "tiny"})
    arrays = {
        port.node: _checked(port, inputs[port.name], program.types[port.node]) for port in program.inputs
    }
    wanted = [port.node for port in program.outputs]
    needed = _reachable(program, wanted)
    uses = Counter(source for node in needed for source in node.operands())
    deferred = _summed_products(needed, wanted)
    values: dict[str, Array | _Product] = {}
    with np.errstate(all="ignore"):
        for node in needed:
            values[node.id] = _compute(node, values, arrays, program.types, node.id in deferred, float64)
            for source in node.operands():
                uses[source] -= 1
                if not uses[source] and source not in wanted:
                    values.pop(source, None)
        return tuple(np.array(values[id], order="C", copy=True) for id in wanted)


def _compute(
    node: Node,
    values: Mapping[str, Array | _Product],
    arrays: Mapping[str, Array],
    types: Mapping[str, TensorType],
    deferred: bool,
    float64: bool,
) -> Array | _Product:
    if node.uop == "INPUT":
        array = arrays[node.id]
        return array.astype(np.float64) if float64 and types[node.id].dtype.is_float else array
    if node.uop == "VALID":
        return numeric.valid(node.arg["result_shape"], node.arg["lo"], node.arg["hi"])
    kind = numeric.Rounding(types[node.id].dtype, float64)
    if node.uop == "REDUCE":
        return _reduce(node, values[node.operands()[0]], types[node.operands()[0]].dtype, kind)
    src = [values[source] if isinstance(source, str) else source for source in node.src]
    assert not any(isinstance(source, _Product) for source in src), "only a REDUCE uses a deferred product"
    operands: list[Array | Imm] = [source for source in src if not isinstance(source, _Product)]
    if node.uop in MOVEMENT:
        assert isinstance(operands[0], np.ndarray)
        return _MOVES[node.uop](operands[0], node, kind)
    dtype = next(types[source].dtype for source in reversed(node.operands()))  # WHERE: of a branch
    spread = _spread(node, operands, dtype, float64)
    if deferred:
        left, right = np.broadcast_arrays(*spread)
        return _Product(left, right)
    if node.uop == "CAST":
        return numeric.elementwise(lambda x: numeric.cast(x, kind), spread)
    if node.uop == "WHERE":
        return numeric.elementwise(np.where, spread)
    return numeric.elementwise(numeric.function(node.uop, dtype, kind), spread)


def _spread(node: Node, operands: Sequence[Array | Imm], dtype: DType, float64: bool) -> list[Array]:
    """Arrays only: an immediate becomes a scalar of ``dtype``, broadcast to the node's shape."""
    shape = next(each.shape for each in operands if isinstance(each, np.ndarray))
    spread = []
    for at, operand in enumerate(operands):
        if not isinstance(operand, np.ndarray):
            wanted = DType.BOOL if node.uop == "WHERE" and at == 0 else dtype
            operand = np.broadcast_to(numeric.constant(operand, numeric.Rounding(wanted, float64)), shape)
        spread.append(operand)
    return spread


def _reduce(node: Node, value: Array | _Product, dtype: DType, kind: numeric.Rounding) -> Array:
    op, axes = node.arg["op"], node.arg["axes"]
    if isinstance(value, _Product):
        factors = numeric.Rounding(dtype, kind.float64)
        result = numeric.sum_of_products(value.left, value.right, axes, factors, kind)
    else:
        result = numeric.reduce(op, numeric.elementwise(lambda x: numeric.cast(x, kind), [value]), axes, kind)
    if node.arg["init"] is not None:
        first = numeric.constant(node.arg["init"], kind).astype(result.dtype)
        result = np.asarray(numeric.REDUCERS[op](first, result))
    return kind.round(result)


def _view(x: Array, node: Node, _: numeric.Rounding) -> Array:
    return numeric.view(x, node.arg["result_shape"], node.arg["index_map"])


def _shrink(x: Array, node: Node, _: numeric.Rounding) -> Array:
    cut = zip(node.arg["lo"], node.arg["hi"], node.arg["step"], strict=True)
    return x[tuple(slice(lo, hi, step) for lo, hi, step in cut)]


def _pad(x: Array, node: Node, kind: numeric.Rounding) -> Array:
    shape = [lo + size + hi for size, (lo, hi) in zip(x.shape, node.arg["pad"], strict=True)]
    result = np.full(shape, numeric.constant(node.arg["value"], kind), x.dtype)
    result[tuple(slice(lo, lo + size) for size, (lo, _) in zip(x.shape, node.arg["pad"], strict=True))] = x
    return result


_MOVES: Mapping[str, Callable[[Array, Node, numeric.Rounding], Array]] = {
    "RESHAPE": lambda x, node, _: x.reshape(node.arg["result_shape"]),
    "PERMUTE": lambda x, node, _: x.transpose(node.arg["perm"]),
    "EXPAND": lambda x, node, _: np.broadcast_to(x, node.arg["result_shape"]),
    "PAD": _pad,
    "SHRINK": _shrink,
    "FLIP": lambda x, node, _: np.flip(x, node.arg["axes"]) if node.arg["axes"] else x,
    "VIEW": _view,
}


def _reachable(program: Program, wanted: Sequence[str]) -> list[Node]:
    needed = set(wanted)
    for node in reversed(program.nodes):
        if node.id in needed:
            needed.update(node.operands())
    return [node for node in program.nodes if node.id in needed]


def _summed_products(nodes: Sequence[Node], wanted: Sequence[str]) -> set[str]:
    """The MULs whose every use is a SUM."""
    products = {node.id for node in nodes if node.uop == "MUL"} - set(wanted)
    for node in nodes:
        if node.uop != "REDUCE" or node.arg["op"] != "SUM":
            products.difference_update(node.operands())
    return products


def _check_names(program: Program, inputs: Mapping[str, np.ndarray]) -> None:
    names = [port.name for port in program.inputs]
    missing = [name for name in names if name not in inputs]
    unknown = [name for name in inputs if name not in names]
    if missing or unknown:
        what = [f"{word} {', '.join(map(show, those))}" for word, those in
                (("missing:", missing), ("unknown:", unknown)) if those]  # fmt: skip
        suggestion = f"the inputs are: {', '.join(names) or 'none'}"
        raise TinycError("InputMismatch", "; ".join(what), suggestion, {"layer": "run"})


def _checked(port: Port, value: object, type: TensorType) -> Array:
    at = {"layer": "run", "value": port.name, "node": port.node}
    if not isinstance(value, np.ndarray | np.generic):
        why = f"input {show(port.name)} is a {value.__class__.__name__}"
        raise TinycError("InputMismatch", why, "give a numpy array", at)
    array = np.asarray(value)
    if dtype_of(array) is not type.dtype:
        why = f"input {show(port.name)} is {array.dtype} and is declared {type.dtype}"
        raise TinycError("InputMismatch", why, f"convert it to {type.dtype.numpy}", at)
    if array.shape != type.shape:
        why = f"input {show(port.name)} has the shape {list(array.shape)} and is declared {show_shape(type.shape)}"
        raise TinycError("InputMismatch", why, "give an array of the declared shape", at)
    return array
