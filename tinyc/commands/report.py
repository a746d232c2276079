"""report: what was chosen, what it costs and why; of two reports, what moved."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tinyc.ir.diagnostics import TinycError
from tinyc.settings import Settings

from .compiling import FILE, TARGETS, binding, compile_options, compile_source
from .console import say
from .files import write_files

if TYPE_CHECKING:
    from tinyc.extract.report.report import ExtractionReport

#: what differs on the other side of a comparison: option -> the argument that it stands for
SIDES = {
    "vs_target": "target",
    "vs_rules": "rules",
    "vs_without": "without",
    "vs_also": "also",
    "vs_shape": "shape",
}


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = subparsers.add_parser(
        "report",
        parents=[compile_options()],
        help="what was chosen, what it costs, and why; of two, what moved",
        description="FILE and OTHER are programs, or reports that --json wrote. With OTHER, or with a --vs option "
        "(FILE once more, compiled otherwise), what moved from the first to the second.",
    )
    command.add_argument("file", metavar="FILE", help=f"{FILE}; or a report")
    command.add_argument("other", metavar="OTHER", nargs="?", help="a second one, to compare it with")
    command.add_argument("--profile", action="store_true", help="run rule by rule: e-nodes per rule (slower)")
    command.add_argument(
        "--ablate",
        action="store_true",
        help="leave out each rule in turn: what it is worth (tens of seconds)",
    )
    command.add_argument(
        "--quick", action="store_true", help="without what takes time to work out: decisions and survivors"
    )
    command.add_argument("--json", action="store_true", help="as JSON")
    command.add_argument(
        "--html", metavar="OUT", type=Path, help="write one HTML page that needs nothing else"
    )
    group = command.add_argument_group("the other side of a comparison: OTHER, or FILE again")
    group.add_argument("--vs-target", choices=TARGETS)
    group.add_argument("--vs-shape", metavar="M=150", type=binding, action="append", default=[])
    group.add_argument(
        "--vs-rules", metavar="F", action="append", default=[], help="a rule file or folder more"
    )
    group.add_argument(
        "--vs-without", metavar="R", action="append", default=[], help="leave out a ruleset or a rule"
    )
    group.add_argument(
        "--vs-also", metavar="R", action="append", default=[], help="add one that is off by default"
    )
    command.set_defaults(command=report_file)


def report_file(args: argparse.Namespace, settings: Settings) -> int:
    changed = {name: getattr(args, option) for option, name in SIDES.items() if getattr(args, option)}
    if args.other is not None or changed:
        if args.html:
            raise TinycError(
                "Usage", "--html writes one report, and two are compared", "leave one of them out"
            )
        return _compare(args, changed)
    report = _report(args, args.file)
    if args.html:
        write_files({args.html: report.to_html(Path(args.file).name).encode()})
        say(str(args.html))
    if args.json:
        say(report.to_json())
    elif not args.html:
        say(str(report))
    return 0


def _compare(args: argparse.Namespace, changed: dict[str, Any]) -> int:
    from tinyc.extract.report.compare import compare_reports

    other = args.other or args.file
    second = argparse.Namespace(**{**vars(args), **changed})
    first = _report(args, args.file)
    names = (args.file, other if args.other else f"{other} {_words(changed)}")
    found = compare_reports(first, _report(second, other), names)
    say(found.to_json() if args.json else str(found))
    return 0


def _words(changed: dict[str, Any]) -> str:
    """The options of the other side, as they are given."""
    said = []
    for name, value in changed.items():
        for each in value if isinstance(value, list) else [value]:
            said.append(f"--{name} {'='.join(map(str, each)) if isinstance(each, tuple) else each}")
    return " ".join(said)


def _report(args: argparse.Namespace, file: str) -> ExtractionReport:
    """The report in ``file``, or of the program in it."""
    from tinyc.extract.report.to_json import from_json, is_report
    from tinyc.frontend.load import naming, read_document

    document = read_document(Path(file))
    if not is_report(document):
        compiled = compile_source(args, file, profile=args.profile)
        report = compiled.ablated() if args.ablate else compiled.report
        return report.quick() if args.quick else report
    if args.profile or args.ablate:
        why = f"{file} is a report already: nothing is compiled"
        raise TinycError("Usage", why, "give the program, or leave out --profile and --ablate")
    with naming(Path(file)):
        report = from_json(document)
    return report.quick() if args.quick else report
