"""``optimize_and_compile``: the whole way from a program to something that can be called.

verify -> saturate (rules/) -> extract -> Regions, Plans, ExecutionPlan -> code for the target.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import Budget, saturate
from tinyc.extract.base import base_program
from tinyc.extract.cost import CostModel, Roofline
from tinyc.extract.hardware import hardware
from tinyc.extract.program import Found, extract_program
from tinyc.extract.report import ExtractionReport, InputCopies, make_report
from tinyc.frontend import load
from tinyc.ir.diagnostics import Diagnostic, TinycError
from tinyc.ir.document import dumps, program_to_document
from tinyc.ir.dump import execution_to_json, plan_to_json, region_to_json
from tinyc.ir.plan import ExecutionPlan, Extracted, Plan
from tinyc.ir.region import Region
from tinyc.ir.tiny import Program
from tinyc.ir.verify import bind
from tinyc.runtime.arrays import bind_shapes, place_arguments, receive, returned

from .settings import read_settings

if TYPE_CHECKING:
    from tinyc.runtime.cpu import Executable

__all__ = ["Budget", "Compiled", "KernelInfo", "optimize_and_compile"]

STAGES = ("tiny", "region", "plan", "exec", "llvm")
"""What :meth:`Compiled.dump` and ``--dump`` know, in pipeline order."""


@dataclass(frozen=True)
class KernelInfo:
    """One kernel: ``name`` is the entry symbol of ``source``, the whole text that is compiled.

    Equal Regions share one kernel; the first lines of its source name them all. Reports and dumps call a Region
    ``region`` and an entry symbol ``symbol``.
    """

    name: str
    source: str
    region: Region
    plan: Plan


@dataclass(frozen=True)
class _Options:
    target: str
    rules: tuple[str | Path, ...]
    without: tuple[str, ...]
    also: tuple[str, ...]
    budget: Budget
    cost_model: CostModel | None
    profile: bool


def optimize_and_compile(
    program: Program | str | os.PathLike[str] | dict[str, Any],
    target: str = "cpu",
    shapes: Mapping[str, int] | None = None,
    rules: Sequence[str | Path] = (),
    without: Sequence[str] = (),
    also: Sequence[str] = (),
    budget: Budget | None = None,
    cost_model: CostModel | None = None,
    *,
    profile: bool = False,
) -> Compiled:
    """Finds the fast program and compiles it.

    Args:
        program: a Program (``tinyc.load``, ``tinyc.trace``), a path, or a parsed document.
        target: "cpu", "sm80", "sm90", or "auto" (what this machine has; today always "cpu"). For sm80 and sm90
            there are Regions, Plans and the report so far; calling it raises TargetUnavailable.
        shapes: sizes of symbols. The rest bind from the arguments of the first call, which compiles then.
        rules: extra ``.egg`` files or folders, added to the built-in ones.
        without: rulesets to leave out. also: rulesets that are off by default, to switch on.
        budget: limits of the optimisation; running out gives the best program so far and a warning.
        cost_model: replaces the roofline model.
        profile: run the rules one at a time, so that the report says how many e-nodes each of them adds. Slower.

    Raises:
        TinycError: for whatever is wrong with the program, the rules or the options.
    """
    target = "cpu" if target == "auto" else target
    hardware(target)
    given = program if isinstance(program, Program) else load(program)
    options = _Options(
        target,
        (*read_settings().rules, *_several(rules)),
        tuple(_several(without)),  # type: ignore[arg-type]
        tuple(_several(also)),  # type: ignore[arg-type]
        budget or Budget(),
        cost_model,
        profile,
    )
    load_rules(options.rules).active(
        options.without, options.also
    )  # a wrong name is an error now, not at a call
    if shapes:
        given = bind(given, dict(shapes))
    return Compiled(given, options)


def _several(value: Sequence[str | Path] | str | Path) -> tuple[str | Path, ...]:
    return (value,) if isinstance(value, (str, Path)) else tuple(value)


@dataclass(frozen=True)
class _Built:
    """One binding of the symbols, compiled."""

    program: Program
    extracted: Extracted
    report: ExtractionReport
    executable: Executable | None


class Compiled:
    """A compiled program. Call it with arrays, by name or in signature order.

    Where symbols are unbound it compiles at the first call with each binding; until then ``report``, ``kernels``,
    ``plan`` and most of ``dump`` raise UnboundSymbol.
    """

    def __init__(self, program: Program, options: _Options) -> None:
        self.program = program
        self._options = options
        self._built: dict[tuple[tuple[str, int], ...], _Built] = {}
        self._latest: _Built | None = None
        self._copied: dict[str, tuple[int, int]] = {}  # input -> calls that copied it, bytes
        self._lock = threading.Lock()
        if not program.symbols:
            self._latest = self._bound({})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs for these inputs: the array itself, or a tuple in signature order for several.

        Arrays keep their kind: numpy in, numpy out; torch in, torch out. Raises TinycError InputMismatch for a wrong
        name, number, shape, DTypeMismatch for a wrong dtype (nothing is cast), and OutOfMemory.
        """
        given = place_arguments(self.program, args, kwargs)
        arrays, kind, copied = receive(self.program, given)
        built = self._latest if not self.program.symbols else self._bound(bind_shapes(self.program, arrays))
        assert built is not None
        code = self._code(built)
        with self._lock:
            for name, size in copied.items():
                calls, total = self._copied.get(name, (0, 0))
                self._copied[name] = calls + 1, total + size
        try:
            outputs = code(arrays)
        except MemoryError as error:
            raise TinycError(
                "OutOfMemory",
                f"a call allocates its outputs and {code.peak_bytes} bytes beside them: {error}",
                "use smaller sizes",
                at={"layer": "runtime"},
            ) from error
        results = tuple(returned(output, kind) for output in outputs)
        return results[0] if len(results) == 1 else results

    @property
    def report(self) -> ExtractionReport:
        """What was chosen and why; of the latest binding where there are several. ``copied`` is as of now."""
        copied = tuple(InputCopies(name, *self._copied[name]) for name in sorted(self._copied))
        report = self._ready("report").report
        return replace(report, copied=copied) if copied else report

    @property
    def kernels(self) -> tuple[KernelInfo, ...]:
        built = self._ready("kernels")
        code, regions = self._code(built).kernels, built.extracted.regions
        sharing: dict[str, list[str]] = {}
        for kernel, region in zip(code, regions, strict=True):
            sharing.setdefault(kernel.name, []).append(f"; Region {region.name}\n")
        return tuple(
            KernelInfo(kernel.name, "".join(sharing[kernel.name]) + kernel.source, region, plan)
            for kernel, region, plan in zip(code, regions, built.extracted.plans, strict=True)
        )

    @property
    def plan(self) -> ExecutionPlan:
        return self._ready("plan").extracted.execution

    @property
    def executable(self) -> Executable:
        """The CPU runtime's object: memory figures and profiling."""
        return self._code(self._ready("executable"))

    def dump(self, stage: str) -> str:
        """One of the stages in :data:`STAGES` as text: strict JSON ``{"<stage>": …}``."""
        if stage not in STAGES:
            raise TinycError(
                "InvalidArgument",
                f"there is no stage {stage!r}",
                f"the stages are {', '.join(STAGES)}",
                at={"layer": "compiler", "value": stage},
            )
        if stage == "tiny":
            return dumps(
                {"tiny": program_to_document(self._latest.program if self._latest else self.program)}
            )
        extracted = self._ready("dump").extracted
        if stage == "exec":
            return dumps({"exec": execution_to_json(extracted.execution)})
        if stage == "region":
            return dumps({"region": [region_to_json(region) for region in extracted.regions]})
        if stage == "plan":
            pairs = zip(extracted.regions, extracted.plans, strict=True)
            return dumps({"plan": [plan_to_json(region.name, plan) for region, plan in pairs]})
        return dumps(
            {
                "llvm": [
                    {"region": kernel.region.name, "symbol": kernel.name, "source": kernel.source}
                    for kernel in self.kernels
                ]
            }
        )

    def __repr__(self) -> str:
        inputs = ", ".join(port.name for port in self.program.inputs)
        state = f"{len(self._latest.extracted.regions)} kernels" if self._latest else "not bound yet"
        return f"<tinyc.Compiled ({inputs}) on {self._options.target}: {state}>"

    def _code(self, built: _Built) -> Executable:
        if built.executable is None:
            raise TinycError(
                "TargetUnavailable",
                f"no code is generated for {self._options.target} yet",
                'use target="cpu" to run; report, plan and dump("region") work for every target',
                at={"layer": "compiler", "value": self._options.target},
            )
        return built.executable

    def _ready(self, what: str) -> _Built:
        if self._latest is None:
            names = ", ".join(self.program.symbols)
            raise TinycError(
                "UnboundSymbol",
                f"{what} is not known before the symbols {names} are bound",
                f"pass shapes={{{', '.join(f'{name!r}: …' for name in self.program.symbols)}}}, or call it once",
                at={"layer": "compiler"},
            )
        return self._latest

    def _bound(self, shapes: Mapping[str, int]) -> _Built:
        key = tuple(sorted(shapes.items()))
        with self._lock:
            if key not in self._built:
                program = bind(self.program, dict(shapes)) if shapes else self.program
                self._built[key] = _compile(program, self._options)
            self._latest = self._built[key]
            return self._latest


