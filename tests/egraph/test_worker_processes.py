"""Processes: one worker per process, none left behind; threads, forks and interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tinyc
from tinyc.egraph import saturate as saturation

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import tinyc
from tinyc.egraph import saturate as saturation

def program(size=5):
    return tinyc.trace(lambda a, b: (a @ b).relu(), tinyc.spec("fp32", (size, 7)), tinyc.spec("fp32", (7, 3)))

def pid():
    return saturation._shared_worker()._process.pid

def say_when_it_works(seconds):
    # the worker's number, once it has been there for so long: a busy machine may take its time to start it
    before = time.monotonic()
    while time.monotonic() < before + 50:
        process = getattr(saturation._shared_worker(), "_process", None)
        if process is not None:
            time.sleep(seconds)
            print(process.pid, flush=True)
            return
        time.sleep(0.05)
"""

EXPLODE = """
(ruleset explode)
(in-phase "explode" "algebra" "REASSOC" "on")
(rewrite (Binary "ADD" x y) (Binary "ADD" y x) :ruleset explode :name "explode/commute")
(rewrite (Binary "ADD" (Binary "ADD" x y) z) (Binary "ADD" x (Binary "ADD" y z))
  :ruleset explode :name "explode/associate")
"""


def start(body: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM + textwrap.dedent(body), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pid: int, seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


def small(size: int) -> tinyc.Program:
    return tinyc.trace(lambda a, b: a @ b, tinyc.spec("fp32", (size, 7)), tinyc.spec("fp32", (7, 3)))


def test_the_worker_ends_with_its_process() -> None:
    process = start("tinyc.optimize_and_compile(program()); print(pid(), flush=True)")
    pid = int(line(process))
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and not errors
    assert gone(pid)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_worker_ends_when_its_process_is_killed(how: signal.Signals) -> None:
    process = start("tinyc.optimize_and_compile(program()); print(pid(), flush=True); time.sleep(60)")
    pid = int(line(process))
    process.send_signal(how)
    process.communicate(timeout=60)
    assert gone(pid)


def test_the_worker_ends_when_its_process_is_killed_amid_a_long_saturation(tmp_path: Path) -> None:
    rules = tmp_path / "explode.egg"
    rules.write_text(EXPLODE)
    body = """
    threading.Thread(target=say_when_it_works, args=(2,), daemon=True).start()
    add = lambda *xs: sum(xs[1:], xs[0])
    long = tinyc.trace(add, *[tinyc.spec("fp32", (7,))] * 40)
    tinyc.optimize_and_compile(long, rules=[sys.argv[1]], budget=tinyc.Budget(seconds=60, enodes=10**9))
    """
    process = start(body, str(rules))
    pid = int(line(process))
    process.kill()
    process.communicate(timeout=60)
    assert gone(pid), "it looks for its parent even while the engine works"


def test_an_interrupt_amid_a_saturation_leaves_nothing_behind(tmp_path: Path) -> None:
    """Ctrl-C reaches the caller as KeyboardInterrupt, the worker is gone at once, and the next call works."""
    rules = tmp_path / "explode.egg"
    rules.write_text(EXPLODE)
    body = """
    tinyc.optimize_and_compile(program())
    print(pid(), flush=True)
    add = lambda *xs: sum(xs[1:], xs[0])
    long = tinyc.trace(add, *[tinyc.spec("fp32", (7,))] * 40)
    threading.Thread(target=lambda: (time.sleep(1), print("now", flush=True)), daemon=True).start()
    try:
        tinyc.optimize_and_compile(long, rules=[sys.argv[1]], budget=tinyc.Budget(seconds=60, enodes=10**9))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    compiled = tinyc.optimize_and_compile(program())
    print(compiled.report.complete, pid(), flush=True)
    """
    process = start(body, str(rules))
    pid = int(line(process))
    assert line(process) == "now"
    process.send_signal(signal.SIGINT)
    assert line(process) == "interrupted"
    assert gone(pid, 1)
    complete, second = line(process).split()
    _, errors = process.communicate(timeout=60)
    assert complete == "True" and process.returncode == 0 and not errors
    assert gone(int(second))


def test_an_interrupt_on_the_command_line_leaves_nothing_behind(tmp_path: Path) -> None:
    """The whole process group, as a terminal sends it."""
    rules = tmp_path / "explode.egg"
    rules.write_text(EXPLODE)
    uops: list[dict[str, object]] = [
        {
            "id": f"x{n}",
            "uop": "INPUT",
            "src": [],
            "arg": {"tensor_id": f"x{n}", "dtype": "fp32", "shape": [4]},
        }
        for n in range(40)
    ]
    for n in range(1, 40):
        uops.append(
            {"id": f"s{n}", "uop": "ADD", "src": ["x0" if n == 1 else f"s{n - 1}", f"x{n}"], "arg": {}}
        )
    document = tmp_path / "long.json"
    document.write_text(str({"uops": uops}).replace("'", '"'))
    environment = {**os.environ, "TINYC_RULES": str(rules)}
    process = subprocess.Popen(
        [sys.executable, "-m", "tinyc", "compile", str(document)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    while not (children := child_processes(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and "Traceback" not in errors
    assert all(gone(child, 3) for child in children)


def child_processes(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


def test_threads_compile_side_by_side() -> None:
    """Requests do not mix: every thread gets the program that it asked for."""
    sizes = [2, 3, 5, 11, 13, 17, 19, 23]
    with ThreadPoolExecutor(4) as pool:
        compiled = list(pool.map(lambda size: tinyc.optimize_and_compile(small(size)), sizes))
    for size, each in zip(sizes, compiled, strict=True):
        assert each.report.complete and each.plan.buffers[each.plan.output_buffers[0]].shape == (size, 3)
        a, b = np.ones((size, 7), np.float32), np.ones((7, 3), np.float32)
        np.testing.assert_array_equal(each(a, b), np.full((size, 3), 7))


def test_one_symbolic_program_called_from_many_threads() -> None:
    program = tinyc.trace(lambda a, b: a @ b, tinyc.spec("fp32", ("M", 7)), tinyc.spec("fp32", (7, 3)))
    compiled = tinyc.optimize_and_compile(program)
    b = np.ones((7, 3), np.float32)
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda n: compiled(np.ones((n % 5 + 1, 7), np.float32), b), range(30)))
    for n, result in enumerate(results):
        np.testing.assert_array_equal(result, np.full((n % 5 + 1, 3), 7))


def test_a_forked_child_has_a_worker_of_its_own() -> None:
    """After a fork parent and child share the pipes of one worker: the child must not read the parent's answers."""
    body = """
    tinyc.optimize_and_compile(program())
    parent = pid()
    child = os.fork()
    right = True
    for size in (2, 3, 4, 5, 6, 7):
        compiled = tinyc.optimize_and_compile(program(size))
        a, b = np.ones((size, 7), np.float32), np.ones((7, 3), np.float32)
        right &= compiled.report.complete and (compiled(a, b) == 7).all() and compiled(a, b).shape == (size, 3)
    if child == 0:
        right &= pid() != parent
        sys.stdout.flush()
        os._exit(0 if right else 1)
    _, status = os.waitpid(child, 0)
    right &= pid() == parent
    print("right" if right and status == 0 else f"wrong {right} {status}", flush=True)
    """
    process = start(body)
    output, errors = process.communicate(timeout=120)
    assert output.split() == ["right"], errors
    assert process.returncode == 0


def test_a_forked_child_that_exits_leaves_its_parents_worker_alone() -> None:
    body = """
    tinyc.optimize_and_compile(program())
    parent = pid()
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
    tinyc.optimize_and_compile(program(6))
    print(pid() == parent, flush=True)
    """
    process = start(body)
    output, errors = process.communicate(timeout=60)
    assert output.split() == ["True"], errors


def test_a_program_compiled_before_a_fork_runs_in_the_child() -> None:
    """Large enough to be shared among threads, which do not survive a fork."""
    body = """
    compiled = tinyc.optimize_and_compile(tinyc.trace(lambda a, b: a @ b, *[tinyc.spec("fp32", (512, 512))] * 2))
    one = np.ones((512, 512), np.float32)
    assert (compiled(one, one) == 512).all()
    child = os.fork()
    right = (compiled(one, one) == 512).all()
    if child == 0:
        os._exit(0 if right else 1)
    _, status = os.waitpid(child, 0)
    print(right and status == 0, flush=True)
    """
    process = start(body)
    try:
        output, errors = process.communicate(timeout=60)
    finally:
        for child in (*child_processes(process.pid), process.pid):
            if alive(child):
                os.kill(child, signal.SIGKILL)
    assert output.split() == ["True"], errors


def test_the_worker_says_nothing_on_the_callers_streams() -> None:
    process = start("tinyc.optimize_and_compile(program()); print('done')")
    output, errors = process.communicate(timeout=60)
    assert (output, errors) == ("done\n", "")


def test_a_script_without_a_main_guard_compiles(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAM + "print(tinyc.optimize_and_compile(program()).report.complete)\n")
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.stdout.split() == ["True"], result.stderr


def test_modules_of_the_current_folder_are_not_taken_for_the_engines(tmp_path: Path) -> None:
    """A file json.py or tinyc.py where the user stands must not break the worker."""
    for name in ("json.py", "egglog.py", "queue.py"):
        (tmp_path / name).write_text("raise SystemExit('wrong module')\n")
    script = f"import os; os.chdir({str(tmp_path)!r})\nprint(tinyc.optimize_and_compile(program()).report.complete)"
    process = start(script)
    output, errors = process.communicate(timeout=60)
    assert output.split() == ["True"], errors


def test_memory_is_given_back_between_programs() -> None:
    """The warm worker does not grow from request to request."""

    def resident() -> int:
        process = saturation._shared_worker()._process
        assert process is not None
        return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    for size in range(2, 6):
        tinyc.optimize_and_compile(small(size))
    before = resident()
    for size in range(6, 26):
        tinyc.optimize_and_compile(small(size))
    assert resident() < before + (64 << 20)
