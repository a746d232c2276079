"""Saturation as a service: a program and a rule base in, the e-graph and what each phase did out.

The engine cannot be interrupted, has no limits of its own and dies on deep terms or when memory ends. So it runs in
a worker process that is kept warm, limited in memory, and killed at the deadline. What it sent before it died is
used; without that the caller falls back on the naive program.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tinyc.ir.diagnostics import Diagnostic, TinycError
from tinyc.ir.resources import Limits
from tinyc.ir.tiny import Program

from .budget import Banned, Budget, engine_lost, phase_stopped, rules_put_aside
from .encode import encode
from .graph import Graph, read
from .provenance import Provenance, instrument, read_rows
from .rulefiles import BUILTIN, RuleBase, builds_of, forms_of, one_rule_per_ruleset, texts_of

BASE_PHASES = ("prop", "movement")
"""The phases whose built-in rules are the base lowering."""

__all__ = ["Banned", "Budget", "PhaseReport", "Saturation", "saturate"]


@dataclass(frozen=True)
class PhaseReport:
    """What a phase did. ``sizes``: rows per constructor and fact after it; times in seconds.

    ``rule_enodes``: e-nodes that each rule added (less what its unions merged); None where rules were not profiled.
    ``rule_growth``: the same, where rules ran together shared out among those that build what grew, by their matches.
    ``banned``: the rules that were put aside in this phase.
    """

    name: str
    seconds: float
    rounds: int
    steps: int
    enodes_before: int
    enodes: int
    sizes: Mapping[str, int]
    rule_seconds: Mapping[str, float]
    rule_matches: Mapping[str, int]
    stopped: str | None
    rule_enodes: Mapping[str, int] | None
    rule_growth: Mapping[str, int] = field(default_factory=dict)
    banned: tuple[Banned, ...] = ()


@dataclass(frozen=True)
class Saturation:
    """``graph`` is None where the engine gave nothing back; ``complete``: every phase ran to its end. ``provenance``: None
    unless matches were recorded."""

    graph: Graph | None
    phases: tuple[PhaseReport, ...]
    warnings: tuple[Diagnostic, ...]
    complete: bool
    engine: str
    provenance: Provenance | None = None


def saturate(
    program: Program,
    base: RuleBase,
    without: Sequence[str] = (),
    also: Sequence[str] = (),
    budget: Budget | None = None,
    profile: bool = False,
    apart: Collection[str] = (),
    machine: Limits | None = None,
    record: bool = False,
    blame: bool = True,
) -> Saturation:
    """Inserts ``program`` (integer shapes) and runs the phases.

    ``without``: names of rulesets, and of single rules.
    ``profile``: run every rule by itself and count what it adds; the same fixpoint, many times as slow.
    ``apart``: ids of REDUCE nodes that no other reduction may hold in its kernel.
    ``machine``: what the rules make plan candidates for; None: they make none.
    ``blame``: where a rule of a user's stops the engine, find out which (which takes as long as a profile), and raise; a
    warning otherwise.
    ``record``: every rule records its matches, for explanations; the e-graph is the same.

    Raises TinycError RuleFileInvalid where the engine refuses a rule file, UnsoundUnion where two facts contradict
    each other, UnknownRuleset for a name in ``without`` or ``also`` that does not exist.
    """
    budget = budget or Budget()
    active = base.active(without, also)
    encoded = encode(program, apart=apart, machine=machine)
    mine = {str(path) for path in _users(base)}
    texts = texts_of(base.files)
    recorder = instrument(texts) if record else None
    texts = recorder.texts if recorder else texts
    files: list[tuple[str, str]] = []
    rulesets: dict[str, list[tuple[str, str]]] = {}
    for path, text in zip(base.files, texts, strict=True):
        alone, homes = one_rule_per_ruleset(text)
        files.append((str(path), alone))
        for own, (home, rule) in homes.items():
            if rule not in without:
                rulesets.setdefault(home, []).append((own, rule))
    request = {
        "files": files,
        "stamp": _stamp(files),
        "phases": [[phase, list(members)] for phase, members in active.items()],
        "rulesets": rulesets,
        "builds": {rule: built for text in texts for rule, built in builds_of(text).items()},
        "kept": [rule.name for rule in base.rules if rule.phase in BASE_PHASES and rule.file not in mine],
        "users": [rule.name for rule in base.rules if rule.file in mine],
        "alone": profile,
        "terms": encoded.terms,
        "facts": encoded.facts,
        "sets": encoded.sets,
        "budget": budget.to_request(),
        "whole": recorder.tables if recorder else [],
    }
    messages, lost = _shared_worker(record).ask(request, budget.seconds)
    failed = next((message for message in messages if message.get("error")), None)
    if failed is not None and not blame:
        return _collect([each for each in messages if each is not failed], failed["error"], base, budget)
    if failed is not None and not profile and _users(base):
        # a rule of the user's may be at fault: run rule by rule to name it
        return saturate(program, base, without, also, budget, profile=True, apart=apart, machine=machine)
    saturation = _collect(messages, lost, base, budget)
    if recorder and saturation.graph:
        sent = next(message for message in reversed(messages) if message["kind"] == "graph")
        provenance = Provenance(recorder.language, recorder.records, read_rows(sent), encoded)
        saturation = replace(saturation, provenance=provenance)
    return saturation


def _stamp(files: Sequence[tuple[str, str]]) -> str:
    """Changes with the contents of the files: an engine that was loaded before must not outlive an edit."""
    digest = hashlib.sha256()
    for path, text in files:
        digest.update(f"{path} {len(text)} {text}".encode())
    return digest.hexdigest()


def _collect(messages: list[dict[str, Any]], lost: str | None, base: RuleBase, budget: Budget) -> Saturation:
    latest: Mapping[str, Any] | None = None
    phases: list[PhaseReport] = []
    warnings: list[Diagnostic] = []
    engine = "unknown"
    for message in messages:
        if message["kind"] == "graph":
            latest = message["graph"]
        elif message["kind"] == "error":
            if message["what"] == "rules":
                raise _rule_error(message["file"], message["message"])
            lost = lost or message["message"]
        elif message["kind"] == "phase" and message["phase"] == "insert":
            engine = message["engine"]
        elif message["kind"] == "phase":
            report = _phase(message)
            phases.append(report)
            if message["error"] and _users(base):
                raise _run_error(message, base)
            if message["error"]:
                latest, lost = None, lost or f"in phase {report.name} it stopped: {message['error']}"
            else:
                warnings += _spent(report, message["grew_most"], budget)
    graph = read(latest) if latest is not None else None
    if lost:
        used = "the last whole e-graph it sent is used" if graph else "the naive program is used"
        rounds = [message for message in messages if message["kind"] == "round"]
        warnings.append(engine_lost(lost, phases[-1].name if phases else "", used, rounds))
    return Saturation(graph, tuple(phases), tuple(warnings), not warnings, engine)


def _phase(message: Mapping[str, Any]) -> PhaseReport:
    return PhaseReport(
        message["phase"],
        message["seconds"],
        message["rounds"],
        message["steps"],
        message["enodes_before"],
        message["enodes"],
        message["sizes"],
        message["rule_seconds"],
        message["rule_matches"],
        message["stopped"],
        message["rule_enodes"],
        message["rule_growth"],
        tuple(Banned(**each) for each in message["banned"]),
    )


def _spent(report: PhaseReport, grew_most: str, budget: Budget) -> list[Diagnostic]:
    found = [rules_put_aside(report.name, report.banned, budget)] if report.banned else []
    if report.stopped:
        stopped = (report.name, report.enodes, report.steps, report.stopped)
        found.append(phase_stopped(*stopped, grew_most, budget))
    return found


def _rule_error(file: str, message: str) -> TinycError:
    path = Path(file)
    # a file in memory has a number; egglog 14 gives its path
    message = re.sub(r" of (?:/\S*/)?\d+:", ":", message)
    suggestion = "correct the rule file; rules/schema.egg lists the constructors and their arguments"
    places = re.findall(r"In (\d+):\d+(?:-\d+)*(?:-\d+:\d+)?: ?(.*)", message)
    line = int(places[0][0]) if places else None
    shadowed = re.search(r"Shadowing is not allowed, but found (\S+)", message)
    if shadowed and len(places) > 1:  # where the word is declared, in some file, and where it is used
        line = int(places[1][0])
        message = f"{shadowed[1]} is declared already, as {places[0][1]}, and can be no variable (Shadowing)"
        suggestion = f"give {shadowed[1]} another name; `tinyc rules lint` says where it is declared"
    rule = None
    for form in forms_of(path):
        if line is not None and form.line <= line <= form.line + form.text.count("\n"):
            named = re.search(r':name\s+"([^"]+)"', form.text)
            rule = named[1] if named else None
    return TinycError(
        "RuleFileInvalid",
        f"{path.name}{f':{line}' if line else ''}: {message}",
        suggestion,
        at={"layer": "rules", "file": file, "line": line, "rule": rule},
    )


def _users(base: RuleBase) -> tuple[Path, ...]:
    """The rule files that are not tinyc's own."""
    return tuple(path for path in base.files if path.parent != BUILTIN.resolve().parent)


