"""``optimize_and_compile``: the whole way from a program to something that can be called.

The stages are in ``tinyc.pipeline``; what each looks like, in ``tinyc.stages``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyc import __version__
from tinyc.codegen.playback import play
from tinyc.draw import LIMIT, draw_classes, draw_program, draw_regions
from tinyc.egraph.rulefiles import load_rules
from tinyc.egraph.saturate import Budget
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.cost.measurements import Measurement
from tinyc.extract.cost.model import CostModel
from tinyc.extract.report.report import ExtractionReport, InputCopies
from tinyc.frontend.load import naming, program_of, read_document
from tinyc.ir.diagnostics import TinycError, show
from tinyc.ir.document import dumps
from tinyc.ir.plan import ExecutionPlan, Plan
from tinyc.ir.region import Region
from tinyc.ir.signature import signature_of
from tinyc.ir.tiny import Program
from tinyc.ir.verify import bind
from tinyc.runtime.arrays import Shaped, bind_shapes, deliver, place_arguments, receive
from tinyc.runtime.cuda.arrays import on_device, receive_on_device, stream_of
from tinyc.runtime.cuda.arrays import returned as array_of
from tinyc.runtime.cuda.device import first_device, target_for

from .ablation import ablate
from .measured import measure
from .pipeline import Built, Options, compile_continued, machine
from .remembered import compile_remembered
from .resume import Continued, is_dump, read_dump
from .settings import read_settings
from .stages import (
    OF_PROGRAM,
    STAGES,
    check_stage,
    code_stage,
    extracted_stage,
    gpu_stage,
    program_stage,
    stages_of,
)

if TYPE_CHECKING:
    from tinyc.codegen.cpu import CpuKernel
    from tinyc.codegen.cuda import CudaKernel
    from tinyc.codegen.emulator import Delivery
    from tinyc.explain.explanation import Explanation
    from tinyc.runtime.cpu import Executable
    from tinyc.runtime.cuda.launch import Launched
    from tinyc.runtime.cuda.loader import Device
    from tinyc.runtime.cuda.program import CudaProgram
    from tinyc.runtime.emulated import Emulation

DRAWINGS = ("program", "regions", "classes")
"""What :meth:`Compiled.draw` draws."""

__all__ = ["STAGES", "Budget", "Compiled", "KernelInfo", "optimize_and_compile"]


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
        program: a Program (``tinyc.load``, ``tinyc.trace``), a path, or a parsed document. A dump of the stages
            region and plan is compiled as it stands: nothing is optimised.
        target: "cpu", "sm80", "sm86", "sm89", "sm90", or "auto": what this machine's first GPU runs, "cpu" where there is none.
            Programs for sm80 and sm90 need a driver to be called, and none for :meth:`Compiled.emulate`.
        shapes: sizes of symbols. The rest bind from the arguments of the first call, which compiles then.
        rules: extra ``.egg`` files or folders, added to the built-in ones.
        without: rulesets, or single rules, to leave out. also: rulesets that are off by default, to switch on.
        budget: limits of the optimisation; running out gives the best program so far and a warning. Those of the exact
            search (``extract_seconds``, 0 for none) end it with what is known of the best choice in the report.
        cost_model: replaces the roofline model (docs/cost.md).
        profile: run the rules one at a time, so that the report says how many e-nodes each of them adds. Slower.

    Raises:
        TinycError: for whatever is wrong with the program, the rules or the options.
    """
    target = target_here() if target == "auto" else target
    hardware(target)  # a wrong name is an error now
    if not isinstance(shapes, Mapping | None) or not isinstance(budget, Budget | None):
        raise TinycError(
            "InvalidArgument",
            f"shapes is {show(shapes)}, budget is {show(budget)}",
            'give shapes={"M": 150}, budget=tinyc.Budget(seconds=10), or leave them out',
            {"layer": "compiler"},
        )
    settings = read_settings()
    options = Options(
        target,
        (*settings.rules, *_several("rules", rules, (str, Path))),
        _several("without", without, (str,)),
        _several("also", also, (str,)),
        budget or Budget(extract_seconds=settings.extract_seconds),
        cost_model,
        profile,
    )
    # a wrong name or cost model is an error now, not at a call
    load_rules(options.rules).active(options.without, options.also)
    _ = options.model
    document = None if isinstance(program, Program) else read_document(program)
    if document is not None and is_dump(document):
        with naming(program):
            return Compiled(read_dump(document, dict(shapes or {}), machine(target)), options)
    given = program if isinstance(program, Program) else program_of(document, program)
    if shapes:
        given = bind(given, dict(shapes))
    return Compiled(given, options)


