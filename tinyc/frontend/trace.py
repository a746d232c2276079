"""``trace``: a Python function over tensors becomes a Program, by running it once on tensors without values."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyc.ir.diagnostics import TinycError
from tinyc.ir.dims import DimError
from tinyc.ir.document import program_from_document
from tinyc.ir.dtypes import DType
from tinyc.ir.tiny import Dim, Program, Shape

from .builder import Builder, dtype_named
from .creation import writing_to
from .sizes import listed, size
from .tensor import Tensor

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Spec:
    """What an input will be: dtype and shape, and its name where it is not the parameter's."""

    dtype: DType
    shape: Shape
    name: str | None = None


def spec(dtype: str | DType, shape: Dim | Sequence[Dim] = (), name: str | None = None) -> Spec:
    """``spec("fp16", ("M", 64))``. Raises DTypeMismatch, InvalidShape."""
    if name is not None and not isinstance(name, str):
        raise _invalid(f"the name of an input is {name!r}", "give a text")
    kind = dtype_named(dtype, {"layer": "frontend", "op": "spec"})
    return Spec(kind, tuple(map(size, listed(shape))), name)


def trace(function: Callable[..., Any], /, *specs: Spec, **named_specs: Spec) -> Program:
    """The Program of ``function``, called with one tensor per spec.

    Inputs are named after the function's parameters (or by ``Spec.name``), in the order of the call. Outputs are
    named ``out`` (one tensor), ``out0, out1, …`` (a tuple or list) or by the keys of a dict.
    Raises TinycError for whatever the function does that tensors cannot do; ``at`` names the user's file and line.
    """
    return program_from_document(trace_document(function, *specs, **named_specs))


def trace_document(function: Callable[..., Any], /, *specs: Spec, **named_specs: Spec) -> dict[str, Any]:
    """As :func:`trace`, before verification: the Tiny document with its signature."""
    names = _input_names(function, specs, named_specs)
    builder = Builder()
    given = [
        Tensor(builder, builder.input(name, each.dtype, each.shape))
        for name, each in zip(names, (*specs, *named_specs.values()), strict=True)
    ]
    positional, named = given[: len(specs)], dict(zip(named_specs, given[len(specs) :], strict=True))
    try:
        with writing_to(builder):
            result = function(*positional, **named)
        return builder.document({name: each.value for name, each in _outputs(result, builder).items()})
    except TinycError as error:
        raise _located(error) from None
    except DimError as error:
        failure = TinycError("InvalidShape", str(error), "use simpler sizes", {"layer": "frontend"})
        raise _located(failure.with_traceback(error.__traceback__)) from None


def _input_names(function: Callable[..., Any], specs: Sequence[Spec], named: Mapping[str, Spec]) -> list[str]:
    for each in (*specs, *named.values()):
        if not isinstance(each, Spec):
            raise _invalid(
                f"an argument is {type(each).__name__}", 'describe inputs with tinyc.spec("fp32", (4, 8))'
            )
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*specs, **named)
    except TypeError as error:
        raise _invalid(f"the specs do not fit the function: {error}", "give one spec per parameter") from None
    names: list[str] = []
    for parameter, value in bound.arguments.items():
        kind = signature.parameters[parameter].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            names += [each.name or f"{parameter}{k}" for k, each in enumerate(value)]
        elif value is not None and kind is not inspect.Parameter.VAR_KEYWORD and parameter not in named:
            names.append(value.name or parameter)
    return [*names, *(each.name or parameter for parameter, each in named.items())]


def _outputs(result: Any, builder: Builder) -> dict[str, Tensor]:
    if isinstance(result, Tensor):
        outputs: dict[str, Any] = {"out": result}
    elif isinstance(result, Mapping):
        outputs = dict(result)
    elif isinstance(result, tuple | list):
        outputs = {f"out{k}": each for k, each in enumerate(result)}
    else:
        outputs = {"out": result}
    for name, each in outputs.items():
        if not isinstance(name, str) or not isinstance(each, Tensor):
            raise _invalid(
                f"output {name!r} is {type(each).__name__}",
                "return a tensor, a tuple or list of them, or a dict",
            )
        if each.builder is not builder:
            raise _invalid(f"output {name!r} comes from another trace", "return tensors of this trace")
    if not outputs:
        raise _invalid("the function returns no tensor", "return at least one")
    return outputs


def _located(error: TinycError) -> TinycError:
    """The same error with the last line outside of this package in ``at``."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).parent != _HERE]
    if not frames:
        return error
    at = {**error.at, "file": frames[-1].filename, "line": frames[-1].lineno}
    return TinycError(error.kind, error.why, error.suggestion, at, **error.details)


def _invalid(why: str, suggestion: str) -> TinycError:
    return TinycError("InvalidArgument", why, suggestion, {"layer": "frontend", "op": "trace"})