def _findings(found: Found, users: bool, warned: bool) -> list[Diagnostic]:
    """Warnings about what extraction met. Raises UnsoundUnion where a rule of a user's made a Region that is none."""
    listed = "; ".join(found.malformed[:5])
    if found.fault and users:
        raise TinycError(
            "UnsoundUnion",
            f"what was extracted is no program: kernel {found.fault}" + (f" ({listed})" if listed else ""),
            "a rule that was added builds a term that its place cannot hold; compile with them one by one",
            at={"layer": "extract"},
        )
    found_none = "no whole program could be extracted from the e-graph; the naive program is used"
    warnings = []
    if found.malformed:
        warnings.append(
            Diagnostic(
                "MalformedTerm",
                f"left out, since no program can hold it: {listed}",
                "look at what the rules build on their right-hand sides",
                {"layer": "extract"},
            )
        )
    if found.fault or (found.extracted is None and not warned):
        warnings.append(
            Diagnostic(
                "EngineLost",
                f"kernel {found.fault}; the naive program is used" if found.fault else found_none,
                "look at the rulesets that were left out, or report this program",
                {"layer": "extract"},
            )
        )
    return warnings


def _compile(program: Program, options: _Options) -> _Built:
    from tinyc.runtime.cpu import Executable

    model = options.cost_model or Roofline(hardware(options.target))
    seconds: dict[str, float] = {}
    started = time.perf_counter()

    def lap(stage: str) -> None:
        nonlocal started
        seconds[stage] = time.perf_counter() - started
        started = time.perf_counter()

    saturation = saturate(
        program, load_rules(options.rules), options.without, options.also, options.budget, options.profile
    )
    lap("saturate")
    warnings = list(saturation.warnings)
    naive = base_program(program)
    found = extract_program(program, saturation.graph, model)
    warnings += _findings(found, bool(options.rules), warned=bool(warnings))
    extracted = naive if found.extracted is None or found.fault else found.extracted
    lap("extract")
    executable = None
    if options.target == "cpu":
        executable = Executable(extracted, read_settings().num_threads)
        lap("codegen")
    report = make_report(
        options.target,
        model,
        extracted,
        naive,
        saturation,
        {} if extracted is naive else found.fused,
        tuple(warnings),
        seconds,
        extracted is naive,
        symbols=tuple(kernel.name for kernel in executable.kernels) if executable else (),
    )
    return _Built(program, extracted, report, executable)
