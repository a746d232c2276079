"""The report as strict JSON, and back. The schema is docs/schemas/report.schema.json."""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from tinyc.ir.diagnostics import CATALOGUE, Diagnostic, TinycError, show
from tinyc.ir.usage import KernelUsage

from .decisions import Decision
from .report import VERSION, ExtractionReport, RuleReport

NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""How strict JSON spells what is no number."""

DEFERRED = ("decide", "trace", "assemble")
"""Fields that make what is written."""

OF_A_DIAGNOSTIC = ("code", "kind", "severity", "at", "why", "suggestion")


def to_json(report: ExtractionReport) -> str:
    """Sorted keys; seconds, bytes and FLOPs under keys that say so."""
    data: dict[str, Any] = {"version": VERSION}
    for field in dataclasses.fields(report):
        if field.name not in (*DEFERRED, "matched"):
            data[field.name] = _plain(getattr(report, field.name))
    made = {"decisions": report.decisions, "rules": report.rules, "usage": report.usage}
    data |= {name: _plain(value) for name, value in made.items()}
    return json.dumps(data, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False)


def is_report(document: object) -> bool:
    """Whether a parsed document is a report: no program has these keys."""
    return isinstance(document, Mapping) and {"version", "target", "kernels", "total"} <= document.keys()


def from_json(document: object) -> ExtractionReport:
    """The report of a parsed document. Raises TinycError MalformedDocument with the place of what is wrong."""
    if not isinstance(document, Mapping):
        raise _bad(
            "report", f"{show(document)} is no report", "give the output of `tinyc report FILE --json`"
        )
    version = document.get("version")
    if version != VERSION or isinstance(version, bool):
        why = f"it is a report of version {show(version)}, and this tinyc reads version {VERSION}"
        raise _bad("report.version", why, "make the report anew")
    made = ("version", "decisions", "rules", "usage")
    given = {key: value for key, value in document.items() if key not in made}
    decisions = _read(tuple[Decision, ...], document.get("decisions", []), "report.decisions")
    for number, each in enumerate(decisions):
        if each.lost_by and each.lost_by not in each.terms_s:
            raise _bad(f"report.decisions[{number}].lost_by", f"{show(each.lost_by)} is none of its terms_s")
    rules = _read(tuple[RuleReport, ...], document.get("rules", []), "report.rules")
    usage = _read(tuple[KernelUsage, ...], document.get("usage", []), "report.usage")
    survives = {rule.rule: rule.survives for rule in rules if rule.survives is not None}
    return _object(
        ExtractionReport,
        given,
        "report",
        decide=lambda: decisions,
        trace=lambda: survives or None,
        assemble=lambda: usage,
        matched=tuple(dataclasses.replace(rule, survives=None) for rule in rules),
    )


def _plain(value: object) -> Any:
    if isinstance(value, Diagnostic):
        return value.to_json()
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return next(name for name, each in NON_FINITE.items() if repr(each) == repr(value))
    return value


def _read(wanted: Any, value: object, path: str) -> Any:
    """``value`` as the type ``wanted`` of a field."""
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return (
            None if value is None else _read(next(p for p in parts if p is not types.NoneType), value, path)
        )
    if origin is tuple:
        if not isinstance(value, list):
            raise _bad(path, f"{show(value)} stands where a list is expected")
        return tuple(_read(parts[0], each, f"{path}[{number}]") for number, each in enumerate(value))
    if origin is not None:  # a Mapping
        if not isinstance(value, Mapping):
            raise _bad(path, f"{show(value)} stands where an object is expected")
        return {key: _read(parts[1], each, f"{path}.{key}") for key, each in value.items()}
    if wanted is Diagnostic:
        return _diagnostic(value, path)
    if dataclasses.is_dataclass(wanted):
        return _object(wanted, value, path)
    return _scalar(wanted, value, path)


def _scalar(wanted: Any, value: object, path: str) -> Any:
    if wanted is float and isinstance(value, str) and value in NON_FINITE:
        return NON_FINITE[value]
    right = isinstance(value, int | float if wanted is float else wanted)
    if not right or isinstance(value, bool) is not (wanted is bool):
        names = {float: "a number", int: "an integer", str: "a text", bool: "true or false"}
        raise _bad(path, f"{show(value)} stands where {names[wanted]} is expected")
    if isinstance(value, int):  # it stays one, but is shown as a number of a few digits
        try:
            float(value)
        except OverflowError:
            raise _bad(path, f"{show(value)} is too large") from None
    return value


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _object(kind: Any, value: object, path: str, **given: Any) -> Any:
    """A dataclass from an object with exactly its fields; those with a default may be missing."""
    if not isinstance(value, Mapping):
        raise _bad(path, f"{show(value)} stands where an object is expected")
    fields = {
        field.name: field for field in dataclasses.fields(kind) if field.name not in (*DEFERRED, *given)
    }
    if unknown := [key for key in value if key not in fields]:
        raise _bad(path, f"it has the key {show(unknown[0])}", f"the keys are {', '.join(fields)}")
    found = dict(given)
    for name, field in fields.items():
        if name in value:
            found[name] = _read(_hints(kind)[name], value[name], f"{path}.{name}")
        elif field.default is dataclasses.MISSING:
            raise _bad(path, f"{name} is missing", f"give {', '.join(fields)}")
    return kind(**found)


def _diagnostic(value: object, path: str) -> Diagnostic:
    if not isinstance(value, Mapping) or any(key not in value for key in OF_A_DIAGNOSTIC):
        raise _bad(path, f"{show(value)} is no diagnostic", f"give {', '.join(OF_A_DIAGNOSTIC)}")
    kind, level = value["kind"], value["severity"]
    known = isinstance(kind, str) and kind in CATALOGUE and level in ("error", "warning", "note")
    texts = isinstance(value["why"], str) and isinstance(value["suggestion"], str)
    if not known or not texts or not isinstance(value["at"], Mapping):
        raise _bad(path, f"{show(value)} is no diagnostic", "compare it with docs/diagnostics.md")
    details = {key: each for key, each in value.items() if key not in OF_A_DIAGNOSTIC}
    return Diagnostic(kind, value["why"], value["suggestion"], value["at"], details, level)


def _bad(
    path: str, why: str, suggestion: str = "compare it with docs/schemas/report.schema.json"
) -> TinycError:
    return TinycError("MalformedDocument", why, suggestion, {"layer": "report", "value": path})
