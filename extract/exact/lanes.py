"""Jobs that do not depend on each other, in as many processes as there are cores to use.

The processes are forks: each knows all that the search does so far, and nothing has to be sent to it. Which of them does a job does not
matter for what comes out. Where there is no fork, where one fails, or where one does not answer, this process does the jobs itself.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import NamedTuple, NoReturn, TypeVar

T = TypeVar("T")

END = 255
"""Says that no job is left; so it is more than there may be."""

PATIENCE = 10.0
"""How long the others are waited for: that many times as long as this process was at work, and as many seconds. Longer, and they hang: a
fork may wait for a lock that was held by another thread."""

HEADER = 8
"""Bytes that say how long an answer is."""


class _Lane(NamedTuple):
    """Another process. ``answers``: the pipe that it writes to when no job is left."""

    process: int
    answers: int


def in_lanes(jobs: Sequence[Callable[[], T]], lanes: int) -> list[T]:
    """What the jobs return, which is pickled; an exception of theirs is raised here. ``lanes``: processes at most, this one among
    them."""
    with begun(jobs, min(lanes, len(jobs))) as rest:
        return rest()


@contextlib.contextmanager
def begun(jobs: Sequence[Callable[[], T]], lanes: int) -> Iterator[Callable[[], list[T]]]:
    """The same in other processes, while this one goes on. Given is what does here those jobs that are left, and says what all return;
    without it they end with the context."""
    count = min(lanes - 1, len(jobs))
    if count <= 0 or len(jobs) > END or sys.platform != "linux":
        yield lambda: [job() for job in jobs]
        return
    with _others(jobs, count) as (others, numbers):

        def rest() -> list[T]:
            began = time.monotonic()
            found = _done(jobs, numbers)
            until = time.monotonic() + PATIENCE * (time.monotonic() - began + 1.0)
            for lane in others:
                found |= _answered(lane, until)
            return [found[number] if number in found else job() for number, job in enumerate(jobs)]

        yield rest


@contextlib.contextmanager
def _others(jobs: Sequence[Callable[[], T]], count: int) -> Iterator[tuple[list[_Lane], int]]:
    """So many other processes, or as many as there may be, that end with the context; and where a number is read of the job that is
    next: who reads it does that job."""
    others: list[_Lane] = []
    numbers, writing = os.pipe()
    try:
        os.write(writing, bytes([*range(len(jobs)), *[END] * (count + 1)]))
        os.close(writing)
        with _uninterrupted():
            for _ in range(count):
                lane = _forked(jobs, numbers)
                if lane is None:
                    break
                others.append(lane)
        yield others, numbers
    finally:
        os.close(numbers)
        for lane in others:
            _ended(lane)


def _done(jobs: Sequence[Callable[[], T]], numbers: int) -> dict[int, T]:
    """The jobs that are left to this process."""
    found: dict[int, T] = {}
    while (number := os.read(numbers, 1)[0]) != END:
        found[number] = jobs[number]()
    return found


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Whoever interrupts asks the first process, which ends the others: it knows all of them by then, and none of them goes on as if it
    were the first.

    A signal that is blocked here is taken by another thread where there is one, and its handler is run here all the same: so that one
    waits too.
    """
    handler, came = signal.getsignal(signal.SIGINT), list[FrameType | None]()
    # handlers run in the main thread, and only there may they be set
    waits = callable(handler) and threading.current_thread() is threading.main_thread()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        if waits:
            signal.signal(signal.SIGINT, lambda _, frame: came.append(frame))
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if waits:
            signal.signal(signal.SIGINT, handler)
        if came and callable(handler):
            handler(signal.SIGINT, came[0])


def _forked(jobs: Sequence[Callable[[], T]], numbers: int) -> _Lane | None:
    """A process that does jobs; None where there may be no more."""
    answers, writing = os.pipe()
    try:
        with warnings.catch_warnings():
            # Python and some libraries warn of locks that threads may hold: a process that waits for one is not waited for
            warnings.simplefilter("ignore")
            process = os.fork()
        if not process:
            _work(jobs, numbers, writing)
    except OSError:
        os.close(answers)
        return None
    finally:
        os.close(writing)
    return _Lane(process, answers)


def _work(jobs: Sequence[Callable[[], T]], numbers: int, writing: int) -> NoReturn:
    """All that another process does: it ends here, whatever happens."""
    code = 1
    try:
        text = pickle.dumps(_done(jobs, numbers), pickle.HIGHEST_PROTOCOL)
        with open(writing, "wb") as file:
            file.write(len(text).to_bytes(HEADER) + text)
        code = 0
    except BaseException:
        pass  # what fails here is done again by the first process, and fails there
    finally:
        os._exit(code)


def _answered(lane: _Lane, until: float) -> dict[int, T]:
    """What another process has done; nothing where it does not say, or not in time."""
    text = bytearray()
    poll = select.poll()
    poll.register(lane.answers, select.POLLIN)
    while len(text) < HEADER or len(text) < HEADER + int.from_bytes(text[:HEADER]):
        if not poll.poll(1000 * max(0.0, until - time.monotonic())):
            return {}
        part = os.read(lane.answers, 1 << 20)
        if not part:
            return {}
        text += part
    found: dict[int, T] = pickle.loads(memoryview(text)[HEADER:])
    return found


def _ended(lane: _Lane) -> None:
    os.close(lane.answers)
    with contextlib.suppress(ProcessLookupError):
        os.kill(lane.process, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(lane.process, 0)
