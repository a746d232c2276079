"""The command as a process: pipes, terminals, full disks, and signals at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import (
    affine,
    environment,
    files,
    processes_with,
    tinyc_command,
    tinyc_process,
    vectors,
    write,
)

from tinyc.commands.console import plain_table


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_tables_are_aligned() -> None:
    assert plain_table(("a", "bb"), [("xxx", "y"), ("", "")]) == "a    bb\n---  --\nxxx  y\n"


def test_a_terminal_gets_drawn_tables_and_other_readers_plain_ones() -> None:
    assert "\x1b[" not in on_a_terminal("NO_COLOR=1")
    assert "━" not in on_a_terminal("NO_COLOR=1")
    drawn = on_a_terminal("NO_COLOR=")
    assert "━" in drawn
    assert "python" in drawn


def on_a_terminal(setting: str) -> str:
    """What ``tinyc doctor`` shows on a pseudo-terminal."""
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    env = environment() | {"TERM": "xterm", "COLUMNS": "120"} | dict([setting.split("=", 1)])
    process = subprocess.Popen(tinyc_command("doctor"), stdout=slave, stderr=slave, env=env)
    os.close(slave)
    shown = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # how Linux says that the other side was closed
            break
        if not part:
            break
        shown += part
    os.close(master)
    assert process.wait(60) == 0
    return shown.decode()


def test_a_reader_that_leaves_early_is_no_error() -> None:
    process = subprocess.Popen(
        tinyc_command("rules", "list"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""


def test_plain_text_where_there_is_no_terminal() -> None:
    assert "\x1b" not in tinyc_process("rules", "list").stdout


def test_a_terminal_that_cannot_encode_still_shows_the_text() -> None:
    env = {**environment(), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(tinyc_command("doctor"), capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("argv", [["rules", "list"], ["rules", "list", "--json"], ["doctor"], ["run"]])
def test_a_full_disk_is_an_error(argv: list[str]) -> None:
    """Nothing is left in a buffer for the interpreter to complain about at its end."""
    if argv == ["run"]:
        argv = ["run", write("affine.json", affine()), *vectors()]
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            tinyc_command(*argv), stdout=full, stderr=subprocess.PIPE, text=True, env=environment()
        )
    assert done.returncode == 1
    assert done.stderr.startswith("tinyc: error: E1804 FileUnwritable at file standard output")
    assert len(done.stderr.splitlines()) == 3


@pytest.mark.parametrize(("closed", "status"), [(1, 1), (2, 0)])
def test_a_closed_stream_is_no_fault(closed: int, status: int) -> None:
    command = f'"{sys.executable}" -m tinyc rules list {closed}>&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=environment())
    assert done.returncode == status
    assert "fault of tinyc" not in done.stderr + done.stdout


def test_standard_output_may_be_the_output_file() -> None:
    command = tinyc_command("run", write("affine.json", affine()), *vectors(), "--output", "/dev/stdout")
    done = subprocess.run(command, capture_output=True, env=environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"PK")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds its processes through /proc")
@pytest.mark.parametrize(
    ("number", "delay"),
    [
        *((signal.SIGINT, delay) for delay in (0.02, 0.1, 0.4, 1.0, 2.0)),
        *((number, delay) for number in (signal.SIGTERM, signal.SIGKILL) for delay in (0.4, 1.0)),
    ],
)
def test_a_signal_leaves_nothing_behind(number: signal.Signals, delay: float, tmp_path: Path) -> None:
    """Stopped at any moment: no output, no temporary file, no process; after Ctrl-C status 130 and no traceback."""
    document = affine(size=64)
    for index in range(12_000):  # long enough that compiling is not over
        document["uops"].append(
            {"id": f"n{index}", "uop": "SIN", "src": [document["uops"][-1]["id"]], "arg": {}}
        )
    file = write("long.json", document)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    mark = f"TINYC_TEST_MARK={tmp_path}"  # every process that the command starts inherits it
    # what the script `tinyc` does; "up" says that the interpreter itself has started, which is not ours to test
    code = "import sys; from tinyc.cli import main; print('up', flush=True); sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "compile", file, "--out", "out/deep"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment() | {"TMPDIR": str(temporary)} | dict([mark.split("=", 1)]),
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    time.sleep(delay)
    os.killpg(process.pid, number)
    _, error = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert (process.returncode, error) == (130, "interrupted\n")
    else:
        assert (process.returncode, error) == (-number, "")
    deadline = time.monotonic() + 10
    while processes_with(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_with(mark) == [], "the engine's process outlived the command"
    assert files() == {file}
    assert not Path("out").exists()
    assert not list(temporary.iterdir())


def test_native_libraries_are_loaded_before_ctrl_c_is_an_exception() -> None:
    """The import of islpy aborts at a KeyboardInterrupt, or clears it and goes on: 28 of 750 moments of it were lost."""
    code = (
        "import sys; from tinyc import cli; cli._parser(); early = set(sys.modules);"
        " status = cli.main(sys.argv[1:]); print(status, 'islpy' in early, 'islpy' in sys.modules)"
    )
    arguments = [sys.executable, "-c", code, "compile", write("affine.json", affine()), "--out", "out"]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment())
    assert done.stdout.splitlines()[-1] == "0 True True", done.stderr
