"""One program of the folder on the GPU: first whether it is right, then how long it takes, beside its peers."""

from __future__ import annotations

import contextlib
import importlib
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROTATED = 2
"""Copies of all arrays together take at least so many times the L2 cache."""

MOST_COPIES = 64
MEMORY = 0.25
"""Of the free memory, that the copies may take."""


@dataclass(frozen=True)
class Machine:
    """``loader``: the module. ``stream``: that all runs on; it does not wait for the default stream. ``folder``: of the set."""

    loader: Any
    device: Any
    stream: int
    folder: Path


@contextlib.contextmanager
def machine(loader: Any, device: Any, folder: Path) -> Iterator[Machine]:
    with device.current() as driver:
        stream = int(driver("cuStreamCreate", 1))
    try:
        yield Machine(loader, device, stream, folder)
    finally:
        with contextlib.suppress(loader.DriverError), device.current() as driver:
            driver("cuStreamDestroy", stream)


@dataclass(frozen=True)
class Settings:
    """``least_s``: what a contestant is timed for in a turn, at least. ``copies``: of the arrays; None for as many as it
    takes that none is in the L2 cache, of ``l2_bytes``, when its turn comes."""

    repeat: int
    least_s: float
    copies: int | None
    l2_bytes: int


@dataclass(frozen=True)
class Peers:
    """Whom we are compared with: name -> program -> function over tensors. ``torch``: None where there is nobody, and results
    are held against numpy's. ``notes``: who is missing, and why."""

    torch: Any = None
    functions: Mapping[str, Mapping[str, Callable[..., Any]]] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


def find_peers() -> Peers:
    """torch, and Triton where it is installed; nobody where torch is not, or sees no GPU."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        return Peers(notes=[f"no peers, and numpy's results: {error}"])
    if not torch.cuda.is_available():
        return Peers(notes=["no peers, and numpy's results: torch sees no GPU"])
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True  # cuDNN takes its fastest
    # fp32 is fp32 for everybody
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    functions = {"torch": importlib.import_module("programs").torch_functions(torch)}
    versions = {"torch": torch.__version__, "cuda": str(torch.version.cuda)}
    versions["cudnn"] = str(torch.backends.cudnn.version())
    try:
        versions["triton"] = importlib.import_module("triton").__version__
    except ImportError as error:
        return Peers(torch, functions, versions, [f"no Triton: {error}"])
    functions["triton"] = importlib.import_module("triton_kernels").functions(torch)
    return Peers(torch, functions, versions)


def measured(
    entry: Mapping[str, Any], machine: Machine, peers: Peers, settings: Settings
) -> tuple[dict[str, Any], bool]:
    """What the results say of an entry, and whether the GPU takes no more calls."""
    found: dict[str, Any] = {name: entry[name] for name in ("name", "flops", "bytes", "estimate_s")}
    found |= {"copies": 0, "wrong": "", "checks": {}, "notes": {}, "contestants": {}}
    try:
        with _running(entry, machine, peers, settings) as run:
            found["copies"] = run.copies.count
            found["wrong"] = run.check(found["checks"], found["notes"])
            if not found["wrong"]:
                times, off = run.time(settings, found["notes"])
                found["wrong"] = run.check_copies()
            if not found["wrong"]:
                found["contestants"] = _figures(entry, times, off)
    except (machine.loader.DriverError, machine.loader.BundleError) as error:
        found["wrong"] = f"it does not run: {error}"
        # an error of a kernel stays with the context; that memory ended, or a bundle is damaged, is of this entry
        return found, getattr(error, "name", "") not in ("", "CUDA_ERROR_OUT_OF_MEMORY")
    return found, False


def _figures(
    entry: Mapping[str, Any], times: Mapping[str, Sequence[float]], off: set[str]
) -> dict[str, dict[str, Any]]:
    """Of each contestant. ``off``: those whose result is beyond the tolerance."""
    found = {}
    for name, each in times.items():
        median = statistics.median(each)
        figures = {"right": name not in off, "time_s": median, "best_s": min(each), "times_s": list(each)}
        figures |= {"flops_per_s": entry["flops"] / median, "bytes_per_s": entry["bytes"] / median}
        if name != "tinyc":
            ratios = [ours / theirs for ours, theirs in zip(times["tinyc"], each, strict=True)]
            figures |= {"ratio": statistics.median(ratios), "best_ratio": min(times["tinyc"]) / min(each)}
        found[name] = figures
    return found


@contextlib.contextmanager
def _running(entry: Mapping[str, Any], machine: Machine, peers: Peers, settings: Settings) -> Iterator[_Run]:
    """An entry's program, loaded, and copies of its arrays on the device."""
    contestants = importlib.import_module("contestants")
    with contextlib.ExitStack() as cleanup:
        program = machine.loader.load(machine.folder / entry["folder"], machine.device)
        cleanup.callback(program.close)
        count = settings.copies or copies_of(entry, machine.device, settings.l2_bytes)
        copies = contestants.Copies(machine.device, entry, count, machine.stream)
        cleanup.callback(copies.close)
        ours = contestants.Ours(program, copies, machine.device, machine.stream)
        cleanup.callback(ours.close)
        yield _Run(entry, machine, peers, copies, ours, contestants, importlib.import_module("programs"))


