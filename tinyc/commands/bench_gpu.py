"""bench gpu: a folder of programs for a GPU, with a script that times them there. Nothing is measured here."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyc.ir.diagnostics import TinycError
from tinyc.settings import Settings

from .console import say, say_table

if TYPE_CHECKING:
    from tinyc.bench.gpu.entries import Entry
    from tinyc.bench.gpu.export import Made

ABOUT = "--export a folder that times programs on a GPU beside torch and Triton; no GPU is needed here"


def add_options(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("gpu")
    group.add_argument(
        "--export", metavar="DIR", type=Path, help="a new or empty folder, or a benchmark set to replace"
    )
    group.add_argument("--target", choices=("sm80", "sm90"), help="default: sm80")
    group.add_argument(
        "--only", metavar="PROGRAM", action="append", default=[], help="this program; repeatable"
    )
    group.add_argument("--quick", action="store_true", help="a few programs")


def check_absent(args: argparse.Namespace) -> None:
    """Raises Usage where another benchmark is given an option of this one."""
    for option in ("export", "target", "only", "quick"):
        if getattr(args, option):
            raise _usage(f"{args.name} has no option --{option}", "leave it out, or run bench gpu")


def export_command(args: argparse.Namespace, settings: Settings) -> int:
    """Exit status: 1 where a program does not compile."""
    from tinyc.bench.gpu.export import export_set

    if args.repeat or args.peer:
        option = "--repeat" if args.repeat else "--peer"
        raise _usage(f"gpu measures nothing here, and has no option {option}", "leave it out")
    if args.export is None:
        raise _usage("gpu writes a folder, and there is no --export", "add --export DIR")
    entries, target = _chosen(args.only, args.quick), args.target or "sm80"
    words = ["tinyc bench gpu --export DIR", f"--target {target}", *(f"--only {name}" for name in args.only)]
    if args.quick:
        words.append("--quick")
    done: list[Made] = []

    def tell(made: Made) -> None:
        done.append(made)
        what = "failed" if made.failure else ", ".join(_schedules(made))
        told = f"[{len(done)}/{len(entries)}] {made.entry.name}: {what}, {made.seconds:.1f} s"
        print("\n".join([told, *made.warnings]), file=sys.stderr, flush=True)
        if made.failure:
            print(f"tinyc: error: {made.failure}", file=sys.stderr, flush=True)

    made = export_set(entries, target, args.export, " ".join(words), tell)
    if args.json:
        say(json.dumps(_document(made, target), indent=1, allow_nan=False, ensure_ascii=False))
    else:
        say_table(("program", "seconds", "registers", "kernels"), map(_row, made), settings.color)
    return 1 if any(each.failure for each in made) else 0


def _chosen(only: Sequence[str], quick: bool) -> list[Entry]:
    """The entries that are asked for. Raises Usage for a name that there is not, and where none is left."""
    from tinyc.bench.gpu.entries import ENTRIES

    if unknown := [name for name in only if name not in ENTRIES]:
        raise _usage(f"gpu has no program {', '.join(unknown)}", f"there are {', '.join(ENTRIES)}")
    found = [
        each for name, each in ENTRIES.items() if (not only or name in only) and (each.quick or not quick)
    ]
    if not found:
        raise _usage(f"--quick leaves out {', '.join(only)}", "leave out --quick")
    return found


def _schedules(made: Made) -> list[str]:
    counts = Counter(kernel.schedule for kernel in made.kernels)
    return [f"{count} {name}" if count > 1 else name for name, count in counts.items()]


def _row(made: Made) -> tuple[str, ...]:
    """Of the kernel with the most registers."""
    kernels = ", ".join(_schedules(made)) or f"none: {made.failure.kind if made.failure else ''}"
    most = max((kernel.registers for kernel in made.kernels), default=0)
    stack = max((kernel.stack_bytes for kernel in made.kernels), default=0)
    registers = f"{most}, stack {stack} B" if stack else str(most)
    return made.entry.name, f"{made.seconds:.1f}", registers if most else "", kernels


def _document(made: Sequence[Made], target: str) -> dict[str, Any]:
    from tinyc.bench.measure import machine

    cases = {
        each.entry.name: {
            "compile_s": each.seconds,
            "kernels": len(each.kernels),
            "registers": max((kernel.registers for kernel in each.kernels), default=0),
            "stack_bytes": max((kernel.stack_bytes for kernel in each.kernels), default=0),
        }
        for each in made
        if each.failure is None
    }
    failed = {each.entry.name: str(each.failure) for each in made if each.failure}
    return {
        "version": 1,
        "benchmark": "gpu",
        "target": target,
        "machine": machine(),
        "cases": cases,
        "failed": failed,
    }


def _usage(why: str, suggestion: str) -> TinycError:
    return TinycError("Usage", why, suggestion, {"layer": "bench"})
