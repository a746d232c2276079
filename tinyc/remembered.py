"""Programs that were optimised before: what came out is kept, and found again by all that it follows from.

What is kept is what the stages region, plan and exec show, and the report; code is generated from them anew. What a report
works out only when it is asked takes the e-graph, which is not kept: it is made again then.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tinyc.cache import key_of
from tinyc.egraph.rulefiles import load_rules, texts_of
from tinyc.extract.report.decisions import Later
from tinyc.extract.report.report import ExtractionReport
from tinyc.extract.report.to_json import from_json
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.document import program_to_document
from tinyc.ir.execution_json import execution_from_json, execution_to_json
from tinyc.ir.plan import Extracted
from tinyc.ir.region_json import region_from_json, region_to_json
from tinyc.ir.schedule_json import plan_from_json, plan_to_json
from tinyc.ir.signature import signature_of
from tinyc.ir.tiny import Program

from .pipeline import Built, Options, assemble_later, code_for, compile_program, machine
from .settings import read_settings

PACKAGES = ("egglog", "islpy", "sympy", "numpy", "highspy", "llvmlite", "ml_dtypes")
"""What the result depends on besides tinyc."""


def compile_remembered(program: Program, options: Options) -> Built:
    """As :func:`compile_program`, from the cache where it is there. Raises what that raises."""
    cache = read_settings().program_cache
    if cache is None or options.cost_model is not None or options.profile:
        return compile_program(program, options)
    started = time.perf_counter()
    key = _key(program, options)
    built = _restored(cache.get(key), program, options, started)
    if built is None:
        built = compile_program(program, options)
        if _complete(built.report):
            cache.put(key, _to_bytes(built))
    return built


def _key(program: Program, options: Options) -> str:
    """All that the optimised program follows from. Raises what reading the rule files raises."""
    rules = load_rules(options.rules)
    said = {
        "program": program_to_document(program),
        "target": options.target,
        "without": options.without,
        "also": options.also,
        "added": [Path(each).name for each in options.rules],
        "budget": repr(replace(options.budget, extract_processes=None)),  # they change nothing
        "machine": repr(machine(options.target)),
        "compiler": _compiler(options.target),
    }
    return key_of("program", _ourselves(), json.dumps(said, sort_keys=True), *texts_of(rules.files))


@lru_cache(maxsize=1)
def _ourselves() -> str:
    """A digest of tinyc's own text, and of the versions of what it stands on."""
    package = Path(__file__).parent
    folders = [
        package,
        *(package / name for name in ("extract", "codegen")),
    ]  # links, which a walk does not follow
    paths = {path.resolve() for folder in folders for path in folder.resolve().rglob("*.py")}
    contents = [path.read_bytes() for path in sorted(paths)]
    return key_of(platform.python_version(), *map(_version, PACKAGES), *contents)


def _version(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return package


def _compiler(target: str) -> str:
    """Which says what kernels spill, and so has a say in their Plans."""
    if target == "cpu":
        return ""
    from tinyc.codegen.nvrtc import nvrtc_version

    try:
        return nvrtc_version()
    except TinycError:
        return "none"


def _complete(report: ExtractionReport) -> bool:
    """Whether the same is found wherever and whenever it is looked for: no limit of time or memory had a say."""
    limited = report.search is not None and report.search.limit == "seconds"
    limited |= any(each.kind in ("BudgetExhausted", "EngineLost") for each in report.warnings)
    return report.complete and not report.fallback and not limited


def _to_bytes(built: Built) -> bytes:
    extracted = built.extracted
    pairs = zip(extracted.regions, extracted.plans, strict=True)
    kept = {
        "regions": [region_to_json(region) for region in extracted.regions],
        "plans": [plan_to_json(region.name, plan) for region, plan in pairs],
        "exec": execution_to_json(extracted.execution),
        "notes": list(extracted.notes),
        "report": json.loads(built.report.quick().to_json()),
    }
    return json.dumps(kept).encode()


def _restored(content: bytes | None, program: Program, options: Options, started: float) -> Built | None:
    """None where nothing was kept, or something that is no program."""
    if content is None:
        return None
    try:
        kept: Mapping[str, Any] = json.loads(content)
        extracted = Extracted(
            tuple(region_from_json(each, {}, "region") for each in kept["regions"]),
            tuple(plan_from_json(each, "plan") for each in kept["plans"]),
            execution_from_json(kept["exec"]),
            tuple(kept["notes"]),
        )
        kept_report = kept["report"]
    except (ValueError, KeyError, TypeError, TinycError):
        return None
    executable, cuda = code_for(extracted, options.target)
    taken = time.perf_counter() - started
    again = Later(
        lambda: compile_program(program, options, code=cuda is not None)
    )  # whose Plans its kernels settle

    def report() -> ExtractionReport:
        return replace(
            from_json(kept_report),
            seconds={"cache": taken},
            decide=lambda: again().report.decisions,
            trace=lambda: again().report.trace(),
            assemble=assemble_later(cuda),
        )

    return Built(
        program,
        signature_of(program),
        extracted,
        Later(report),
        executable,
        lambda: again().chosen(),
        cuda,
    )
