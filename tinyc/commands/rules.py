"""rules list: every rule the engine would run, with its equation."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from tinyc.settings import Settings

from .console import say, say_table

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


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    group = subparsers.add_parser("rules", help="the rewrite rules").add_subparsers(
        metavar="COMMAND", required=True, dest="rules_command"
    )
    command = group.add_parser("list", help="every rule: ruleset, phase, class, place, equation")
    command.add_argument(
        "--rules", metavar="F", action="append", default=[], help="a rule file or folder more"
    )
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(command=list_command)


def list_command(args: argparse.Namespace, settings: Settings) -> int:
    from tinyc.egraph.rulefiles import list_rules

    rules = list_rules((*settings.rules, *map(Path, args.rules)))
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
