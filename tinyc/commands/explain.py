"""explain: how a program became what runs, rule by rule."""

from __future__ import annotations

import argparse

from tinyc.settings import Settings

from .compiling import FILE, about, compile_options, compile_source
from .console import say


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = subparsers.add_parser(
        "explain",
        parents=[compile_options()],
        help="the steps from the naive program to the extracted one, each one rule, each checked",
        description="From the naive program to the extracted one: each step one rule at one place, with what stood there "
        "before and after, tried on random inputs. Status 1 where a step is wrong or missing.",
    )
    command.add_argument("file", metavar="FILE", help=FILE)
    command.add_argument("--kernel", metavar="NAME", help="of one kernel, or of the buffer that it fills")
    command.add_argument("--rule", metavar="RULE", help="the steps of one rule, such as movement/reduce")
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(command=explain_file)


def explain_file(args: argparse.Namespace, settings: Settings) -> int:
    """Status 1 where a step is wrong or something is not explained."""
    compiled = compile_source(args, args.file)
    with about(args.file):
        explanation = compiled.explain(args.kernel, args.rule)
    say((explanation.to_json() if args.json else str(explanation)).rstrip("\n"))
    return 0 if explanation.explained and explanation.checked else 1
