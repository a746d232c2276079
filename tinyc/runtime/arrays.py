"""Arrays of the caller, as the signature declares them: which input each one is, whether it fits, and results of the
caller's kind."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dims import names, substitute
from tinyc.ir.dtypes import DType, dtype_of
from tinyc.ir.signature import Argument, Signature

from .arena import aligned_copy, is_aligned

Array = NDArray[Any]


class Shaped(Protocol):
    """An array, of any library."""

    @property
    def shape(self) -> tuple[int, ...]: ...


def place_arguments(signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """One argument per input, in signature order. Raises InputMismatch for too many, too few or unknown ones."""
    inputs = [each.name for each in signature.inputs]
    if len(args) > len(inputs):
        raise _mismatch(f"{len(args)} positional arguments for {len(inputs)} inputs", inputs)
    given = dict(zip(inputs, args, strict=False))
    for name, value in kwargs.items():
        if name not in inputs:
            raise _mismatch(f"there is no input {name!r}", inputs)
        if name in given:
            raise _mismatch(f"input {name!r} is given twice", inputs)
        given[name] = value
    missing = [name for name in inputs if name not in given]
    if missing:
        raise _mismatch(f"missing: {', '.join(missing)}", inputs)
    return [given[name] for name in inputs]


def receive(signature: Signature, given: Sequence[Any]) -> tuple[list[Array], str, dict[str, int]]:
    """Row-major numpy arrays of the declared dtypes, ranks and alignments, the kind of arrays they came as, and the
    bytes of those that had to be copied, by name.

    Shapes with symbols are checked when they are bound. Raises DTypeMismatch and InputMismatch.
    """
    kind = "torch" if any(_is_torch(value) for value in given) else "numpy"
    arrays = []
    copied: dict[str, int] = {}
    for declared, value in zip(signature.inputs, given, strict=True):
        array = _as_numpy(declared.name, value, declared.dtype)
        check_declared(declared, dtype_of(array), str(array.dtype), array.shape)
        if not array.flags.c_contiguous or not is_aligned(array, declared.alignment):
            copied[declared.name] = array.nbytes
            array = aligned_copy(array, declared.alignment)
        arrays.append(np.asarray(array))
    return arrays, kind, copied


def check_declared(declared: Argument, dtype: DType | None, spelled: str, shape: tuple[int, ...]) -> None:
    """Whether an array is what ``declared`` says; symbols are not looked at. ``spelled``: its dtype in its library's words.
    Raises DTypeMismatch, InputMismatch."""
    if dtype is not declared.dtype:
        raise TinycError(
            "DTypeMismatch",
            f"input {declared.name!r} has dtype {spelled}, the program declares {declared.dtype.value}",
            "convert the array before the call; tinyc never casts inputs",
            at={"layer": "runtime", "value": declared.name},
        )
    wanted = declared.shape
    fits = len(shape) == len(wanted) and all(
        isinstance(want, str) or size == want for size, want in zip(shape, wanted, strict=True)
    )
    if not fits:
        raise TinycError(
            "InputMismatch",
            f"input {declared.name!r} has shape {list(shape)}, the program declares {list(wanted)}",
            "pass an array of the declared shape",
            at={"layer": "runtime", "value": declared.name},
        )


def bind_shapes(signature: Signature, arrays: Sequence[Shaped]) -> dict[str, int]:
    """The sizes of the signature's symbols, from the shapes of its inputs. Raises InputMismatch, UnboundSymbol."""
    bound: dict[str, int] = {}
    for declared, array in zip(signature.inputs, arrays, strict=True):
        for want, size in zip(declared.shape, array.shape, strict=True):
            if isinstance(want, str) and names(want) == {want} and bound.setdefault(want, size) != size:
                raise TinycError(
                    "InputMismatch",
                    f"symbol {want} is {bound[want]} and, in input {declared.name!r}, {size}",
                    "pass arrays whose shapes agree",
                    at={"layer": "runtime", "value": declared.name},
                )
    missing = [symbol for symbol in signature.symbols if symbol not in bound]
    if missing:
        raise TinycError(
            "UnboundSymbol",
            f"the arguments do not determine {', '.join(missing)}",
            "pass shapes={…} to optimize_and_compile",
            at={"layer": "runtime"},
        )
    for declared, array in zip(signature.inputs, arrays, strict=True):
        for want, size in zip(declared.shape, array.shape, strict=True):
            if substitute(want, bound) != size:
                raise TinycError(
                    "InputMismatch",
                    f"input {declared.name!r} has size {size} where {want} is {substitute(want, bound)}",
                    "pass arrays whose shapes agree",
                    at={"layer": "runtime", "value": declared.name},
                )
    return bound


def deliver(signature: Signature, outputs: Sequence[Array], kind: str) -> tuple[Any, ...]:
    """Results in signature order, in the layouts and at the alignments that it declares, as the caller's kind of
    arrays."""
    return tuple(
        returned(_laid_out(output, declared), kind)
        for declared, output in zip(signature.outputs, outputs, strict=True)
    )


def _laid_out(array: Array, declared: Argument) -> Array:
    """``array``, or a copy of it that lies as ``declared``: "col_major" has the last two axes the other way round."""
    if declared.layout.kind == "col_major" and array.ndim > 1:
        return aligned_copy(array.swapaxes(-1, -2), declared.alignment).swapaxes(-1, -2)
    return array if is_aligned(array, declared.alignment) else aligned_copy(array, declared.alignment)


def returned(array: Array, kind: str) -> Any:
    """A result as the caller's kind of array."""
    if kind != "torch":
        return array
    torch = sys.modules["torch"]
    if dtype_of(array) is DType.BF16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def _as_numpy(name: str, value: Any, dtype: DType) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise TinycError(
            "InputMismatch",
            f"input {name!r} is a masked array, and its mask would be lost",
            "pass its data, and the mask as an input of its own",
            at={"layer": "runtime", "value": name},
        )
    if isinstance(value, np.ndarray):
        return value
    try:
        if _is_torch(value):
            torch = sys.modules["torch"]
            tensor = value.detach()
            if tensor.dtype == torch.bfloat16:
                return np.asarray(tensor.view(torch.int16).numpy().view(DType.BF16.numpy))
            return np.asarray(tensor.numpy())
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        if isinstance(value, np.generic):
            return np.asarray(value)
    except (TypeError, RuntimeError, BufferError, ValueError) as error:
        raise TinycError(
            "InputMismatch",
            f"input {name!r} cannot be read as an array in this process's memory: {error}",
            "pass a numpy array, or an array on the CPU that offers __dlpack__",
            at={"layer": "runtime", "value": name},
        ) from None
    raise TinycError(
        "InputMismatch",
        f"input {name!r} is a {type(value).__name__}, not an array",
        "pass a numpy array or anything with __dlpack__",
        at={"layer": "runtime", "value": name},
    )


def _mismatch(why: str, inputs: Sequence[str]) -> TinycError:
    return TinycError(
        "InputMismatch", why, f"the inputs are {', '.join(inputs) or 'none'}", at={"layer": "runtime"}
    )
