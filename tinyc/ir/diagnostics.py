"""What tinyc says when something is wrong: one form for errors, warnings and notes.

Every diagnostic carries ``code, kind, severity, at, why, suggestion`` (document 004 §14). ``at`` is a mapping
with some of the keys ``layer, op, value, node, file, line, rule`` (resolution I-47). ``docs/diagnostics.md`` has
a section on every code, with an example that brings it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Entry:
    """What is true of every diagnostic of one kind.

    ``summary`` says what happened and ``suggestion`` what helps in general; a diagnostic itself says both with
    the values at hand. ``warns`` is the code of the same kind where it is only a warning. A ``reserved`` code
    keeps its number and is never emitted.
    """

    code: str
    summary: str
    suggestion: str
    severity: Severity = "error"
    warns: str | None = None
    reserved: bool = False


#: kind -> what it is. E10xx Tiny IR, E11xx withdrawn, E12xx and E13xx polyhedral, E14xx Region, E15xx plans, and
#: what they cost, E16xx e-graph and rules, E17xx running, E18xx files and command line, W2xxx warnings.
CATALOGUE: Mapping[str, Entry] = MappingProxyType(
    {
        "BroadcastMismatch": Entry(
            "E1001",
            "two shapes that must be equal differ, or a shape cannot be broadcast to another",
            "make them equal with RESHAPE and EXPAND",
        ),
        "AxisSizeMismatch": Entry(
            "E1002",
            "an axis or a number of elements has two sizes that must agree",
            "make the sizes equal, or declare how the symbols are related",
        ),
        "InvalidPermutation": Entry(
            "E1003",
            "perm does not name every axis exactly once",
            "list each of 0 to rank-1 once",
        ),
        "AccDtypeMissing": Entry(
            "E1004",
            "a REDUCE does not say in which dtype it accumulates",
            'add "dtype", "fp32" as a rule',
        ),
        "DTypeMismatch": Entry(
            "E1005",
            "dtypes differ where they must be equal, or an operation does not exist for a dtype",
            "insert a CAST",
        ),
        "MalformedDocument": Entry(
            "E1006",
            "a document is no JSON of the form that is read",
            "compare it with a file of docs/examples",
        ),
        "UnknownUop": Entry("E1007", "an operation has an unknown name", "use one of the listed names"),
        "DuplicateId": Entry("E1008", "two things have the same name", "rename one of them"),
        "UnknownReference": Entry(
            "E1009", "a name is used that nothing defines", "define it, or correct the name"
        ),
        "CyclicGraph": Entry("E1010", "values depend on themselves", "break the cycle"),
        "InvalidArgument": Entry(
            "E1011", "an argument of an operation or a function is wrong", "see what it takes"
        ),
        "InvalidShape": Entry(
            "E1012", "a size is no positive integer or symbolic expression", "use sizes of at least 1"
        ),
        "OutOfBoundsMap": Entry(
            "E1013", "a VIEW reads outside its operand", "shrink result_shape, or PAD the operand first"
        ),
        "ExcessivePiecewise": Entry(
            "E1014",
            "a chain of movement cuts an index space into too many pieces",
            "merge the PADs into one, or compute something between them",
            warns="W2101",
        ),
        "UnboundSymbol": Entry(
            "E1015", "a size is still a symbol where a number is needed", "bind it with shapes"
        ),
        "UnsupportedOp": Entry(
            "E1016", "a frontend operation is not known", "write it with operations that exist"
        ),
        "NegativeStrideUnsupported": Entry(
            "E1102",
            "withdrawn: FLIP and negative coefficients of a VIEW are legal",
            "nothing to do",
            reserved=True,
        ),
        "MissingDivGuard": Entry(
            "E1203",
            "an index expression has a %, where only + - * and // are known",
            "write E % q as E - q*(E//q)",
        ),
        "NonSCoP": Entry(
            "E1301",
            "an access is not affine, so a Region ends there",
            "bind the sizes, or write the view with affine indices and floor divisions",
            severity="note",
        ),
        "AxisAlignmentMismatch": Entry(
            "E1304",
            "the size of an axis contradicts the signature",
            "correct the size, or the signature's symbol",
        ),
        "UnguardedAccess": Entry(
            "E1401",
            "a Read may leave its buffer and no Select guards it",
            "put the Read into a Select whose condition holds the index within bounds",
        ),
        "NonAssociativeTransform": Entry(
            "E1402",
            "a function was to be moved across a reduction with which it does not commute",
            "keep the function on its side of the reduction",
        ),
        "NeutralInvalid": Entry(
            "E1403",
            "the start value of a reduction does not exist in its dtype",
            "use a dtype that has the value, or another init",
        ),
        "SharedMemoryExceeded": Entry(
            "E1501",
            "the tiles of a plan do not fit into shared memory, or on the CPU into a thread's scratch memory",
            "use fewer stages or a smaller tile",
        ),
        "RegistersExceeded": Entry(
            "E1502", "a plan takes more registers than a thread has", "use a smaller warp_tile"
        ),
        "VectorTooWide": Entry(
            "E1503", "a plan's vectors are wider than one memory access", "use a smaller vectorize.width"
        ),
        "TooManyThreads": Entry(
            "E1504", "a plan takes more threads than a block has", "use a larger warp_tile or a smaller tile"
        ),
        "PlanInvalid": Entry("E1505", "a plan is malformed", "correct the named place"),
        "PlanMismatch": Entry(
            "E1506",
            "a plan does not fit its Region or its target: names, axes, layouts, alignment, architecture",
            "start from the plan that `--dump=plan` gives",
        ),
        "CostModelInvalid": Entry(
            "E1507",
            "a cost model gives something that is no estimate",
            "give finite numbers of at least 0",
        ),
        "RuleFileInvalid": Entry("E1601", "a rule file is wrong", "correct the named line of the file"),
        "UnknownRuleset": Entry("E1602", "a ruleset was named that no file declares", "use a listed name"),
        "UnsoundUnion": Entry(
            "E1603",
            "a rule made two values equal that differ in shape or dtype",
            "leave the rule out, or correct it",
        ),
        "InputMismatch": Entry(
            "E1701", "the inputs of a call are not those that the program declares", "give the declared ones"
        ),
        "TargetUnavailable": Entry("E1702", "the target cannot be used here", 'use target="cpu"'),
        "CodegenFailed": Entry(
            "E1703", "no code could be generated for a kernel", "please report it with the program"
        ),
        "OutOfMemory": Entry("E1704", "memory ended", "use smaller shapes or a smaller budget"),
        "PtxInvalid": Entry(
            "E1705",
            "a PTX text is malformed, or holds what the emulator does not know",
            "keep to what docs/emulator.md names",
        ),
        "EmulationStopped": Entry(
            "E1706", "an emulated kernel ran longer than its limit", "emulate smaller shapes, or raise limit"
        ),
        "CudaRefused": Entry(
            "E1707", "a CUDA source does not compile", "correct the source at the lines of NVRTC's log"
        ),
        "DriverFailed": Entry(
            "E1708", "the driver of a GPU refused a call", "emulate the program, or update the driver"
        ),
        "GpuIrInvalid": Entry(
            "E1709",
            "a document of GPU IR is malformed, or its statements use a tile when it is not there",
            "correct the named statement",
        ),
        "FileUnreadable": Entry("E1801", "a file cannot be read", "check its path and permissions"),
        "Usage": Entry("E1802", "the command line is wrong", "see tinyc COMMAND --help"),
        "InvalidSetting": Entry(
            "E1803", "an environment variable has a value that it cannot have", "see docs/environment.md"
        ),
        "FileUnwritable": Entry("E1804", "a file cannot be written", "give a folder that can be written"),
        "BudgetExhausted": Entry(
            "W2601",
            "optimisation stopped at a limit; the best program so far is used",
            "raise the budget, or leave out the ruleset that grew",
            severity="warning",
        ),
        "EngineLost": Entry(
            "W2602",
            "the process of the e-graph ended; what it had sent is used",
            "raise the budget's memory or seconds",
            severity="warning",
        ),
        "MalformedTerm": Entry(
            "W2603",
            "rules made terms that mean nothing; they were left out",
            "correct the rules that made them",
            severity="warning",
        ),
    }
)

#: kind -> code. The one kind that is a warning below its hard limit has the code of the error here.
CODES: Mapping[str, str] = MappingProxyType({kind: entry.code for kind, entry in CATALOGUE.items()})


@dataclass(frozen=True)
class Diagnostic:
    """One finding. ``details`` holds the values that matter (shapes, dtypes) as strict-JSON values.

    ``at`` loses the keys without a value. ``level``: None for the severity of the kind; what is raised is an error,
    and a kind with ``Entry.warns`` is a warning where this says so.
    """

    kind: str
    why: str
    suggestion: str
    at: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    level: Severity | None = None

    def __post_init__(self) -> None:
        place = {key: str(value) for key, value in self.at.items() if value is not None}
        object.__setattr__(self, "at", place)

    @property
    def code(self) -> str:
        entry = CATALOGUE[self.kind]
        return entry.warns if self.level == "warning" and entry.warns else entry.code

    @property
    def severity(self) -> Severity:
        return self.level or CATALOGUE[self.kind].severity

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "kind": self.kind,
            "severity": self.severity,
            "at": dict(self.at),
            "why": self.why,
            "suggestion": self.suggestion,
            **dict(self.details),
        }

    def __str__(self) -> str:
        where = ", ".join(f"{key} {value}" for key, value in self.at.items())
        return f"{self.code} {self.kind} at {where or 'program'}\n  why: {self.why}\n  try: {self.suggestion}"


class TinycError(Exception):
    """Every failure that tinyc reports. Attributes: ``code, kind, severity, at, why, suggestion, details``."""

    def __init__(
        self,
        kind: str,
        why: str,
        suggestion: str,
        at: Mapping[str, object] | None = None,
        **details: Any,
    ) -> None:
        self.diagnostic = Diagnostic(kind, why, suggestion, at or {}, details, "error")
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
    def severity(self) -> Severity:
        return self.diagnostic.severity

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
