"""The engine is a guest: whatever happens to its process, the program that comes out is right and says what was lost."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tinyc
from tinyc.egraph import saturate as saturation
from tinyc.egraph.encode import encode
from tinyc.egraph.rulefiles import load_rules
from tinyc.ir.evaluate import evaluate

KINDS = {"EngineLost", "BudgetExhausted"}


def mlp() -> tinyc.Program:
    s = tinyc.spec
    return tinyc.trace(
        lambda x, w, v: (x @ w).relu() @ v + x, s("fp32", (9, 16)), s("fp32", (16, 31)), s("fp32", (31, 16))
    )


def check_right(compiled: tinyc.Compiled) -> None:
    """On small integers, exactly."""
    generator = np.random.default_rng(0)
    types = compiled.program.types
    inputs = {
        port.name: generator.integers(-2, 3, tuple(map(int, types[port.node].shape))).astype(np.float32)
        for port in compiled.program.inputs
    }
    result = compiled(**inputs)
    outputs = result if isinstance(result, tuple) else (result,)
    for got, want in zip(outputs, evaluate(compiled.program, inputs), strict=True):
        np.testing.assert_array_equal(got, want)


def kinds(compiled: tinyc.Compiled) -> set[str]:
    return {warning.kind for warning in compiled.report.warnings}


def worker_pid() -> int | None:
    process = saturation._shared_worker()._process
    return process.pid if process is not None and process.poll() is None else None


@pytest.fixture(autouse=True)
def fresh_worker() -> Iterator[None]:
    """What one test does to the worker is not the next one's matter."""
    yield
    saturation._shared_worker().stop()


# ---- killed and stopped -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_killing_the_worker_at_any_moment(seed: int) -> None:
    """SIGKILL at random times while programs are compiled in a thread; each is right, and warns or was not hit."""
    rng = random.Random(seed)
    if seed % 3 == 0:
        saturation._shared_worker().stop()  # a cold start is hit as well
    compiled: list[tinyc.Compiled] = []
    thread = threading.Thread(
        target=lambda: compiled.extend(tinyc.optimize_and_compile(mlp()) for _ in range(3))
    )
    thread.start()
    killed = 0
    while thread.is_alive():
        time.sleep(rng.uniform(0, 0.3))
        pid = worker_pid()
        if pid is not None and killed < 2:
            os.kill(pid, signal.SIGKILL)
            killed += 1
    thread.join()
    assert len(compiled) == 3
    for each in compiled:
        check_right(each)
        assert kinds(each) <= {"EngineLost"}
        assert bool(each.report.warnings) == (not each.report.complete)
    again = tinyc.optimize_and_compile(mlp())
    assert again.report.complete, "the next call has a worker again"


@pytest.mark.parametrize("moment", ["before", "during"])
def test_a_stopped_worker_is_killed_at_the_deadline(moment: str) -> None:
    tinyc.optimize_and_compile(mlp())
    pid = worker_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    if moment == "during":
        threading.Timer(0.05, lambda: os.kill(pid, signal.SIGCONT)).start()
    started = time.monotonic()
    compiled = tinyc.optimize_and_compile(mlp(), budget=tinyc.Budget(seconds=2 if moment == "before" else 30))
    check_right(compiled)
    if moment == "during":
        assert compiled.report.complete, "a worker that only paused is waited for"
        return
    assert compiled.report.fallback and kinds(compiled) == {"EngineLost"}
    assert "2 s" in str(compiled.report.warnings[0])
    assert time.monotonic() - started < 30
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_worker_that_died_between_two_calls_is_replaced() -> None:
    tinyc.optimize_and_compile(mlp())
    pid = worker_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    compiled = tinyc.optimize_and_compile(mlp())
    check_right(compiled)
    assert worker_pid() != pid
    assert tinyc.optimize_and_compile(mlp()).report.complete


# ---- budgets -------------------------------------------------------------------------------------------------------------

