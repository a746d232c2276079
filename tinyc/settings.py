"""What the environment says. The one module that reads it; everyone else is handed values.

``docs/environment.md`` shows :data:`VARIABLES` as a table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tinyc.cache import Cache
from tinyc.ir.diagnostics import TinycError


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable that tinyc reads: its name, what holds without it, and what it does."""

    name: str
    default: str
    meaning: str


VARIABLES = (
    Variable("TINYC_CACHE_DIR", "`~/.cache/tinyc`", "folder for what tinyc keeps between runs"),
    Variable(
        "TINYC_CACHE",
        "`all`",
        "what is kept and read there: `all`; `code`, what NVRTC makes, but no optimised programs; `off`, nothing",
    ),
    Variable("TINYC_CACHE_MB", "`1024`", "megabytes that it may take, at least 1"),
    Variable("TINYC_NUM_THREADS", "the cores this process may use", "threads of a CPU kernel, at least 1"),
    Variable(
        "TINYC_EXTRACT_SECONDS",
        "`30`",
        "wall time of the exact search for the cheapest kernels; `0`: the greedy choice is taken",
    ),
    Variable("TINYC_RULES", "none", "extra rule files or folders, separated by `:` (`;` on Windows)"),
    Variable("TINYC_DEBUG", "`0`", "`1`: errors on the command line also show the traceback"),
    Variable("NO_COLOR", "unset", "anything: plain text, also on a terminal"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The environment, checked. ``rules``: existing files or folders. ``num_threads`` >= 1. ``extract_seconds`` >= 0.
    ``cache_bytes`` > 0. ``keeps``: "all", "code" or "off"."""

    cache_dir: Path
    cache_bytes: int
    keeps: str
    num_threads: int
    extract_seconds: float
    rules: tuple[Path, ...]
    debug: bool
    color: bool

    @property
    def cache(self) -> Cache | None:
        """Where machine code is kept."""
        return None if self.keeps == "off" else Cache(self.cache_dir / "compiled", self.cache_bytes)

    @property
    def program_cache(self) -> Cache | None:
        """Where optimised programs are kept."""
        return self.cache if self.keeps == "all" else None


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of ``environ`` (default: this process's). An empty value counts as unset.

    Raises TinycError InvalidSetting, whose ``at`` names the variable, for a value that it cannot have.
    """
    env = os.environ if environ is None else environ
    return Settings(
        cache_dir=_cache_dir(env.get("TINYC_CACHE_DIR", "")),
        cache_bytes=_cache_megabytes(env.get("TINYC_CACHE_MB", "")) * 10**6,
        keeps=_keeps(env.get("TINYC_CACHE", "")),
        num_threads=_num_threads(env.get("TINYC_NUM_THREADS", "")),
        extract_seconds=_extract_seconds(env.get("TINYC_EXTRACT_SECONDS", "")),
        rules=_rules(env.get("TINYC_RULES", "")),
        debug=debug_wanted(env),
        color=not env.get("NO_COLOR"),
    )


def debug_wanted(environ: Mapping[str, str] | None = None) -> bool:
    """Whether TINYC_DEBUG is 1. Read apart, because it must work while the other variables are wrong."""
    text = (os.environ if environ is None else environ).get("TINYC_DEBUG", "")
    if text not in ("", "0", "1"):
        raise _invalid("TINYC_DEBUG", f"{text!r} is neither 0 nor 1", "set it to 1, or unset it")
    return text == "1"


def _cache_dir(text: str) -> Path:
    path = _path("TINYC_CACHE_DIR", text or "~/.cache/tinyc")
    if not path.is_absolute():
        # a relative one would be another folder after every chdir
        raise _invalid("TINYC_CACHE_DIR", f"{text!r} is not an absolute path", "set it to an absolute path")
    return path


def _cache_megabytes(text: str) -> int:
    if not re.fullmatch("([1-9][0-9]{0,8})?", text, re.ASCII):
        why = f"{text!r} is not a number of megabytes from 1 to 999999999"
        raise _invalid("TINYC_CACHE_MB", why, "set it to 1024, or unset it")
    return int(text or 1024)


def _keeps(text: str) -> str:
    if text not in ("", "all", "code", "off"):
        raise _invalid("TINYC_CACHE", f"{text!r} is none of all, code and off", "set it to all, or unset it")
    return text or "all"


def _num_threads(text: str) -> int:
    if not text:
        return usable_cores()
    if not re.fullmatch("[1-9][0-9]{0,3}", text):
        why = f"{text!r} is not an integer from 1 to 9999"
        raise _invalid("TINYC_NUM_THREADS", why, f"set it to {usable_cores()}, or unset it")
    return int(text)


def _extract_seconds(text: str) -> float:
    if not re.fullmatch(r"([0-9]{1,6}(\.[0-9]{0,6})?)?", text, re.ASCII):
        why = f"{text!r} is not a number of seconds from 0 to 999999"
        raise _invalid("TINYC_EXTRACT_SECONDS", why, "set it to 30, or unset it")
    return float(text or 30)


def usable_cores() -> int:
    """The cores that the scheduler grants this process; all of the machine's where it cannot say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _rules(text: str) -> tuple[Path, ...]:
    paths = tuple(_path("TINYC_RULES", part) for part in text.split(os.pathsep) if part)
    for path in paths:
        if not path.exists():
            why = f"there is no file or folder {str(path)!r}"
            raise _invalid("TINYC_RULES", why, "correct the path, or unset it")
    return paths


def _path(name: str, text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # there is no home folder to put in the place of ~
        raise _invalid(name, f"{text!r}: {error}", "write the path without ~") from error


def _invalid(name: str, why: str, suggestion: str) -> TinycError:
    return TinycError("InvalidSetting", why, suggestion, {"variable": name})
