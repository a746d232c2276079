"""rules: what the rewrite rules are, whether they are true, how they are written, and what they cost."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tinyc.ir.diagnostics import TinycError
from tinyc.settings import Settings

from .compiling import TARGETS
from .console import say, say_table

if TYPE_CHECKING:
    from tinyc.rulecheck.examples import Example
    from tinyc.rulecheck.stats import Stats
    from tinyc.rulecheck.verdict import Verdict

#: the field of a RuleInfo -> its name in JSON ("class" is no Python name)
_FIELDS = {
    "name": "name",
    "ruleset": "ruleset",
    "phase": "phase",
    "klass": "class",
    "default": "default",
    "file": "file",
    "line": "line",
    "equation": "equation",
}


#: by what the tables of stats are sorted -> what comes first
ORDERS = {
    "time": "the most expensive",
    "matches": "those that matched most",
    "growth": "those that added most",
}


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    group = subparsers.add_parser("rules", help="the rewrite rules: list, lint, check, stats").add_subparsers(
        metavar="COMMAND", required=True, dest="rules_command"
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--rules", metavar="F", action="append", default=[], help="a rule file or folder more"
    )
    shared.add_argument("--json", action="store_true", help="as JSON")
    listing = group.add_parser(
        "list", parents=[shared], help="every rule: ruleset, phase, class, place, equation"
    )
    listing.set_defaults(command=list_command)
    lint = group.add_parser(
        "lint",
        parents=[shared],
        help="what is wrong with how rules are written",
        description="Of the rules in FILE, or of tinyc's own. Exits with 1 where there are errors; warnings are no errors.",
    )
    lint.add_argument("file", metavar="FILE", nargs="*", help="a rule file or folder")
    lint.add_argument(
        "--quick", action="store_true", help="do not run the example programs to find rules that never match"
    )
    lint.set_defaults(command=lint_command)
    check = group.add_parser(
        "check",
        parents=[shared],
        help="whether rules are true, with the smallest counterexample found",
        description="Of the rules in FILE, or of tinyc's own. Exits with 1 where one is not sound.",
    )
    check.add_argument("file", metavar="FILE", nargs="*", help="a rule file or folder")
    check.add_argument(
        "--rule", metavar="NAME", action="append", default=[], help="only this rule, or this ruleset"
    )
    check.set_defaults(command=check_command)
    stats = group.add_parser(
        "stats",
        parents=[shared],
        help="matches, time and growth per rule over programs",
        description="Over PROGRAMs, or over the examples, with all rulesets on. Exits with 1 where a rule that matches "
        "nothing costs more than its budget.",
    )
    stats.add_argument("program", metavar="PROGRAM", nargs="*", help="a program file")
    stats.add_argument("--target", choices=TARGETS[1:], default="cpu", help="default: cpu")
    stats.add_argument(
        "--profile", action="store_true", help="run rule by rule: e-nodes are exact (many times as slow)"
    )
    stats.add_argument("--by", choices=ORDERS, default="time", help="what comes first (default: time)")
    stats.set_defaults(command=stats_command)


# ---- list ----


def list_command(args: argparse.Namespace, settings: Settings) -> int:
    from tinyc.egraph.rulefiles import list_rules

    rules = list_rules(_context(args, settings))
    if args.json:
        listed = [
            {_FIELDS[key]: value for key, value in dataclasses.asdict(rule).items() if key in _FIELDS}
            for rule in rules
        ]
        say(json.dumps(listed, indent=1, default=str, ensure_ascii=False))
        return 0
    rows = [
        (
            rule.name,
            rule.ruleset,
            rule.phase,
            rule.klass,
            "on" if rule.default else "off",
            f"{Path(rule.file).name}:{rule.line}",
            rule.equation,
        )
        for rule in rules
    ]
    say_table(("rule", "ruleset", "phase", "class", "default", "at", "equation"), rows, settings.color)
    return 0


def _context(args: argparse.Namespace, settings: Settings) -> tuple[Path, ...]:
    return (*settings.rules, *map(Path, args.rules))


# ---- lint ----


def lint_command(args: argparse.Namespace, settings: Settings) -> int:
    from tinyc.rulecheck.lint import lint_rules

    findings = lint_rules(tuple(map(Path, args.file)), _context(args, settings), examples=not args.quick)
    errors = sum(finding.severity == "error" for finding in findings)
    if args.json:
        found = [dataclasses.asdict(finding) for finding in findings]
        say(json.dumps({"version": 1, "errors": errors, "findings": found}, indent=1, ensure_ascii=False))
    else:
        for finding in findings:
            say(str(dataclasses.replace(finding, file=_near(finding.file))))
        say(f"{_count(errors, 'error')}, {_count(len(findings) - errors, 'warning')}")
    return 1 if errors else 0


def _near(file: str) -> str:
    """A path as it is called from here."""
    path, here = Path(file), Path.cwd().resolve()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file


# ---- check ----


def check_command(args: argparse.Namespace, settings: Settings) -> int:
    from tinyc.egraph.rulefiles import load_rules
    from tinyc.rulecheck.check import check_rules
    from tinyc.rulecheck.verdict import to_json

    context = _context(args, settings)
    extra = (*context, *map(Path, args.file))
    only: list[str] = args.rule
    if args.file and not only:
        known = set(load_rules(context).files)
        only = [str(path) for path in load_rules(extra).files if path not in known]
    verdicts = check_rules(extra, only)
    if args.rule and not verdicts:
        raise TinycError(
            "Usage",
            f"no rule and no ruleset is named {' or '.join(map(repr, args.rule))}",
            "see tinyc rules list",
            at={"value": args.rule[0]},
        )
    if args.json:
        say(to_json(verdicts))
    else:
        _say_verdicts(verdicts, settings.color)
    return 0 if all(verdict.sound for verdict in verdicts) else 1


def _say_verdicts(verdicts: Sequence[Verdict], color: bool) -> None:
    rows = [
        (
            each.rule,
            each.verdict,
            each.klass,
            each.measured,
            "symbolic" if each.symbolic else "sampled" if each.instances else "",
            each.method,
            str(each.instances),
        )
        for each in verdicts
    ]
    say_table(("rule", "verdict", "class", "measured", "how", "method", "instances"), rows, color)
    for each in verdicts:
        if not each.sound or each.notes:
            say(f"\n{Path(each.file).name}:{each.line}: {each}")
    sound = sum(each.sound for each in verdicts)
    symbolic = sum(each.symbolic for each in verdicts)
    rest = len(verdicts) - sound
    say(f"\n{_count(len(verdicts), 'rule')}: {sound} sound ({symbolic} symbolic), {rest} not")


# ---- stats ----


def stats_command(args: argparse.Namespace, settings: Settings) -> int:
    from tinyc.rulecheck.stats import collect

    stats = collect(_programs(args.program, args.target), _context(args, settings), args.profile).sorted(
        args.by
    )
    if args.json:
        say(json.dumps(stats.to_json(), indent=1, ensure_ascii=False))
    else:
        _say_stats(stats, settings.color)
    return 1 if any(rule.over_budget for rule in stats.rules) else 0


def _programs(files: Sequence[str], target: str) -> Iterator[Example]:
    """The programs in ``files``, or the examples, for one target."""
    from tinyc.rulecheck.examples import examples, of_file

    chosen = (of_file(Path(file)) for file in files) if files else examples(small=False)
    for each in chosen:
        yield dataclasses.replace(each, targets=(target,))


def _say_stats(stats: Stats, color: bool) -> None:
    from tinyc.rulecheck.stats import IDLE_BUDGET_S

    added = "e-nodes" if stats.exact else "e-nodes~"
    matched = [rule for rule in stats.rules if rule.matches]
    say(f"{_count(len(stats.programs), 'program')}: how large each grew, the largest first:\n")
    grown = [(each.program, each.target, str(each.enodes), f"{each.time_s:.3f}") for each in stats.programs]
    say_table(("program", "target", "e-nodes", "seconds"), grown, color)
    say("\nPer phase:\n")
    say_table(
        ("phase", "matches", "seconds", added),
        [(name, *_figures(each)) for name, each in stats.phases],
        color,
    )
    say(f"\n{_count(len(matched), 'rule')} that matched, {ORDERS[stats.by]} first:\n")
    rows = [
        (rule.rule, phase, str(rule.programs), *_figures(counts))
        for rule in matched
        for phase, counts in rule.phases.items()
        if counts["matches"] or counts["time_s"] >= 0.001
    ]
    say_table(("rule", "phase", "programs", "matches", "seconds", added), rows, color)
    idle = sorted(
        (rule for rule in stats.rules if not rule.matches), key=lambda each: (-each.time_s, each.rule)
    )
    costly = [rule for rule in idle if rule.time_s >= 0.001]
    say(
        f"\n{_count(len(idle), 'rule')} that matched nothing, {len(costly)} of which took a millisecond or more:\n"
    )
    if costly:
        say_table(("rule", "seconds"), [(rule.rule, f"{rule.time_s:.3f}") for rule in costly], color)
    if not stats.exact:
        say("\n~ where rules ran together, e-nodes are shared out by matches; --profile counts them")
    over = [rule for rule in stats.rules if rule.over_budget]
    for rule in over:
        say(
            f"over budget: {rule.rule} costs {rule.idle_time_s:.3f} s in programs of {rule.idle_enodes} e-nodes in which it "
            f"matches nothing; {IDLE_BUDGET_S} s per 1000 are allowed"
        )
    incomplete = [each.program for each in stats.programs if not each.complete]
    if incomplete:
        say(f"stopped at a budget: {', '.join(incomplete)}")


def _figures(counts: Mapping[str, float]) -> tuple[str, str, str]:
    return str(int(counts["matches"])), f"{counts['time_s']:.3f}", str(round(counts["enodes"]))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
