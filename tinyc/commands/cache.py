"""cache: what tinyc keeps between runs, and how to be rid of it."""

from __future__ import annotations

import argparse
import json

from tinyc.settings import Settings

from .console import say


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = subparsers.add_parser("cache", help="say what is kept between runs, or remove it")
    command.add_argument("--clear", action="store_true", help="remove every entry")
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(command=cache_command)


def cache_command(args: argparse.Namespace, settings: Settings) -> int:
    cache = settings.cache
    if cache is None:
        say(
            json.dumps({"version": 1, "keeps": "off"}) if args.json else "TINYC_CACHE is off: nothing is kept"
        )
        return 0
    found = cache.clear() if args.clear else cache.contents()
    if args.json:
        said = {"folder": str(cache.folder), "keeps": settings.keeps, "most_bytes": cache.most_bytes}
        counted = {"entries": found.entries, "bytes": found.bytes, "cleared": args.clear}
        say(json.dumps({"version": 1, **said, **counted}, indent=1))
        return 0
    were = "were removed from" if args.clear else f"of at most {cache.most_bytes / 1e6:.0f} MB are in"
    say(f"{found.entries} entries, {found.bytes / 1e6:.1f} MB, {were} {cache.folder}")
    if not cache.usable():
        say("which is not used: it cannot be written, or others may write to it")
    return 0
