"""bench: runs one benchmark of ``tinyc.bench`` and prints its figures."""

from __future__ import annotations

import argparse
import json

from tinyc.bench import BENCHMARKS
from tinyc.settings import Settings

from .console import say, say_table


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = subparsers.add_parser("bench", help="run a benchmark")
    command.add_argument(
        "name", metavar="NAME", choices=sorted(BENCHMARKS), help=", ".join(sorted(BENCHMARKS))
    )
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(command=bench_command)


def bench_command(args: argparse.Namespace, settings: Settings) -> int:
    figures = BENCHMARKS[args.name]()
    if args.json:
        values = {figure.name: figure.value for figure in figures}
        say(json.dumps({"version": 1, "benchmark": args.name, "figures": values}, indent=1))
    else:
        rows = [(figure.name, f"{figure.value:.6g}", figure.meaning) for figure in figures]
        say_table(("figure", "value", "of"), rows, settings.color)
    return 0