TINY: dict[str, tinyc.Budget] = {
    "no time": tinyc.Budget(seconds=0),
    "a hundredth of a second": tinyc.Budget(seconds=0.01),
    "a tenth of a second": tinyc.Budget(seconds=0.1),
    "one e-node": tinyc.Budget(enodes=1),
    "no e-node": tinyc.Budget(enodes=0),
    "fifty e-nodes": tinyc.Budget(enodes=50),
    "one iteration": tinyc.Budget(iterations=1),
    "no iteration": tinyc.Budget(iterations=0),
    "no memory": tinyc.Budget(memory_bytes=0),
    "a kilobyte": tinyc.Budget(memory_bytes=1024),
    "a megabyte": tinyc.Budget(memory_bytes=1 << 20),
    "nothing at all": tinyc.Budget(seconds=0, enodes=0, iterations=0, memory_bytes=0),
}


@pytest.mark.parametrize("name", TINY)
def test_tiny_budgets_give_right_programs(name: str) -> None:
    compiled = tinyc.optimize_and_compile(mlp(), budget=TINY[name])
    check_right(compiled)
    assert kinds(compiled) <= KINDS
    assert bool(compiled.report.warnings) == (not compiled.report.complete)
    for warning in compiled.report.warnings:
        assert warning.why and warning.suggestion


@pytest.mark.parametrize("name", ["no time", "no e-node", "one e-node", "no iteration", "one iteration"])
def test_running_out_is_said(name: str) -> None:
    compiled = tinyc.optimize_and_compile(mlp(), budget=TINY[name])
    assert compiled.report.warnings and not compiled.report.complete


def test_a_program_after_one_with_no_memory_has_its_own_limit() -> None:
    for memory in (1024, 2 << 30, 1 << 20, 2 << 30):
        check_right(tinyc.optimize_and_compile(mlp(), budget=tinyc.Budget(memory_bytes=memory)))
    assert tinyc.optimize_and_compile(mlp()).report.complete


# ---- rules that explode, programs that are long --------------------------------------------------------------------------

EXPLODING = """
; no rule file of tinyc has these: general commutativity and associativity
(ruleset explode)
(in-phase "explode" "algebra" "REASSOC" "on")
; x + y == y + x
(rewrite (Binary "ADD" x y) (Binary "ADD" y x) :ruleset explode :name "explode/commute")
; (x + y) + z == x + (y + z)
(rewrite (Binary "ADD" (Binary "ADD" x y) z) (Binary "ADD" x (Binary "ADD" y z))
  :ruleset explode :name "explode/associate")
"""


def long_sum(terms: int) -> tinyc.Program:
    def total(*xs: object) -> object:
        result = xs[0]
        for x in xs[1:]:
            result = result + x  # type: ignore[operator]
        return result

    return tinyc.trace(total, *[tinyc.spec("fp32", (7,))] * terms)


@pytest.mark.parametrize(
    "budget",
    [
        tinyc.Budget(),
        tinyc.Budget(enodes=5_000),
        tinyc.Budget(enodes=10**9, seconds=6),
        tinyc.Budget(enodes=10**9, memory_bytes=256 << 20),
    ],
    ids=["default", "e-nodes", "time", "memory"],
)
def test_a_rule_that_explodes(budget: tinyc.Budget, tmp_path: Path) -> None:
    """General associativity over a sum of thirty: whichever limit ends it, the sum is right and the rule is named."""
    path = tmp_path / "explode.egg"
    path.write_text(EXPLODING)
    compiled = tinyc.optimize_and_compile(long_sum(30), rules=[path], budget=budget)
    check_right(compiled)
    assert kinds(compiled) & KINDS and not compiled.report.complete
    if budget.seconds == 30 and budget.memory_bytes == 2 << 30:
        (warning,) = compiled.report.warnings
        assert warning.kind == "BudgetExhausted" and "explode/" in warning.why
        assert not compiled.report.fallback, "the best program so far is used"
    # the caller's process and the next program are unharmed
    assert tinyc.optimize_and_compile(mlp()).report.complete


