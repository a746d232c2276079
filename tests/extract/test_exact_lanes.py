"""Parts that several processes solve: what is found is what one process finds."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import test_other_transformers as others
from kernel_examples import chosen_from, saturated

import tinyc
from tinyc.bench.programs import transformer
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.cost.model import Roofline
from tinyc.extract.exact import answers, lanes, solved
from tinyc.extract.exact.exact import exact
from tinyc.extract.exact.lanes import begun, in_lanes
from tinyc.extract.exact.proof import Effort, Proof
from tinyc.extract.greedy import rough
from tinyc.extract.program import extract_program
from tinyc.pipeline import Options

linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no fork that can be relied on")


def met(folder: Path, number: int) -> int:
    """This process, once that many are at work: on a busy machine one may do all jobs before another has begun."""
    (folder / str(os.getpid())).touch()
    until = time.monotonic() + 60.0
    while len(list(folder.iterdir())) < number and time.monotonic() < until:
        time.sleep(0.01)
    return os.getpid()


def children() -> set[str]:
    """Of this process, by number; of other threads', none is begun here."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return set(file.read().split())


@linux
@pytest.mark.parametrize("number", [2, 3])
def test_jobs_are_shared_out(number: int, tmp_path: Path) -> None:
    before = children()
    found = in_lanes([lambda: met(tmp_path, number)] * 6, number)
    assert len(set(found)) == number
    assert os.getpid() in found
    assert children() <= before


@pytest.mark.parametrize("jobs", [0, 1, 2, 5, 300])
@pytest.mark.parametrize("number", [0, 1, 2, 4])
def test_results_come_in_the_order_of_the_jobs(jobs: int, number: int) -> None:
    def job(each: int) -> Callable[[], int]:
        return lambda: each * each

    assert in_lanes([job(each) for each in range(jobs)], number) == [each * each for each in range(jobs)]


