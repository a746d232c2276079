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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyc.ir.diagnostics import Diagnostic, TinycError
from tinyc.ir.tiny import Program

from .encode import encode
from .graph import Graph, read
from .rulefiles import BUILTIN, RuleBase, forms_of, one_rule_per_ruleset, without_includes


@dataclass(frozen=True)
class Budget:
    """Limits of one optimisation. Running out is no failure: the best program so far is used.

    ``seconds``: wall time. ``enodes``: rows of constructors. ``iterations``: rounds per phase (a round is one step
    while the e-graph grows fast, up to 64 while it does not). ``memory_bytes``: of the engine's process.
    """

    seconds: float = 30.0
    enodes: int = 200_000
    iterations: int = 50
    memory_bytes: int = 2 << 30

    def __post_init__(self) -> None:
        for name in ("seconds", "enodes", "iterations", "memory_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise TinycError(
                    "InvalidArgument",
                    f"Budget.{name} is {value!r}",
                    "give a number that is not negative",
                    at={"layer": "egraph", "value": f"Budget.{name}"},
                )


@dataclass(frozen=True)
class PhaseReport:
    """What a phase did. ``sizes``: rows per constructor and fact after it; times in seconds.

    ``rule_enodes``: e-nodes that each rule added (less what its unions merged); None where rules were not profiled.
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


@dataclass(frozen=True)
class Saturation:
    """``graph`` is None where the engine gave nothing back; ``complete``: every phase ran to its end."""

    graph: Graph | None
    phases: tuple[PhaseReport, ...]
    warnings: tuple[Diagnostic, ...]
    complete: bool
    engine: str


def saturate(
    program: Program,
    base: RuleBase,
    without: Sequence[str] = (),
    also: Sequence[str] = (),
    budget: Budget | None = None,
    profile: bool = False,
    apart: Collection[str] = (),
) -> Saturation:
    """Inserts ``program`` (integer shapes) and runs the phases.

    ``profile``: run every rule by itself and count what it adds; the same fixpoint, many times as slow.
    ``apart``: ids of REDUCE nodes that no other reduction may hold in its kernel.

    Raises TinycError RuleFileInvalid where the engine refuses a rule file, UnsoundUnion where two facts contradict
    each other, UnknownRuleset for a name in ``without`` or ``also`` that does not exist.
    """
    budget = budget or Budget()
    active = base.active(without, also)
    encoded = encode(program, apart=apart)
    files: list[tuple[str, str | None]] = [(str(path), without_includes(path)) for path in base.files]
    alone: dict[str, list[tuple[str, str]]] = {}
    if profile:
        for number, path in enumerate(base.files):
            text, homes = one_rule_per_ruleset(path)
            files[number] = (str(path), text)
            for ruleset, (home, rule) in homes.items():
                alone.setdefault(home, []).append((ruleset, rule))
    request = {
        "files": files,
        "stamp": _stamp(base.files),
        "phases": [[phase, list(members)] for phase, members in active.items()],
        "alone": alone,
        "terms": encoded.terms,
        "facts": encoded.facts,
        "sets": encoded.sets,
        "budget": {
            "enodes": budget.enodes,
            "rounds": budget.iterations,
            "memory_bytes": int(budget.memory_bytes),
        },
    }
    messages, lost = _shared_worker().ask(request, budget.seconds)
    failed = next((message for message in messages if message.get("error")), None)
    if failed is not None and not profile and _users(base):
        # a rule of the user's may be at fault: run rule by rule to name it
        return saturate(program, base, without, also, budget, profile=True, apart=apart)
    return _collect(messages, lost, base, budget)


def _stamp(files: Sequence[Path]) -> str:
    """Changes with the contents of the files: an engine that was loaded before must not outlive an edit."""
    digest = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path} {len(content)} ".encode() + content)
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
            elif report.stopped:
                warnings.append(_exhausted(report, message["grew_most"], budget))
    graph = read(latest) if latest is not None else None
    if lost:
        after = f"after phase {phases[-1].name}" if phases else "in its first phase"
        what = "the last whole e-graph it sent is used" if graph else "the naive program is used"
        most = (
            max(phases[-1].rule_matches.items(), key=lambda item: item[1], default=("", 0))[0]
            if phases
            else ""
        )
        blame = f"; in the last phase that finished, rule {most} matched most" if most else ""
        warnings.append(
            Diagnostic(
                "EngineLost",
                f"the rewrite engine was lost {after}: {lost}; {what}{blame}",
                "raise the budget, or leave out the ruleset that grows (without=…)",
                {"layer": "egraph"},
            )
        )
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
        message.get("rule_enodes"),
    )


def _exhausted(report: PhaseReport, rule: str, budget: Budget) -> Diagnostic:
    spent = {"enodes": f"{budget.enodes} e-nodes", "iterations": f"{budget.iterations} rounds"}
    return Diagnostic(
        "BudgetExhausted",
        f"phase {report.name} stopped at {report.enodes} e-nodes after {report.steps} steps: its budget of "
        f"{spent.get(report.stopped or '', report.stopped)} is spent; rule {rule} matched most in the last step",
        "raise the budget, or leave out the ruleset of that rule (without=…)",
        {"layer": "egraph", "rule": rule},
    )


def _rule_error(file: str, message: str) -> TinycError:
    path = Path(file)
    found = re.search(r"In (\d+):\d+(?:-\d+)*(?:-\d+:\d+)? of", message)
    line = int(found[1]) if found else None
    rule = None
    for form in forms_of(path):
        if line is not None and form.line <= line <= form.line + form.text.count("\n"):
            named = re.search(r':name\s+"([^"]+)"', form.text)
            rule = named[1] if named else None
    return TinycError(
        "RuleFileInvalid",
        f"{path.name}{f':{line}' if line else ''}: {message}",
        "correct the rule file; rules/schema.egg lists the constructors and their arguments",
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

    def ask(self, request: Mapping[str, Any], seconds: float) -> tuple[list[dict[str, Any]], str | None]:
        """All answers until "done", and why there was no "done", if so."""
        deadline = time.monotonic() + seconds
        with self._lock:
            messages: list[dict[str, Any]] = []
            try:
                process = self._start()
                assert process.stdin is not None
                try:
                    process.stdin.write(json.dumps(request, separators=(",", ":")) + "\n")
                    process.stdin.flush()
                except OSError:
                    self.stop()
                    return messages, "its process ended"
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


def _shared_worker() -> _Worker:
    """One worker per process, started at the first use and stopped at exit. A forked child gets its own: two readers
    of one pipe would take each other's answers."""
    return _worker_of(os.getpid())


@functools.cache
def _worker_of(process: int) -> _Worker:
    worker = _Worker()

    def stop() -> None:
        if os.getpid() == process:  # a forked child that exits must not end its parent's worker
            worker.stop()

    atexit.register(stop)
    return worker
