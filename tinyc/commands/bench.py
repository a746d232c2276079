"""bench: runs one benchmark of ``tinyc.bench`` and prints its figures."""

from __future__ import annotations

import argparse
import json

from tinyc.bench import BENCHMARKS
from tinyc.bench.measure import Benchmark, Cases, machine
from tinyc.ir.diagnostics import TinycError
from tinyc.settings import Settings

from . import bench_gpu
from .console import say, say_table


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = subparsers.add_parser("bench", help="run a benchmark")
    about = "; ".join(f"{benchmark.name}: {benchmark.about}" for benchmark in BENCHMARKS.values())
    about += f"; gpu: {bench_gpu.ABOUT}"
    command.add_argument("name", metavar="NAME", choices=sorted([*BENCHMARKS, "gpu"]), help=about)
    command.add_argument("--json", action="store_true", help="as JSON")
    command.add_argument("--repeat", metavar="N", type=_count, help="how often each case is measured")
    command.add_argument(
        "--peer",
        metavar="P",
        action="append",
        default=[],
        help="beside numpy: torch, torch-compile or tinygrad (cpu-models), triton (sass), where installed",
    )
    bench_gpu.add_options(command)
    command.set_defaults(command=bench_command)


def bench_command(args: argparse.Namespace, settings: Settings) -> int:
    if args.name == "gpu":
        return bench_gpu.export_command(args, settings)
    bench_gpu.check_absent(args)
    benchmark = BENCHMARKS[args.name]
    if unknown := sorted(set(args.peer) - set(benchmark.peers)):
        why = f"{benchmark.name} has no peer {', '.join(unknown)}"
        known = f"there are {', '.join(benchmark.peers)}" if benchmark.peers else "leave --peer out"
        raise TinycError("Usage", why, known, {"layer": "bench"})
    on = machine()
    repeats = args.repeat or benchmark.repeats
    cases = benchmark.run(repeats, tuple(dict.fromkeys(args.peer)))
    if args.json:
        found = {
            "version": 1,
            "benchmark": benchmark.name,
            "repeat": repeats,
            "machine": on,
            "cases": cases,
        }
        say(json.dumps(found, indent=1, allow_nan=False, ensure_ascii=False))
        return 0
    say(f"{benchmark.name}: {repeats} turns each, on {', '.join(f'{k} {v}' for k, v in on.items())}\n")
    say_table(("figure", *cases, "of"), _rows(benchmark, cases), settings.color)
    return 0


def _rows(benchmark: Benchmark, cases: Cases) -> list[tuple[str, ...]]:
    """One row per figure, in the order in which the cases have them."""
    names = dict.fromkeys(name for figures in cases.values() for name in figures)
    order = sorted(names, key=lambda name: _rank(benchmark, name))
    return [
        (
            name,
            *(_number(figures[name]) if name in figures else "" for figures in cases.values()),
            benchmark.meanings.get(name, ""),
        )
        for name in order
    ]


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.4g}"


def _rank(benchmark: Benchmark, name: str) -> int:
    known = list(benchmark.meanings)
    return known.index(name) if name in known else len(known)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 4 and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer from 1 to 9999")
    return int(text)