@linux
@pytest.mark.parametrize(
    "fails",
    [
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        lambda: sys.exit("a job must not end the program"),
        lambda: signal.pause(),
        lambda: [][0],
    ],
    ids=["killed", "exit", "hangs", "raises"],
)
def test_what_fails_elsewhere_is_done_here(fails: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes a job and does not come back has it done again; nothing waits for ever, and no process is left."""
    monkeypatch.setattr(lanes, "PATIENCE", 0.5)
    here, before = os.getpid(), children()

    def job() -> int:
        time.sleep(0.05)
        if os.getpid() != here:
            fails()
        return os.getpid()

    assert in_lanes([job] * 4, 2) == [here] * 4
    assert children() <= before


@linux
def test_a_job_that_takes_longer_than_the_others_is_waited_for(tmp_path: Path) -> None:
    here = os.getpid()

    def job() -> int:
        met(tmp_path, 2)
        time.sleep(0.05 if os.getpid() == here else 2.0)
        return os.getpid()

    assert len(set(in_lanes([job] * 2, 2))) == 2


@linux
def test_what_cannot_be_sent_is_done_here(tmp_path: Path) -> None:
    found = in_lanes([lambda: (met(tmp_path, 2), lambda: 0)] * 4, 2)
    assert {process for process, _ in found} == {os.getpid()}


@linux
def test_an_exception_is_raised_here_and_ends_the_others() -> None:
    here, before = os.getpid(), children()

    def job() -> None:
        time.sleep(0.05)
        if os.getpid() == here:
            raise KeyboardInterrupt
        time.sleep(60.0)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        in_lanes([job] * 2, 2)
    assert time.monotonic() - began < 30.0  # and not as long as the other job takes
    assert children() <= before


@linux
def test_an_interrupt_of_all_is_one_of_the_first() -> None:
    """As a terminal sends it, to all processes that were begun there."""
    script = (
        "import os, signal, time; from tinyc.extract.exact.lanes import in_lanes\n"
        "here = os.getpid()\n"
        "def job():\n"
        "    time.sleep(0.3)\n"
        "    os.getpid() == here and os.killpg(0, signal.SIGINT)\n"
        "    time.sleep(0.3)\n"
        "try:\n"
        "    in_lanes([job] * 4, 3)\n"
        "except KeyboardInterrupt:\n"
        "    print('asked to stop', os.getpid() == here, signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, start_new_session=True
    )
    assert done.stdout == "asked to stop True set()\n", done.stderr


@linux
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a thread"])
def test_an_interrupt_while_processes_begin_leaves_none(beside: bool) -> None:
    """It was raised between a fork and the list of those to be ended: that one waited for ever to be heard. Where there is another
    thread, that one takes the signal, though it is blocked in the first."""
    script = (
        "import os, signal, threading, time; from tinyc.extract.exact.lanes import in_lanes\n"
        "fork, begun = os.fork, []\n"
        "def interrupted():\n"
        "    process = fork()\n"
        "    if process:\n"
        "        begun.append(process)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(0.2)\n"
        "    return process\n"
        "os.fork = interrupted\n"
        f"if {beside}:\n"
        "    threading.Thread(target=time.sleep, args=(600.0,), daemon=True).start()\n"
        "try:\n"
        "    in_lanes([lambda: bytes(1 << 20)] * 4, 3)\n"
        "except KeyboardInterrupt:\n"
        "    left = [process for process in begun if os.path.exists(f'/proc/{process}')]\n"
        "    as_before = signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "    print('asked to stop', len(begun), left, as_before, signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60.0
    )
    assert done.stdout == "asked to stop 2 [] True set()\n", done.stderr


@linux
def test_in_another_thread_no_handler_is_touched() -> None:
    handler, found = signal.getsignal(signal.SIGINT), list[list[int]]()
    thread = threading.Thread(target=lambda: found.append(in_lanes([lambda: 1] * 3, 2)))
    thread.start()
    thread.join()
    assert found == [[1, 1, 1]]
    assert signal.getsignal(signal.SIGINT) is handler


@linux
def test_jobs_are_begun_while_this_process_goes_on(tmp_path: Path) -> None:
    """And it does those that are left."""
    before = children()
    with begun([lambda: met(tmp_path, 2)] * 5, 2) as rest:
        here = met(tmp_path, 2)
        found = rest()
    assert here == os.getpid()
    assert {here} < {here, *found}
    assert children() <= before


@linux
@pytest.mark.parametrize("fails", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: signal.pause()])
def test_jobs_of_one_that_does_not_answer_are_done_here(
    fails: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "PATIENCE", 0.5)
    before, own = children(), os.getpid()

    def job() -> int:
        if os.getpid() != own:
            fails()
        return os.getpid()

    with begun([job, job], 2) as rest:
        assert rest() == [own, own]
    assert children() <= before


@linux
def test_jobs_that_are_begun_end_with_the_context() -> None:
    before, began = children(), time.monotonic()
    with begun([lambda: time.sleep(600.0)] * 2, 2):
        pass
    with pytest.raises(KeyError), begun([lambda: time.sleep(600.0)], 2):
        raise KeyError
    assert children() <= before
    assert time.monotonic() - began < 60.0


def test_in_one_process_nothing_is_begun() -> None:
    done: list[int] = []
    with begun([lambda: done.append(1)], 1) as rest:
        assert not done
        assert rest() == [None]
    assert done == [1]


def decoders(number: int) -> tinyc.Program:
    function, shapes = transformer(number, 64, 128)
    return tinyc.trace(function, **{name: tinyc.spec("fp16", shape) for name, shape in shapes.items()})


PROGRAMS = {
    "bench": lambda: decoders(5),
    "rotary": lambda: others.stack(
        others.rotary, 3, 1, 32, 64, 4
    ),  # parts that are taken as one, and searched again
    "beside": lambda: others.stack(others.beside, 4, 1, 64, 128, 4),
}


@linux
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = PROGRAMS[name]()
    graph, shared = saturated(program, "sm80"), list[int]()

    def counted(how: Any) -> Any:
        def done(jobs: Any, number: int) -> Any:
            if number > 1:
                shared.append(len(jobs))
            return how(jobs, number)

        return done

    monkeypatch.setattr(answers, "in_lanes", counted(in_lanes))
    monkeypatch.setattr(answers, "begun", counted(begun))
    found = [
        extract_program(program, graph, Roofline(hardware("sm80")), effort=Effort(600.0, 250_000, number))
        for number in (1, 2)
    ]
    assert max(shared) > 2
    alone, together = found
    assert alone.proof is not None and together.proof is not None
    assert alone.extracted == together.extracted
    assert replace(alone.proof, time_s=0.0) == replace(together.proof, time_s=0.0)


@linux
@pytest.mark.parametrize("whole", [30, 2_000, 10_000], ids=["a later one", "the second", "the first"])
def test_while_an_attempt_is_made_others_are_looked_at(whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In other processes, as if the attempt finds all; or here, where those do not answer."""
    problem, _ = chosen_from(decoders(8), "sm80")
    start = rough(problem)
    assert start is not None
    tried: list[tuple[int, list[int]]] = []
    searched = answers.searched

    def noted(hosts: Any, part: Any, meter: Any, loosely: bool, attempts: Any) -> Any:
        tried.append((id(part), [each.way for each in attempts]))
        return searched(hosts, part, meter, loosely, attempts)

    @contextlib.contextmanager
    def silent(jobs: Any, number: int) -> Any:
        yield lambda: [answers._Done(None)] * len(jobs)

    monkeypatch.setattr(answers, "searched", noted)
    monkeypatch.setattr(solved, "WHOLE", whole)
    here: list[int] = []
    found: list[tuple[float, Proof]] = []
    for number, how in ((1, begun), (2, begun), (2, silent)):
        monkeypatch.setattr(answers, "begun", how)
        tried.clear()
        choice, proof = exact(problem, start, Effort(600.0, 250_000, number))
        first = [way for part, ways in tried if part == tried[0][0] for way in ways]
        assert first == [0, 1, 2][: {30: 3, 2_000: 2, 10_000: 1}[whole]]
        here.append(len(tried))
        found.append((choice.seconds, replace(proof, time_s=0.0)))
    assert found[0] == found[1] == found[2]
    alone, together, silent_ = here
    assert together < silent_ <= alone


@linux
@pytest.mark.parametrize("steps", [12_000, 16_000])
def test_the_same_steps_end_the_search(steps: int) -> None:
    """Where they do not reach for all, they are spent in the order of one process."""
    problem, _ = chosen_from(decoders(4), "sm80")
    start = rough(problem)
    assert start is not None
    (first, alone), (second, together) = (exact(problem, start, Effort(600.0, steps, n)) for n in (1, 3))
    assert first.seconds == second.seconds
    assert {kernel.buffer.cls: kernel.items for kernel in first.kernels} == {
        kernel.buffer.cls: kernel.items for kernel in second.kernels
    }
    assert replace(alone, time_s=0.0) == replace(together, time_s=0.0)


@pytest.mark.parametrize(
    ("processes", "used"), [(0, 0), (1, 1), (2.5, 2), (float("inf"), 255), (10**30, 255)]
)
def test_any_number_of_processes_may_be_asked_for(processes: Any, used: int) -> None:
    """An infinite one ended in an OverflowError."""
    assert Options("sm80", budget=tinyc.Budget(extract_processes=processes)).effort.lanes == used


def test_processes_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, bool]] = []

    @contextlib.contextmanager
    def counted(jobs: Any, number: int) -> Any:
        asked.append((number, bool(jobs)))
        yield lambda: [job() for job in jobs]

    monkeypatch.setattr(answers, "begun", counted)
    program = decoders(2)
    tinyc.optimize_and_compile(program, "sm80", budget=tinyc.Budget(extract_processes=3))
    assert {number for number, _ in asked} == {3} and any(jobs for _, jobs in asked)
    for processes in (1, 0):
        asked.clear()
        tinyc.optimize_and_compile(program, "sm80", budget=tinyc.Budget(extract_processes=processes))
        assert set(asked) == {(processes, False)}
