"""draw: a program, its kernels or the chosen e-classes as text for Graphviz or Mermaid."""

from __future__ import annotations

import argparse

from tinyc.settings import Settings

from .compiling import FILE, about, compile_options, compile_source
from .console import say

WHAT = ("program", "regions", "classes")
FORMS = ("dot", "mermaid")


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = subparsers.add_parser("draw", parents=[compile_options()], help="draw a program or its kernels")
    command.add_argument(
        "what", choices=WHAT, help="the uops, the kernels, or the e-classes they were chosen from"
    )
    command.add_argument("file", metavar="FILE", help=FILE)
    command.add_argument("--form", choices=FORMS, default="dot", help="default: dot")
    command.add_argument("--limit", type=_count, default=150, metavar="N", help="nodes (default: 150)")
    command.set_defaults(command=draw_file)


def draw_file(args: argparse.Namespace, settings: Settings) -> int:
    compiled = compile_source(args, args.file, partial=args.what == "program")
    with about(args.file):
        text = compiled.draw(args.what, args.form, args.limit)
    say(text.rstrip("\n"))
    return 0


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 9 and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer >= 1")
    return int(text)
