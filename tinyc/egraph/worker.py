"""The engine's process: ``python -m tinyc.egraph.worker``, one JSON request per line in, JSON lines out.

It may die at any moment (memory, a crash of the engine, the parent's kill); the parent uses what it sent before.
Request: ``{files: [[path, text | null]], stamp, phases: [[name, [rulesets]]], alone: {ruleset: [[own ruleset, rule]]}, terms, facts, sets, budget: {enodes, rounds, memory_bytes}}``.
Answers: ``{"kind": "phase", …}`` after each phase, ``{"kind": "graph", "graph": …, "after": phase}`` for a whole
program, after phase ``movement`` and at the end, ``{"kind": "error", …}``, and ``{"kind": "done"}``.
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

HELPERS = "prop"
"""The phase whose rulesets are saturated before every step of every phase."""

COMPLETE_AFTER = "movement"
"""From the end of this phase on, the e-graph holds a whole program. It is sent then, in case a later phase kills the
engine, and at the end; sending costs about as much time as a phase, so not in between."""

OVERSHOOT = 1.5
"""An e-graph that one step took further than this above its budget is not sent."""

BATCH = 64
"""Steps per call of the engine while the e-graph grows slowly."""


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nothing that the engine prints may reach the pipe
    threading.Thread(target=_die_with_parent, args=(os.getppid(),), daemon=True).start()
    spare: tuple[Any, Engine] | None = None
    for line in sys.stdin:
        request = json.loads(line)
        wanted = (request["files"], request["stamp"])
        engine = spare[1] if spare and spare[0] == wanted else None
        spare = None
        try:
            _limit_memory(request["budget"]["memory_bytes"])
            engine = engine or _load(request["files"], answers)
            if engine is not None:
                _saturate(engine, request, answers)
        except MemoryError:
            _send(answers, {"kind": "error", "what": "memory", "message": "the engine ran out of memory"})
        _send(answers, {"kind": "done"})
        engine = None
        try:
            warm = _load(request["files"], None)
        except MemoryError:
            warm = None
        spare = (wanted, warm) if warm else None


def _load(files: list[tuple[str, str | None]], answers: TextIO | None) -> Engine | None:
    """An engine with the rule files; a file that includes others comes with its own text, includes blanked."""
    engine = Engine()
    for file, text in files:
        try:
            if text is None:
                engine.include(Path(file))
            else:
                # a file in memory: this process may be killed at any moment, and must leave none on the disk
                with os.fdopen(os.memfd_create("rules"), "wb", buffering=0) as copy:
                    copy.write(text.encode())
                    engine.include(Path(f"/proc/self/fd/{copy.fileno()}"))
        except EngineError as error:
            if answers:
                _send(answers, {"kind": "error", "what": "rules", "file": file, "message": str(error)})
            return None
    return engine


def _saturate(engine: Engine, request: dict[str, Any], answers: TextIO) -> None:
    started = time.perf_counter()
    terms = [(name, tuple(map(_argument, args))) for name, args in request["terms"]]
    facts = [(name, tuple(map(_argument, args))) for name, args in request["facts"]]
    sets = [((name, tuple(map(_argument, args))), _argument(value)) for name, args, value in request["sets"]]
    try:
        engine.insert(terms, facts, sets)
    except EngineError as error:
        _send(answers, {"kind": "error", "what": "insert", "message": str(error)})
        return
    inserted = time.perf_counter() - started
    _send(answers, {"kind": "phase", "phase": "insert", "seconds": inserted, "engine": VERSION})
    budget = request["budget"]
    helpers = [name for phase, names in request["phases"] if phase == HELPERS for name in names]
    steps: list[str] = []
    changed = sent = False  # since the last graph that was sent, and whether one was
    for phase, rulesets in request["phases"]:
        if phase == HELPERS:
            continue
        steps += rulesets
        if not rulesets:
            continue
        if request["alone"]:
            report = _profile_phase(engine, phase, helpers, steps, budget, request["alone"])
        else:
            report = _run_phase(engine, phase, helpers, steps, budget)
        _send(answers, report)
        if report["error"]:
            return  # what is in the e-graph now is not to be trusted
        changed = changed or report["rounds"] > 1 or bool(report["stopped"])
        if phase == COMPLETE_AFTER and not report["stopped"]:
            _send_graph(engine, answers, phase)
            changed, sent = False, True
        if report["stopped"]:
            if sent and report["enodes"] > OVERSHOOT * budget["enodes"]:
                return  # what was sent before is used: this one is too large to be worth its time
            break
    if changed or not sent:
        _send_graph(engine, answers, "end")


def _run_phase(
    engine: Engine, phase: str, helpers: list[str], steps: list[str], budget: dict[str, Any]
) -> dict[str, Any]:
    """Rounds until nothing changes or the budget of e-nodes or rounds is spent. Times in true seconds."""
    runs = " ".join(f"(run {name})" for name in helpers)
    step = f"(seq (saturate (seq {runs})) {' '.join(f'(run {name})' for name in steps)})"
    started = time.perf_counter()
    seconds: dict[str, float] = {}
    matches: dict[str, int] = {}
    sizes = engine.sizes()
    before = enodes = _enodes(sizes)
    stopped, error, rounds, done, batch, grew = None, None, 0, 0, 1, ""
    while True:
        if rounds >= budget["rounds"]:
            stopped = "iterations"
            break
        try:
            result = engine.run(f"(repeat {batch} {step})")
        except EngineError as failure:
            stopped, error = "engine", str(failure)
            break
        rounds, done = rounds + 1, done + batch
        for rule, spent in result.seconds.items():
            seconds[rule] = seconds.get(rule, 0.0) + spent
        for rule, count in result.matches.items():
            matches[rule] = matches.get(rule, 0) + count
        grew = max(result.matches, key=lambda rule: (result.matches[rule], rule), default="")
        if not result.changed:
            break
        sizes = engine.sizes()
        growth, enodes = _enodes(sizes) / max(enodes, 1), _enodes(sizes)
        if enodes > budget["enodes"]:
            stopped = "enodes"
            break
        batch = min(batch * 2, BATCH) if growth < 1.25 else 1
    return {
        "kind": "phase",
        "phase": phase,
        "seconds": time.perf_counter() - started,
        "rounds": rounds,
        "steps": done,
        "enodes_before": before,
        "enodes": _enodes(sizes),
        "sizes": sizes,
        "rule_seconds": seconds,
        "rule_matches": matches,
        "stopped": stopped,
        "error": error,
        "grew_most": grew if stopped else "",
    }


def _profile_phase(
    engine: Engine,
    phase: str,
    helpers: list[str],
    steps: list[str],
    budget: dict[str, Any],
    alone: dict[str, list[tuple[str, str]]],
) -> dict[str, Any]:
    """As :func:`_run_phase`, one rule at a time, counting the e-nodes that each adds."""
    started = time.perf_counter()
    seconds: dict[str, float] = {}
    matches: dict[str, int] = {}
    added: dict[str, int] = {}
    recent: dict[str, None] = {}  # the rules that changed the e-graph, in order
    before = enodes = _enodes(engine.sizes())
    stopped, error, rounds, current = None, None, 0, ""

    def sweep(rulesets: list[str]) -> bool:
        nonlocal enodes, current
        changed = False
        for ruleset in rulesets:
            for name, rule in alone.get(ruleset, []):
                current = rule
                result = engine.run(f"(run {name})")
                changed |= result.changed
                seconds[rule] = seconds.get(rule, 0.0) + sum(result.seconds.values())
                matches[rule] = matches.get(rule, 0) + sum(result.matches.values())
                if result.changed:
                    recent.pop(rule, None)
                    recent[rule] = None  # now the last one
                    now = _enodes(engine.sizes())
                    added[rule] = added.get(rule, 0) + now - enodes
                    enodes = now
        return changed

    try:
        while rounds < budget["rounds"] * BATCH:
            rounds += 1
            while sweep(helpers):
                pass
            if not sweep(steps):
                break
            if enodes > budget["enodes"]:
                stopped = "enodes"
                break
        else:
            stopped = "iterations"
    except EngineError as failure:
        stopped, error = "engine", str(failure)
    return {
        "kind": "phase",
        "phase": phase,
        "seconds": time.perf_counter() - started,
        "rounds": rounds,
        "steps": rounds,
        "enodes_before": before,
        "enodes": enodes,
        "sizes": engine.sizes() if error is None else {},
        "rule_seconds": seconds,
        "rule_matches": matches,
        "rule_enodes": added,
        "stopped": stopped,
        "error": error,
        "failed_rule": current if error else "",
        "recent_rules": list(reversed(recent)) if error else [],
        "grew_most": max(added, key=lambda rule: added[rule], default=""),
    }


def _enodes(sizes: dict[str, int]) -> int:
    """Rows of constructors; facts are spelled in lower case."""
    return sum(count for name, count in sizes.items() if name[:1].isupper())


def _send_graph(engine: Engine, answers: TextIO, after: str) -> None:
    started = time.perf_counter()
    graph = compact(engine.tables(TABLES))
    _send(
        answers, {"kind": "graph", "after": after, "graph": graph, "seconds": time.perf_counter() - started}
    )


def _send(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message, separators=(",", ":")) + "\n")
    answers.flush()


def _argument(value: Any) -> Any:
    return Ref(value[1]) if isinstance(value, list) else value


def _limit_memory(limit: int) -> None:
    """Address space, above what the process and its libraries map already."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = mapped + limit
    resource.setrlimit(
        resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
    )


def _die_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main()
