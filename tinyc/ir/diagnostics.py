"""What tinyc says when something is wrong: one form for errors, warnings and notes.

Every diagnostic carries ``code, kind, at, why, suggestion`` (document 004 §14). ``at`` is a mapping with some
of the keys ``layer, op, value, node, file, line, rule`` (resolution I-47).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

#: kind -> code. E10xx Tiny IR, E13xx polyhedral, E14xx Region, E16xx e-graph and rules, E17xx running,
#: E18xx files and command line, W2xxx warnings.
CODES: Mapping[str, str] = MappingProxyType(
    {
        "BroadcastMismatch": "E1001",
        "AxisSizeMismatch": "E1002",
        "InvalidPermutation": "E1003",
        "AccDtypeMissing": "E1004",
        "DTypeMismatch": "E1005",
        "MalformedDocument": "E1006",
        "UnknownUop": "E1007",
        "DuplicateId": "E1008",
        "UnknownReference": "E1009",
        "CyclicGraph": "E1010",
        "InvalidArgument": "E1011",
        "InvalidShape": "E1012",
        "OutOfBoundsMap": "E1013",
        "ExcessivePiecewise": "E1014",
        "UnboundSymbol": "E1015",
        "UnsupportedOp": "E1016",
        "AxisAlignmentMismatch": "E1304",
        "UnguardedAccess": "E1401",
        "NonAssociativeTransform": "E1402",
        "NeutralInvalid": "E1403",
        "RuleFileInvalid": "E1601",
        "UnknownRuleset": "E1602",
        "UnsoundUnion": "E1603",
        "EngineFailed": "E1604",
        "InputMismatch": "E1701",
        "TargetUnavailable": "E1702",
        "CodegenFailed": "E1703",
        "OutOfMemory": "E1704",
        "FileUnreadable": "E1801",
        "Usage": "E1802",
        "InvalidSetting": "E1803",
        "FileUnwritable": "E1804",
        "ManyPieces": "W2101",
        "BudgetExhausted": "W2601",
        "EngineLost": "W2602",
        "MalformedTerm": "W2603",
    }
)


@dataclass(frozen=True)
class Diagnostic:
    """One finding. ``details`` holds the values that matter (shapes, dtypes) as strict-JSON values."""

    kind: str
    why: str
    suggestion: str
    at: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def code(self) -> str:
        return CODES[self.kind]

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "kind": self.kind,
            "at": dict(self.at),
            "why": self.why,
            "suggestion": self.suggestion,
            **dict(self.details),
        }

    def __str__(self) -> str:
        where = ", ".join(f"{key} {value}" for key, value in self.at.items())
        return f"{self.code} {self.kind} at {where or 'program'}\n  why: {self.why}\n  try: {self.suggestion}"


class TinycError(Exception):
    """Every failure that tinyc reports. Attributes: ``code, kind, at, why, suggestion, details``."""

    def __init__(
        self,
        kind: str,
        why: str,
        suggestion: str,
        at: Mapping[str, object] | None = None,
        **details: Any,
    ) -> None:
        place = {key: str(value) for key, value in (at or {}).items() if value is not None}
        self.diagnostic = Diagnostic(kind, why, suggestion, place, details)
        super().__init__(str(self.diagnostic))

    def __reduce__(self) -> tuple[Any, ...]:
        """Keeps what pickle and copy would lose: an error raised in another process reaches its parent."""
        found = self.diagnostic
        return _raised, (found.kind, found.why, found.suggestion, dict(found.at), dict(found.details))

    @property
    def code(self) -> str:
        return self.diagnostic.code

    @property
    def kind(self) -> str:
        return self.diagnostic.kind

    @property
    def at(self) -> Mapping[str, str]:
        return self.diagnostic.at

    @property
    def why(self) -> str:
        return self.diagnostic.why

    @property
    def suggestion(self) -> str:
        return self.diagnostic.suggestion

    @property
    def details(self) -> Mapping[str, Any]:
        return self.diagnostic.details

    def to_json(self) -> dict[str, Any]:
        return self.diagnostic.to_json()


def _raised(
    kind: str, why: str, suggestion: str, at: dict[str, object], details: dict[str, Any]
) -> TinycError:
    return TinycError(kind, why, suggestion, at, **details)


def place(id: str | None = None, uop: str | None = None) -> dict[str, object]:
    """``at`` of a diagnostic about a Tiny IR node."""
    return {"layer": "tiny", "op": uop, "node": id}


def show(value: object, limit: int = 120) -> str:
    """A short, printable form of any value for a message; never raises."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits
        text = f"a {type(value).__name__} too large to print"
    text = text.encode("ascii", "backslashreplace").decode() if not text.isprintable() else text
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def show_shape(shape: tuple[int | str, ...]) -> str:
    """``[M, 128]``."""
    return f"[{', '.join(str(dim) for dim in shape)}]"
