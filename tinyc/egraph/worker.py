"""The engine's process: ``python -m tinyc.egraph.worker``, one JSON request per line in, JSON lines out.

It may die at any moment (memory, a crash of the engine, the parent's kill); the parent uses what it sent before.
Request: ``{files: [[path, text]], stamp, phases: [[name, [rulesets]]], rulesets: {ruleset: [[own ruleset, rule]]},
builds: {rule: {constructor: count}}, kept: [rules], users: [rules], alone: bool, terms, facts, sets, budget: {…}, whole: [tables]}``.
Answers: ``{"kind": "round", …}`` after each round and ``{"kind": "phase", …}`` after each phase, ``{"kind": "graph", "graph": …, "after": phase}`` for a whole
program (with the rows of the tables in ``whole``), after phase ``movement`` and at the end, ``{"kind": "error", …}``, and ``{"kind": "done"}``.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any, TextIO

from .engine import VERSION, Engine, EngineError, Ref
from .graph import TABLES, compact
from .phases import Saturator
from .tally import Limits, Rulesets, mapped_bytes

HELPERS = "prop"
"""The phase whose rulesets are saturated before every step of every phase."""

COMPLETE_AFTER = "movement"
"""From the end of this phase on, the e-graph holds a whole program. It is sent then, in case a later phase kills the
engine, and at the end; sending costs about as much time as a phase, so not in between."""

OVERSHOOT = 1.5
"""An e-graph that one step took further than this above its budget is not sent."""

ENDING = ("enodes", "seconds", "memory")
"""Limits of the whole saturation; after one of a phase the next phase follows."""


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nothing that the engine prints may reach the pipe
    threading.Thread(target=_die_with_parent, args=(os.getppid(),), daemon=True).start()
    spare: tuple[Any, Engine] | None = None
    own = mapped_bytes()
    for line in sys.stdin:
        request = json.loads(line)
        wanted = (request["files"], request["stamp"])
        engine = spare[1] if spare and spare[0] == wanted else None
        spare = None
        try:
            _limit_memory(own + request["budget"]["memory_bytes"])
            engine = engine or _load(request["files"], answers)
            if engine is not None and not _saturated(engine, request, answers):
                engine = None
        except MemoryError:
            engine = None
            _send(answers, {"kind": "error", "what": "memory", "message": "the engine ran out of memory"})
        _send(answers, {"kind": "done"})
        spare = _warm(wanted, engine)


def _warm(wanted: Any, engine: Engine | None) -> tuple[Any, Engine] | None:
    """An engine for the next request with the same rules: as it was before this one, which takes a tenth of the time to
    load them; a new one where this one failed."""
    try:
        if engine is None:
            engine = _load(wanted[0], None)
        else:
            engine.command("(pop)")
        return (wanted, engine) if engine else None
    except (MemoryError, EngineError):
        return None


def _saturated(engine: Engine, request: dict[str, Any], answers: TextIO) -> bool:
    """Answers a request, from a copy that :func:`_warm` gives up; whether nothing failed."""
    engine.command("(push)")
    saturator = _saturate(engine, request, answers)
    if saturator is None:
        return False
    saturator.release()
    return True


def _load(files: list[tuple[str, str]], answers: TextIO | None) -> Engine | None:
    """An engine with the rule files, of whose texts the includes are blanked."""
    engine = Engine()
    for file, text in files:
        try:
            # a file in memory: this process may be killed at any moment, and must leave none on the disk
            with os.fdopen(os.memfd_create("rules"), "wb", buffering=0) as copy:
                copy.write(text.encode())
                engine.include(Path(f"/proc/self/fd/{copy.fileno()}"))
        except EngineError as error:
            if answers:
                _send(answers, {"kind": "error", "what": "rules", "file": file, "message": str(error)})
            return None
    return engine


def _saturate(engine: Engine, request: dict[str, Any], answers: TextIO) -> Saturator | None:
    """None where the engine failed: it is not to be used again."""
    started = time.perf_counter()
    terms = [(name, tuple(map(_argument, args))) for name, args in request["terms"]]
    facts = [(name, tuple(map(_argument, args))) for name, args in request["facts"]]
    sets = [((name, tuple(map(_argument, args))), _argument(value)) for name, args, value in request["sets"]]
    try:
        engine.insert(terms, facts, sets)
    except EngineError as error:
        _send(answers, {"kind": "error", "what": "insert", "message": str(error)})
        return None
    inserted = time.perf_counter() - started
    _send(answers, {"kind": "phase", "phase": "insert", "seconds": inserted, "engine": VERSION})
    limits = _limits(request["budget"])
    saturator = Saturator(engine, _rulesets(request), limits, lambda message: _send(answers, message))
    steps: list[str] = []
    changed = sent = False  # since the last graph that was sent, and whether one was
    for phase, rulesets in request["phases"]:
        if phase == HELPERS:
            continue
        steps += rulesets
        if not rulesets:
            continue
        report = saturator.run(phase, steps, sent)
        _send(answers, report)
        if report["error"]:
            return None  # what is in the e-graph now is not to be trusted
        changed = changed or report["rounds"] > 1 or bool(report["stopped"])
        if phase == COMPLETE_AFTER and not report["stopped"]:
            _send_graph(engine, answers, phase, request.get("whole", []))
            changed, sent = False, True
        if report["stopped"] in ENDING:
            if sent and report["enodes"] > OVERSHOOT * limits.enodes:
                return saturator  # what was sent before is used: this one is too large to be worth its time
            break
    if changed or not sent:
        _send_graph(engine, answers, "end", request.get("whole", []))
    return saturator


def _rulesets(request: dict[str, Any]) -> Rulesets:
    members = request["rulesets"]
    helpers = [name for phase, names in request["phases"] if phase == HELPERS for name in names]
    kept, users = frozenset(request["kept"]), tuple(request["users"])
    return Rulesets(members, request["builds"], helpers, kept, users, request["alone"])


def _limits(budget: dict[str, Any]) -> Limits:
    return Limits(**{"rounds" if name == "iterations" else name: value for name, value in budget.items()})


def _send_graph(engine: Engine, answers: TextIO, after: str, whole: list[str]) -> None:
    """``whole``: tables that are sent row by row as well, for explanations."""
    started = time.perf_counter()
    tables = engine.tables(TABLES, whole)
    message = {"kind": "graph", "after": after, "graph": compact(tables)}
    if whole:
        message |= {"rows": tables.whole, "containers": tables.containers}
    _send(answers, message | {"seconds": time.perf_counter() - started})


def _send(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message, separators=(",", ":")) + "\n")
    answers.flush()


def _argument(value: Any) -> Any:
    return Ref(value[1]) if isinstance(value, list) else value


def _limit_memory(wanted: int) -> None:
    """Address space: what the process and its libraries map before any engine, and the budget."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(
        resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
    )


def _die_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main()