def target_here() -> str:
    """The target for this machine: of its first GPU, where there is one that code is generated for."""
    try:
        return target_for(first_device()) or "cpu"
    except TinycError:  # what is wrong with the driver, `tinyc doctor` says
        return "cpu"


def _several(option: str, value: Any, kinds: tuple[type, ...]) -> tuple[Any, ...]:
    """One of ``kinds`` or several. Raises InvalidArgument."""
    given = (value,) if isinstance(value, kinds) or not isinstance(value, Iterable) else tuple(value)
    wrong = [each for each in given if not isinstance(each, kinds)]
    if wrong:
        raise TinycError(
            "InvalidArgument",
            f"{option} holds {show(wrong[0])}",
            f"give {option} as a list of texts{' or paths' if Path in kinds else ''}",
            {"layer": "compiler"},
        )
    return given


class Compiled:
    """A compiled program. Call it with arrays, by name or in signature order.

    Where symbols are unbound it compiles at the first call with each binding; until then ``report``, ``kernels``,
    ``plan`` and most of ``dump`` raise UnboundSymbol.
    """

    def __init__(self, program: Program | Continued, options: Options) -> None:
        self._program = program if isinstance(program, Program) else None
        self._options = options
        self._built: dict[tuple[tuple[str, int], ...], Built] = {}
        self._latest: Built | None = None
        self._copied: dict[str, tuple[int, int]] = {}  # input -> calls that copied it, bytes
        self._measured: tuple[Built, tuple[Measurement, ...]] | None = None
        self._explained: tuple[Built, Explanation] | None = None
        self._lock = threading.Lock()
        self._device: Device | None = None
        self._loaded: list[tuple[Built, Launched]] = []
        if isinstance(program, Continued):
            self.signature = program.signature
            self._latest = compile_continued(program, options)
        else:
            self.signature = signature_of(program)
            if not program.symbols:
                self._latest = self._bound({})

    @property
    def program(self) -> Program:
        """The Tiny program. Raises InvalidArgument where compilation went on from a dump of Regions."""
        if self._program is None:
            raise _no_program("the program")
        return self._program

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """The outputs for these inputs: the array itself, or a tuple in signature order for several.

        Arrays keep their kind: numpy in, numpy out; torch in, torch out. On a GPU, arrays that lie there already are read
        where they are, and so are the results, which are ready after what is under way on the caller's stream; all others
        are copied there and back. Raises TinycError InputMismatch for a wrong
        name, number, shape, DTypeMismatch for a wrong dtype (nothing is cast), OutOfMemory, TargetUnavailable
        where there is no GPU for the target, and DriverFailed.
        """
        placed = place_arguments(self.signature, args, kwargs)
        if self._options.target != "cpu" and any(map(on_device, placed)):
            return self._call_on_device(placed)
        given, kind, built = self._receive(args, kwargs)
        code = self._code(built)
        try:
            outputs = code(given)
        except MemoryError as error:
            raise TinycError(
                "OutOfMemory",
                f"a call allocates its outputs and {code.peak_bytes} bytes beside them: {error}",
                "use smaller sizes",
                at={"layer": "runtime"},
            ) from error
        results = deliver(self.signature, outputs, kind)
        return results[0] if len(results) == 1 else results

    def _call_on_device(self, placed: Sequence[Any]) -> Any:
        """A call with arrays that lie on the GPU."""
        device, stream = self._gpu(), stream_of(placed)
        arrays, kind, copied = receive_on_device(self.signature, placed, device, stream)
        built = self._of_arrays(arrays, copied)
        if any(each.layout.kind == "col_major" for each in built.signature.outputs):
            raise TinycError(
                "UnsupportedOp",
                "an output is declared col_major, and results on the GPU lie row-major",
                "pass arrays of the host, or declare row_major",
                at={"layer": "runtime"},
            )
        outputs = self._launched(built).on_device(arrays, stream)
        results = tuple(array_of(each, kind) for each in outputs)
        return results[0] if len(results) == 1 else results

    def playback(self, /, *args: Any, **kwargs: Any) -> Any:
        """As a call, but the Regions are interpreted with numpy: no code is generated (document 004 §6.11)."""
        given, kind, built = self._receive(args, kwargs)
        results = deliver(self.signature, play(built.extracted, given), kind)
        return results[0] if len(results) == 1 else results

    def emulate(self, /, *args: Any, delivery: Delivery = "late", seed: int = 0, **kwargs: Any) -> Emulation:
        """A program for sm80 or sm90 on the CPU: the PTX that NVRTC makes of its kernels, watched (docs/emulator.md).

        The result's ``outputs`` are those of a call, always a tuple; ``findings`` say what is wrong with a kernel, and are
        empty where nothing is; ``counters`` are by the name of the Region. ``delivery``: when copies that run beside the
        threads arrive: "late", "early", or "random" by ``seed``. An input called so is given by its place.

        Raises TinycError as a call does, TargetUnavailable for "cpu" or without NVRTC, InvalidArgument for another delivery.
        """
        from tinyc.codegen.emulator import DELIVERIES
        from tinyc.runtime.emulated import emulate_program  # not needed by those who only call

        if delivery not in DELIVERIES:
            raise TinycError(
                "InvalidArgument",
                f"there is no delivery {show(delivery)}",
                f"it is one of {', '.join(DELIVERIES)}",
                at={"layer": "compiler", "value": delivery},
            )
        given, kind, built = self._receive(args, kwargs)
        result = emulate_program(self._for_gpu(built, "emulated"), given, delivery, seed)
        return replace(result, outputs=tuple(deliver(self.signature, list(result.outputs), kind)))

    def _receive(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], str, Built]:
        """The arguments as arrays, the kind they are of, and the binding of the symbols that they ask for."""
        arrays, kind, copied = receive(self.signature, place_arguments(self.signature, args, kwargs))
        return arrays, kind, self._of_arrays(arrays, copied)

    def _of_arrays(self, arrays: Sequence[Shaped], copied: Mapping[str, int]) -> Built:
        """The binding of the symbols that ``arrays`` ask for. ``copied``: the bytes of those that were copied."""
        if self.signature.symbols:
            built = self._bound(bind_shapes(self.signature, arrays))
        else:
            built = self._ready("a call")
        with self._lock:
            for name, size in copied.items():
                calls, total = self._copied.get(name, (0, 0))
                self._copied[name] = calls + 1, total + size
        return built

    def measure(
        self, /, *args: Any, repeats: int = 9, log: str | os.PathLike[str] | None = None, **kwargs: Any
    ) -> tuple[Measurement, ...]:
        """Runs the kernels on these inputs and says of each what it took (median of ``repeats`` runs) and was estimated
        to take. The report has the times from then on. ``log``: a CSV file to append them to (document 004 §13).

        An input called ``repeats`` or ``log`` is given by its place. Raises TinycError as a call does, and
        FileUnwritable.
        """
        given, _, built = self._receive(args, kwargs)
        rows = measure(self._code(built), given, self._options.model, repeats, log)
        self._measured = built, rows
        return rows

    @property
    def report(self) -> ExtractionReport:
        """What was chosen and why; of the latest binding where there are several. ``copied`` and the measured times are
        as of now."""
        copied = tuple(InputCopies(name, *self._copied[name]) for name in sorted(self._copied))
        built = self._ready("report")
        report = replace(built.report, copied=copied) if copied else built.report
        if self._measured is None or self._measured[0] is not built:
            return report
        actual = {row.region: row.actual for row in self._measured[1]}
        kernels = (replace(kernel, actual_s=actual.get(kernel.region)) for kernel in report.kernels)
        return replace(report, kernels=tuple(kernels))

    def ablated(self) -> ExtractionReport:
        """The report with what each rule that matched, and each ruleset, is worth: the program is optimised again
        without it (tens of seconds). Raises UnboundSymbol as :attr:`report`, and InvalidArgument where compilation went
        on from a dump, since nothing was optimised then."""
        built = self._ready("report")
        if built.program is None:
            raise _no_program("what rules are worth")
        return replace(self.report, ablation=ablate(built.program, self._options, built.report))

    def explain(self, kernel: str | None = None, rule: str | None = None) -> Explanation:
        """From the naive program to the extracted one, of the latest binding: each step one named rule at one place, with
        its before and after, tried on random inputs. ``kernel``: of one Region only (its name, or its buffer's).
        ``rule``: the steps of one rule only.

        The rules run once more for it, and record what they do; the result is kept. Raises InvalidArgument for a kernel
        or a rule that there is not, and what :func:`tinyc.explained.explain_built` raises.
        """
        from .explained import check_rule, explain_built  # not needed by those who only call

        built = self._ready("explain")
        if rule is not None:
            check_rule(rule, self._options)
        with self._lock:
            if self._explained is None or self._explained[0] is not built:
                self._explained = built, explain_built(built, self._options)
            explanation = self._explained[1]
        explanation = explanation if kernel is None else explanation.only(kernel)
        return explanation if rule is None else explanation.of_rule(rule)

    def export(self, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Writes the latest binding as a bundle: a folder with the kernels' machine code and sources, ``manifest.json``, and
        ``loader.py``, which runs them on a machine with a driver, numpy and cuda-bindings, without tinyc. Gives the paths.

        Raises TinycError TargetUnavailable for "cpu", UnboundSymbol, and what :func:`tinyc.exported.export_program` raises.
        """
        from .exported import export_program

        built = self._ready("export")
        return export_program(self._for_gpu(built, "exported"), built.signature, folder)

    @property
    def kernels(self) -> tuple[KernelInfo, ...]:
        built = self._ready("kernels")
        from_cpu = built.executable.kernels if built.executable else ()
        code: Sequence[CpuKernel | CudaKernel] = built.cuda.kernels if built.cuda else from_cpu
        regions, mark = built.extracted.regions, "//" if built.cuda else ";"
        sharing: dict[str, list[str]] = {}
        for kernel, region in zip(code, regions, strict=True):
            sharing.setdefault(kernel.name, []).append(f"{mark} Region {region.name}\n")
        return tuple(
            KernelInfo(kernel.name, "".join(sharing[kernel.name]) + kernel.source, region, plan)
            for kernel, region, plan in zip(code, regions, built.extracted.plans, strict=True)
        )

    @property
    def plan(self) -> ExecutionPlan:
        return self._ready("plan").extracted.execution

    @property
    def executable(self) -> Executable | Launched:
        """The runtime's object: memory figures and profiling."""
        return self._code(self._ready("executable"))

    def dump(self, stage: str) -> str:
        """One of the stages in :data:`STAGES` as text: strict JSON ``{"<stage>": …}``."""
        check_stage(stage)
        if stage in OF_PROGRAM:
            if self._program is None:
                raise _no_program(f"stage {stage}")
            latest = self._latest.program if self._latest else None
            return dumps(program_stage(stage, latest or self._program))
        built = self._ready("dump")
        if stage not in stages_of(self._options.target):
            raise TinycError(
                "TargetUnavailable",
                f"{self._options.target} has no stage {stage}",
                f"the source for {self._options.target} is stage {code_stage(self._options.target)}",
                at={"layer": "compiler", "value": stage},
            )
        if stage == "gpu":
            assert built.cuda is not None
            return dumps(gpu_stage(built.extracted.regions, built.cuda.kernels))
        if stage in ("llvm", "cu"):
            return dumps(
                {
                    stage: [
                        {"region": kernel.region.name, "symbol": kernel.name, "source": kernel.source}
                        for kernel in self.kernels
                    ]
                }
            )
        return dumps(extracted_stage(stage, built.extracted, built.signature, self._options.target))

    def draw(self, what: str = "regions", form: str = "dot", limit: int = LIMIT) -> str:
        """A drawing as text for Graphviz ("dot") or Mermaid ("mermaid").

        ``what``: "program", the Tiny nodes; "regions", the kernels and buffers; "classes", the e-classes that the
        kernels' values were chosen from. ``limit``: nodes. Raises InvalidArgument for another word.
        """
        if what == "program":
            latest = self._latest.program if self._latest else None
            return draw_program(latest or self.program, form, limit)
        if what not in DRAWINGS:
            raise TinycError(
                "InvalidArgument",
                f"there is no drawing {show(what)}",
                f"the drawings are {', '.join(DRAWINGS)}",
                at={"layer": "compiler", "value": what},
            )
        built = self._ready("draw")
        if what == "classes":
            return draw_classes(built.chosen(), form, limit)
        return draw_regions(built.extracted, form, limit)

    def __repr__(self) -> str:
        inputs = ", ".join(argument.name for argument in self.signature.inputs)
        state = f"{len(self._latest.extracted.regions)} kernels" if self._latest else "not bound yet"
        return f"<tinyc.Compiled ({inputs}) on {self._options.target}: {state}>"

    def _code(self, built: Built) -> Executable | Launched:
        return self._launched(built) if built.executable is None else built.executable

    def _for_gpu(self, built: Built, what: str) -> CudaProgram:
        if built.cuda is None:
            raise TinycError(
                "TargetUnavailable",
                f"what is {what} is code for a GPU, and this program is for cpu",
                'compile it with target="sm80"',
                at={"layer": "compiler", "value": self._options.target},
            )
        return built.cuda

    def _gpu(self) -> Device:
        with self._lock:
            if self._device is None:
                try:
                    self._device = first_device()
                except TinycError as error:
                    why = f"nothing here runs code for {self._options.target}: {error.why}"
                    raise TinycError(error.kind, why, error.suggestion, error.at, **error.details) from None
            return self._device

    def _launched(self, built: Built) -> Launched:
        """The kernels of ``built`` on the GPU, loaded when they are first called."""
        from tinyc.runtime.cuda.launch import Launched
        from tinyc.runtime.cuda.manifest import loadable

        cuda, device = self._for_gpu(built, "launched"), self._gpu()
        with self._lock:
            found = next((code for known, code in self._loaded if known is built), None)
            if found is None:
                given = loadable(cuda, built.signature, __version__)
                found = Launched(cuda, given, device)
                self._loaded.append((built, found))
            return found

    def _ready(self, what: str) -> Built:
        if self._latest is None:
            names = ", ".join(self.signature.symbols)
            raise TinycError(
                "UnboundSymbol",
                f"{what} is not known before the symbols {names} are bound",
                f"pass shapes={{{', '.join(f'{name!r}: …' for name in self.signature.symbols)}}}, or call it once",
                at={"layer": "compiler"},
            )
        return self._latest

    def _bound(self, shapes: Mapping[str, int]) -> Built:
        key = tuple(sorted(shapes.items()))
        with self._lock:
            if key not in self._built:
                program = bind(self.program, dict(shapes)) if shapes else self.program
                self._built[key] = compile_remembered(program, self._options)
            self._latest = self._built[key]
            return self._latest


def _no_program(what: str) -> TinycError:
    return TinycError(
        "InvalidArgument",
        f"{what} comes before the Regions, and compilation went on from a dump of them",
        "compile the program itself, or its dump of the stage tiny",
        at={"layer": "compiler"},
    )