def _run_error(message: Mapping[str, Any], base: RuleBase) -> TinycError:
    mine = {str(path) for path in _users(base)}
    rules = {rule.name: rule for rule in base.rules}
    names = [message.get("failed_rule", ""), *message.get("recent_rules", ())]
    # a rule of tinyc's own stops on what a user's rule did before it: blame the last one that changed anything
    name = next((name for name in names if name in rules and rules[name].file in mine), names[0])
    rule = rules.get(name)
    suspects = ", ".join(path.name for path in _users(base))
    where = f"rule {name} ({Path(rule.file).name}:{rule.line})" if rule else f"a rule of {suspects}"
    return TinycError(
        "UnsoundUnion",
        f"in phase {message['phase']} the engine stopped at {where}: {message['error']}",
        f"a rule makes two values equal that are not, or computes what has no value; look at {suspects} first",
        at={
            "layer": "egraph",
            "value": message["phase"],
            "rule": name or None,
            "file": rule.file if rule else None,
            "line": rule.line if rule else None,
        },
    )


class _Worker:
    """The worker process. One request at a time; a lost process is replaced at the next request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._memory = 0  # that the process may have had

    def ask(self, request: Mapping[str, Any], seconds: float) -> tuple[list[dict[str, Any]], str | None]:
        """All answers until "done", and why there was no "done", if so."""
        deadline = time.monotonic() + seconds
        with self._lock:
            messages: list[dict[str, Any]] = []
            try:
                memory = request["budget"]["memory_bytes"]
                if memory < self._memory:
                    self.stop()  # it may hold more than that: a warm engine would hide a budget that is too small
                self._memory = memory
                process = self._start()
                # in a thread: a process that hangs does not read, and the pipe holds less than a request
                text = json.dumps(request, separators=(",", ":")) + "\n"
                threading.Thread(target=_write, args=(process, text), daemon=True).start()
                while True:
                    try:
                        line = self._lines.get(timeout=max(deadline - time.monotonic(), 0.0))
                    except queue.Empty:
                        self.stop()
                        return messages, f"the budget of {seconds:g} s was spent"
                    if line is None:
                        self.stop()
                        return messages, "its process ended (out of memory, or a crash of the engine)"
                    message = json.loads(line)
                    if message["kind"] == "done":
                        return messages, None
                    messages.append(message)
            except BaseException:
                self.stop()  # Ctrl-C leaves no process behind
                raise

    def _start(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.stop()
        package_root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join([package_root, *filter(None, [os.environ.get("PYTHONPATH")])])
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tinyc.egraph.worker"],  # -P: no module of the current folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        lines: queue.Queue[str | None] = queue.Queue()

        def pump() -> None:
            assert process.stdout is not None
            with contextlib.suppress(ValueError, OSError):
                for line in process.stdout:
                    lines.put(line)
            lines.put(None)

        threading.Thread(target=pump, daemon=True).start()
        self._process, self._lines = process, lines
        return process

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def _write(process: subprocess.Popen[str], text: str) -> None:
    """Ends with an error where the process has ended, which its reader will find out."""
    assert process.stdin is not None
    with contextlib.suppress(OSError, ValueError):
        process.stdin.write(text)
        process.stdin.flush()


def _shared_worker(record: bool = False) -> _Worker:
    """One worker per process, started at the first use and stopped at exit. A forked child gets its own: two readers
    of one pipe would take each other's answers. So do runs that are recorded: one that has loaded rules with records, and
    has had their memory, is not warm for a compilation."""
    return _worker_of(os.getpid(), record)


@functools.cache
def _worker_of(process: int, record: bool) -> _Worker:
    worker = _Worker()

    def stop() -> None:
        if os.getpid() == process:  # a forked child that exits must not end its parent's worker
            worker.stop()

    atexit.register(stop)
    return worker