def copies_of(entry: Mapping[str, Any], device: Any, l2_bytes: int) -> int:
    """How often the arrays of an entry are on the device, so that none is in the L2 cache when its turn comes."""
    with device.current() as driver:
        free, _ = driver("cuMemGetInfo")
    wanted = math.ceil(ROTATED * l2_bytes / entry["bytes"])
    return max(2, min(wanted, MOST_COPIES, int(MEMORY * free / entry["bytes"])))


@dataclass
class _Run:
    """An entry on the device. ``contestants`` and ``programs``: the modules."""

    entry: Mapping[str, Any]
    machine: Machine
    peers: Peers
    copies: Any
    ours: Any
    contestants: Any
    programs: Any
    want: Any = None
    """The result that is right, for what the copies hold."""

    def check(self, checks: dict[str, Any], notes: dict[str, str]) -> str:
        """What is wrong with our results, on integers where they are exact and on normal numbers; "" where nothing is.
        The copies hold the normal numbers afterwards."""
        exact = ["integers"] if self.entry["program"] in self.programs.EXACT else []
        for kind in (*exact, "normal"):
            arrays = self.programs.inputs_of(self.entry, kind)
            self.copies.fill(arrays)
            self.ours.call(0)
            got = self.copies.result(0)
            self.want = self._reference(arrays, notes)
            verdict = self._judged(got, kind == "integers")
            checks[kind] = {
                "right": not verdict.why,
                "largest_error": _number(verdict.largest),
                "relative_error": _number(verdict.relative),
            }
            if verdict.why:
                return f"on {kind}: {verdict.why}"
        return ""

    def _judged(self, content: Any, exact: bool) -> Any:
        """The verdict on an output's bytes."""
        kind = self.machine.loader.ELEMENTS[self.entry["output"]["dtype"]]
        return self.programs.judged(self.entry, content.view(kind), self.want, exact)

    def _reference(self, arrays: Sequence[Any], notes: dict[str, str]) -> Any:
        torch = self.peers.torch
        if torch is not None:
            try:
                views = self.contestants.views_of(torch, self.copies)[0]
                return self.programs.by_torch(torch, self.entry, views)
            except (RuntimeError, TypeError) as error:
                notes["reference"] = f"numpy's, since torch in float64 does not run: {_first_line(error)}"
            finally:
                torch.cuda.empty_cache()
        return self.programs.by_numpy(self.entry, arrays)

    def time(self, settings: Settings, notes: dict[str, str]) -> tuple[dict[str, list[float]], set[str]]:
        """Seconds of each contestant that runs, of the others ``notes`` say why not; and the peers whose result is beyond
        the tolerance."""
        self.ours.capture()
        running, off = [self.ours], set[str]()
        with contextlib.ExitStack() as cleanup:
            for peer in self._all_peers():
                cleanup.callback(peer.close)
                try:
                    result = self.programs.narrowed(peer.result(), self.entry["output"]["dtype"])
                    peer.capture()
                except Exception as error:  # whatever the peer's libraries raise
                    notes[peer.name] = f"does not run: {_first_line(error)}"
                    continue
                if why := self.programs.judged(self.entry, result, self.want, False).why:
                    off.add(peer.name)
                    notes[peer.name] = f"is beyond the tolerance: {why}"
                running.append(peer)
            clock = self.contestants.Clock(self.machine.device, self.machine.stream)
            cleanup.callback(clock.close)
            times = self.contestants.in_turns(
                running, clock, self.copies.count, settings.repeat, settings.least_s
            )
        return times, off

    def _all_peers(self) -> list[Any]:
        name, torch = self.entry["program"], self.peers.torch
        having = {peer: each[name] for peer, each in self.peers.functions.items() if name in each}
        views = self.contestants.views_of(torch, self.copies) if having else []
        parameters = self.entry["parameters"]
        return [
            self.contestants.Peer(peer, torch, function, parameters, views, self.machine.stream)
            for peer, function in having.items()
        ]

    def check_copies(self) -> str:
        """What is wrong with the results of the timed calls: each copy has the first one's bytes."""
        first = self.copies.result(0)
        for copy in range(1, self.copies.count):
            if (self.copies.result(copy) != first).any():
                return f"copy {copy} of the same inputs has another result"
        why = self._judged(first, False).why
        return f"after it was timed: {why}" if why else ""


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None
