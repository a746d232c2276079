"""Goes on from a dump of Regions or Plans (document 004 §13): what a user has read, changed, or written by hand.

``{"region": […]}`` has one Region per kernel, in any order. ``{"plan": […]}`` has one Schedule Plan per kernel, each with
its Region under ``kernel``; the Regions may also stand beside it, under ``region``. The ``program`` of the first Region
is the signature, with the buffer of each input and output; without it, what nobody writes is an input, and what nobody
reads is an output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tinyc.extract.cost.hardware import Hardware
from tinyc.extract.plans.default_plan import default_plan
from tinyc.index.bounds import check_access
from tinyc.ir.check_plan import check_plan
from tinyc.ir.check_region import check_region
from tinyc.ir.diagnostics import TinycError, show, show_shape
from tinyc.ir.execution import region_execution
from tinyc.ir.plan import Extracted, Plan
from tinyc.ir.region import MemRef, Region
from tinyc.ir.region_json import region_from_json
from tinyc.ir.roles import contraction_of
from tinyc.ir.schedule_json import plan_from_json
from tinyc.ir.signature import Argument, Signature, signature_from_json
from tinyc.ir.verify import bound_size


@dataclass(frozen=True)
class Continued:
    """A program from its Regions on: there is no Tiny program before them."""

    extracted: Extracted
    signature: Signature


def is_dump(document: object) -> bool:
    """Whether a parsed document is a dump of the stage region or plan."""
    return isinstance(document, dict) and bool(document.keys() & {"region", "plan"})


def read_dump(document: Mapping[str, Any], shapes: Mapping[str, int], machine: Hardware) -> Continued:
    """The program of a dump, checked. ``shapes``: sizes of the symbols that Regions written by hand may use.

    Raises TinycError: MalformedDocument with a path, what is wrong with a Region (E1001, E1005, E14xx) or with a Plan
    (E15xx), and what is wrong between them (UnknownReference, DuplicateId, CyclicGraph, AxisAlignmentMismatch).
    """
    shapes = {name: bound_size(name, size, "region") for name, size in shapes.items()}
    if unknown := sorted(document.keys() - {"region", "plan"}):
        raise _malformed(f"a dump has {show(unknown[0])}", "use the keys region and plan")
    entries = _several(document, "plan")
    listed = _several(document, "region") or [
        each["kernel"] for each in entries if isinstance(each, dict) and "kernel" in each
    ]
    if not listed:
        raise _malformed("there is no Region", "give the Region of each Plan, under its key 'kernel'")
    where = "region[{}]" if "region" in document else "plan[{}].kernel"
    given = [each["program"] for each in listed if isinstance(each, dict) and "program" in each]
    regions = [
        region_from_json(_without(each, "program"), shapes, where.format(number))
        for number, each in enumerate(listed)
    ]
    _check_symbols(document, shapes)
    for number, region in enumerate(regions):
        _check(region, where.format(number))
    plans = _plans(entries, regions, machine)
    refs = _refs(regions)
    program = given[0] if given else None
    buffers = program.get("buffers", {}) if isinstance(program, dict) else {}
    signature = (
        signature_from_json(_without(program, "buffers"), "program", shapes) if given else _derived(regions)
    )
    inputs = _buffers(signature.inputs, buffers, "inputs", refs)
    outputs = _buffers(signature.outputs, buffers, "outputs", refs)
    execution = region_execution(regions, inputs, outputs)
    return Continued(Extracted(tuple(regions), plans, execution), signature)


def _check(region: Region, path: str) -> None:
    """Raises what is wrong with a Region that was read, with the ``path`` of its entry."""
    try:
        check_region(region)
        check_access(region)
    except TinycError as error:
        raise TinycError(
            error.kind, f"{path}: {error.why}", error.suggestion, error.at, **error.details
        ) from None


def _check_symbols(document: object, shapes: Mapping[str, int]) -> None:
    """Raises UnboundSymbol for a size of what no text of the dump names: it would change nothing."""
    texts = " ".join(_texts(document)) if shapes else ""
    for name in shapes:
        if not re.search(rf"\b{re.escape(str(name))}\b", texts):
            why = f"the dump has no symbol {show(name)}"
            raise TinycError(
                "UnboundSymbol", why, "leave it out: all sizes are numbers", at={"layer": "region"}
            )


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _buffers(
    arguments: Sequence[Argument], listed: object, key: str, refs: Mapping[str, MemRef]
) -> list[MemRef]:
    """The buffer of each argument: the one that ``listed`` names, else the one of its own name."""
    names = listed.get(key, [each.name for each in arguments]) if isinstance(listed, dict) else None
    if not isinstance(names, list) or len(names) != len(arguments) or not all(map(_is_text, names)):
        raise _malformed(
            f"program.buffers.{key} is {show(names)}",
            f"name the buffer of each of the {len(arguments)} {key}",
        )
    found = []
    for argument, name in zip(arguments, names, strict=True):
        if any(isinstance(size, str) for size in argument.shape):
            why = f"the shape of {argument.name} is {show_shape(argument.shape)}"
            raise TinycError("UnboundSymbol", why, "give sizes with shapes={…}", at={"layer": "signature"})
        shape = tuple(map(int, argument.shape))
        ref = refs.get(name)
        if ref is None and key == "outputs":
            raise _unknown(f"no Region writes output {show(name)}")
        if ref is not None and (ref.dtype is not argument.dtype or ref.elements != prod(shape)):
            raise _mismatch(name, ref, f"{argument.dtype}{list(shape)} in the signature")
        found.append(MemRef(name, argument.dtype, shape, argument.alignment))
    return found


def _without(entry: object, key: str) -> object:
    return {name: value for name, value in entry.items() if name != key} if isinstance(entry, dict) else entry


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _plans(listed: Sequence[Any], regions: Sequence[Region], machine: Hardware) -> tuple[Plan, ...]:
    """The Plan of every Region: the one that is given for its name, else the default."""
    named = {region.name: region for region in regions}
    if len(named) < len(regions):
        raise TinycError(
            "DuplicateId", "two Regions have one name", "give each its own", at={"layer": "region"}
        )
    plans: dict[str, Plan] = {}
    for number, each in enumerate(listed):
        name = each.get("region") if isinstance(each, dict) else None
        if not isinstance(name, str) or name not in named:
            raise _unknown(f"plan[{number}] is for Region {show(name)}")
        if name in plans:
            raise TinycError(
                "DuplicateId",
                f"Region {name} has two Plans",
                "give each Region one Plan",
                at={"layer": "plan", "value": f"plan[{number}]"},
            )
        plan = plan_from_json(_without(each, "kernel"), f"plan[{number}]")
        check_plan(plan, named[name], machine.limits, f"plan[{number}]")
        plans[name] = plan
    return tuple(
        plans.get(region.name) or default_plan(region, contraction_of(region), machine) for region in regions
    )


def _refs(regions: Sequence[Region]) -> dict[str, MemRef]:
    """Every buffer by name. What is written and read must be of one dtype and as many elements."""
    refs: dict[str, MemRef] = {}
    for region in regions:
        for ref in (*region.outputs, *region.inputs):
            first = refs.setdefault(ref.name, ref)
            if first.dtype is not ref.dtype or first.elements != ref.elements:
                raise _mismatch(ref.name, ref, f"{first.dtype}{list(first.shape)} in another Region")
    return refs


def _derived(regions: Sequence[Region]) -> Signature:
    written = {ref.name for region in regions for ref in region.outputs}
    read = {ref.name for region in regions for ref in region.inputs}
    inputs = {ref.name: ref for region in regions for ref in region.inputs if ref.name not in written}
    outputs = {ref.name: ref for region in regions for ref in region.outputs if ref.name not in read}
    return Signature(
        tuple(Argument(ref.name, ref.dtype, ref.shape) for ref in inputs.values()),
        tuple(Argument(ref.name, ref.dtype, ref.shape) for ref in outputs.values()),
    )


def _several(document: Mapping[str, Any], key: str) -> list[Any]:
    """The entries under ``key``; a single one may stand without a list, as the document writes it."""
    value = document.get(key, [])
    if isinstance(value, dict):
        return [value]
    if not isinstance(value, list):
        raise _malformed(f"{key!r} is {show(value)}", f"give {key!r} as a list with one entry per kernel")
    return value


def _malformed(why: str, suggestion: str) -> TinycError:
    return TinycError("MalformedDocument", why, suggestion, at={"layer": "region"})


def _unknown(why: str) -> TinycError:
    return TinycError(
        "UnknownReference", why, "name a Region or a buffer that the dump has", at={"layer": "region"}
    )


def _mismatch(name: str, ref: MemRef, other: str) -> TinycError:
    return TinycError(
        "AxisAlignmentMismatch",
        f"buffer {name} is {ref.dtype}{list(ref.shape)} in one place and {other}",
        "give it one dtype and one number of elements everywhere",
        at={"layer": "region", "value": name},
    )