def chain(length: int, op: Callable[[int], dict[str, object]]) -> dict[str, object]:
    uops: list[dict[str, object]] = [
        {"id": "n0", "uop": "INPUT", "src": [], "arg": {"tensor_id": "x", "dtype": "fp32", "shape": [4]}}
    ]
    for number in range(1, length + 1):
        uops.append({"id": f"n{number}", "src": [f"n{number - 1}"], "arg": {}, **op(number)})
    return {"uops": uops}


CHAINS: dict[str, Callable[[int], dict[str, object]]] = {
    "flips": lambda n: {"uop": "FLIP", "arg": {"axes": [0]}},
    "alternating": lambda n: {"uop": "RELU" if n % 2 else "NEG"},
    "sums": lambda n: {"uop": "ADD", "src": [f"n{n - 1}", 1.0]},
}


@pytest.mark.parametrize("name", ["sums", "flips", pytest.param("alternating", marks=pytest.mark.slow)])
def test_a_chain_of_ten_thousand(name: str) -> None:
    compiled = tinyc.optimize_and_compile(chain(10_000, CHAINS[name]))
    check_right(compiled)
    assert kinds(compiled) <= KINDS
    assert tinyc.optimize_and_compile(mlp()).report.complete


# ---- names stay outside -----------------------------------------------------------------------------------------------------

EVIL = ['(input "x")', 'a"b', ') (panic "no")', "; comment", "\\", "ünï", "a b", "'", "%s{0}", "$x", "t0"]
REFUSED = ["new\nline", "nul\0", "", "x" * 300, "inf"]


def negated(node: str, tensor: str) -> dict[str, object]:
    given = {
        "id": node,
        "uop": "INPUT",
        "src": [],
        "arg": {"tensor_id": tensor, "dtype": "fp32", "shape": [4]},
    }
    return {"uops": [given, {"id": f"{node}2", "uop": "NEG", "src": [node], "arg": {}}]}


@pytest.mark.parametrize("name", EVIL)
def test_names_never_enter_the_engine(name: str) -> None:
    program = tinyc.load(negated(name, name))
    encoded = encode(program)
    texts = {text for _, args in (*encoded.terms, *encoded.facts) for text in args if isinstance(text, str)}
    assert texts <= {"NEG", "fp32"}
    compiled = tinyc.optimize_and_compile(program)
    assert compiled.report.complete
    np.testing.assert_array_equal(compiled(np.arange(4, dtype=np.float32)), [0, -1, -2, -3])


@pytest.mark.parametrize("name", REFUSED)
def test_names_that_cannot_be_shown_are_refused(name: str) -> None:
    for document in (negated(name, "x"), negated("n", name)):
        if name == "inf" and document["uops"][0]["id"] == "n":  # type: ignore[index]
            continue  # only in `src` could it be taken for a number
        with pytest.raises(tinyc.TinycError) as caught:
            tinyc.load(document)
        assert caught.value.kind in ("MalformedDocument", "InvalidArgument")


# ---- profiling ----------------------------------------------------------------------------------------------------------------


def test_profiling_finds_the_same_e_graph_and_counts_what_each_rule_adds() -> None:
    base = load_rules()
    normal, profiled = (saturation.saturate(mlp(), base, profile=profile) for profile in (False, True))
    assert normal.complete and profiled.complete
    assert [phase.name for phase in normal.phases] == [phase.name for phase in profiled.phases]
    assert normal.phases[-1].sizes == profiled.phases[-1].sizes
    for phase in profiled.phases:
        assert phase.rule_enodes is not None
        assert sum(phase.rule_enodes.values()) == phase.enodes - phase.enodes_before, phase.name
        assert all(phase.rule_matches[rule] for rule, added in phase.rule_enodes.items() if added > 0)
    for phase in normal.phases:
        assert phase.rule_enodes is None
