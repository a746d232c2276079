"""emulate: a program for a GPU, run on the CPU and watched."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tinyc.settings import Settings

from .compiling import FILE, about, compile_options, compile_source, warn
from .console import say, say_table
from .files import array_bytes, write_files
from .programs import arrays_from_files, named_file, opened_for_arrays, say_outputs

if TYPE_CHECKING:
    from tinyc.codegen.emulator import Counters

FAULT = 3
"""Exit status: a kernel of ours is wrong."""


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    options = compile_options()
    command = subparsers.add_parser(
        "emulate", parents=[options], help="run a program for a GPU on the CPU, and watch its kernels"
    )
    command.add_argument("file", metavar="FILE", help=FILE)
    command.add_argument(
        "--input",
        metavar="NAME=FILE.npy",
        type=named_file,
        action="append",
        default=[],
        help="one per input",
    )
    command.add_argument("--output", metavar="FILE.npz", type=Path, help="write the outputs here")
    command.add_argument(
        "--delivery",
        choices=("late", "early", "random"),
        default="late",
        help="when copies that run beside the threads arrive (default: late)",
    )
    command.add_argument("--seed", type=int, default=0, help="of --delivery random")
    command.set_defaults(command=emulate_file, target="sm80")


def emulate_file(args: argparse.Namespace, settings: Settings) -> int:
    opened, compiled, signature = opened_for_arrays(args)
    arrays = arrays_from_files(args, signature)
    compiled = compiled or compile_source(args, args.file, opened, partial=True)
    with about(args.file):
        result = compiled.emulate(
            *(arrays[argument.name] for argument in signature.inputs),
            delivery=args.delivery,
            seed=args.seed,
        )
    warn(compiled)
    if args.output is not None:
        names = (argument.name for argument in signature.outputs)
        write_files({args.output: array_bytes(dict(zip(names, result.outputs, strict=True)))})
    say_outputs(signature, result.outputs, settings)
    say("")
    heads = ("region", "warp instructions", "tensor operations", "bank conflicts", "sectors", "at least")
    say_table(heads, [(name, *_counted(each)) for name, each in result.counters.items()], settings.color)
    for finding in result.findings:
        say(f"\n{finding}")
    return FAULT if result.findings else 0


def _counted(counters: Counters) -> tuple[str, ...]:
    counts = (
        sum(counters.instructions.values()),
        counters.tensor_operations,
        counters.bank_conflicts,
        sum(each.sectors for each in counters.global_),
        sum(each.ideal for each in counters.global_),
    )
    return tuple(f"{count:,}" for count in counts)
