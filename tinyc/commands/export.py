"""export: a program for a GPU as a folder that runs without tinyc."""

from __future__ import annotations

import argparse
from pathlib import Path

from tinyc.settings import Settings

from .compiling import FILE, about, compile_options, compile_source, warn
from .console import say


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    options = compile_options()
    command = subparsers.add_parser(
        "export", parents=[options], help="write a program for a GPU as a folder that runs without tinyc"
    )
    command.add_argument("file", metavar="FILE", help=FILE)
    command.add_argument(
        "--out", metavar="DIR", type=Path, required=True, help="a new or empty folder, or a bundle to replace"
    )
    command.set_defaults(command=export_file, target="sm80")


def export_file(args: argparse.Namespace, settings: Settings) -> int:
    compiled = compile_source(args, args.file)
    with about(args.file):
        paths = compiled.export(args.out)
    warn(compiled)
    say("\n".join(map(str, paths)))
    return 0
