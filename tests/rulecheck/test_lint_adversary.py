"""Whatever a rule file holds, `rules lint` has findings about it: no traceback, no hang, no memory filled."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tinyc.cli import main
from tinyc.egraph import forms
from tinyc.egraph.rulefiles import load_rules
from tinyc.ir.diagnostics import TinycError
from tinyc.rulecheck.lint import Finding, lint_rules

HEAD = '(ruleset m)\n(in-phase "m" "algebra" "EXACT" "on")\n'
NEG = '(Unary "NEG" '


def nested(depth: int) -> str:
    left = NEG * depth + "x" + ")" * depth
    return f'{HEAD}; a == b, generic\n(rewrite {left} x :ruleset m :name "m/d")'


TEXTS: dict[str, str | bytes] = {
    "parentheses that do not match": f'{HEAD}(rewrite {NEG}x) x :ruleset m :name "m/a"\n(rewrite {NEG}y)) y))\n)\n(',
    "a quote that is never closed": f'{HEAD}(rule ((= e (Unary "NEG x))) ((union e x)) :ruleset m :name "m/q")',
    "junk": random.Random(0).randbytes(4000),
    "another encoding": "; café".encode("latin-1"),
    "nul bytes": f"{HEAD}\0\0(rule",
    "ten megabytes": b"(" * 10_000_000,
    "a megabyte of opened forms": b"(\n" * 400_000,
    "a megabyte of closed ones": b")" * 900_000,
    "ninety thousand deep": "(" * 90_000 + ")" * 90_000,
    "two hundred deep": nested(200),
    "ninety deep": nested(90),
    "a byte-order mark": f"\ufeff{HEAD}",
    "itself": '(include "it.egg")',
    "files elsewhere": '(include "../../../etc/passwd")\n(include "/etc/passwd")\n(include)\n(include "")',
    "declarations cut short": "(phase)\n(phase 1 2 3)\n(in-phase)\n(ruleset)\n(relation)\n(sort)\n(datatype)\n(function)\n"
    "(constructor)\n(datatype* 3)\n(meaning)\n(meaning x)\n(include)\n()\n(3)\n((a b))",
    "a phase too many": '(phase "z" 99999999999999999999)\n(in-phase "r" "nophase" "EXACT" "on")',
    "rules cut short": f"{HEAD}(rule)\n(rewrite)\n(birewrite)\n"
    + "\n".join(
        f'{rule} :ruleset m :name "m/{n}")'
        for n, rule in enumerate(
            [
                "(rule x y",
                "(rewrite",
                "(rule (x) (y)",
                "(rewrite 1.5 2.5",
                "(rewrite () ()",
                "(rule ((= e (Unary)) (=)) ((union e) (let) (let 3 4) (set) (set 3 4) (set (shape)))",
                "(rule ((vec-get) (+ 1) (< 1) (!= 1)) ((union x x))",
                "(rule ((= e (Const d (/ 1 0)))) ((Const d (/ 1 0)))",
                "(rule ((= e (Const d b)) (= c (<< b 9999999999))) ((Const d (<< c 99999999999)))",
                "(rule ((= e (Const d b)) (= c (* b 99999999999999999999999))) ((Const d c))",
                "(rule ((= v (vec-range 1065353216))) ((union (Ravel v v 1) (Lit 0)))",
                f"(birewrite {NEG}x) x) :when 3",
            ]
        )
    ),
    "a rule of two thousand facts": f"{HEAD}; a == b, generic\n(rule ("
    + " ".join(f"(= e{n} {NEG}x{n}))" for n in range(2000))
    + ') ((union e1 e2)) :ruleset m :name "m/wide")',
    "thirty rules that feed one another": HEAD
    + "".join(
        f'; sin(x) == cos(x + {n}), generic\n(rule ((= e (Unary p (Binary "ADD" x (Const d n)))) (= f (Unary q y)) (= z (+ n {n})))'
        f' ((union e (Unary "LOG2" (Binary "ADD" f (Const d z))))) :ruleset m :name "m/{n}")\n'
        for n in range(30)
    ),
    "a name that is no string": f'{HEAD}; a == b, generic\n(rewrite {NEG}(Unary "SIN" x)) x :ruleset m :name name)',
    "a number too large": f'{HEAD}; a == b\n(rewrite {NEG}x) (Const "i32" {10**30}) :ruleset m :name "m/n")',
    "another encoding of all of it": HEAD.encode("utf-16"),
    "what stops the run": "(run 100000000)\n(run-schedule (repeat 99999999 (saturate (run))))\n(exit)\n(quit)\n(fail (run 1))\n"
    '(check (= 1 2))\n(query-extract (Lit 1))\n(print-function Reduce 10)\n(push 99999999)',
    "files in a rule": f'{HEAD}; a = b\n(rule ((= e {NEG}x))) ((input t "/etc/passwd") (output "x" e) (exit)) :ruleset m :name "m/f")',
    "six hundred rules": HEAD
    + "".join(f'; a == b, generic\n(rewrite {NEG}(Unary "SIN" x)) {NEG}x) :ruleset m :name "m/{n}")\n' for n in range(600)),
}  # fmt: skip


SLOW = ("ninety deep", "six hundred rules", "thirty rules that feed one another")


def linted(folder: Path, content: str | bytes) -> tuple[Finding, ...]:
    path = folder / "it.egg"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return lint_rules([path], examples=False)


@pytest.mark.parametrize("what", TEXTS)
def test_there_are_findings_and_each_has_a_place(what: str, tmp_path: Path) -> None:
    found = linted(tmp_path, TEXTS[what])
    assert found
    assert {finding.file for finding in found} <= {str(tmp_path / "it.egg"), str(tmp_path)}
    assert all(finding.line >= 1 and finding.why and finding.suggestion for finding in found)
    assert all(len(finding.why) < 500 for finding in found)


@pytest.mark.parametrize("what", [what for what in TEXTS if what not in SLOW])
def test_what_lint_calls_an_error_is_not_loaded(what: str, tmp_path: Path) -> None:
    """Where it is the text or a declaration that is wrong; the engine judges the rest."""
    kinds = {finding.kind for finding in linted(tmp_path, TEXTS[what])}
    if kinds & {
        "text",
        "acts",
        "unreadable",
        "include",
        "phase",
        "class",
        "unnamed",
        "ruleset",
        "name-taken",
    }:
        with pytest.raises(TinycError):
            load_rules([tmp_path / "it.egg"])
    else:
        load_rules([tmp_path / "it.egg"])


def test_reading_ends_after_a_few_forms_that_are_never_closed(tmp_path: Path) -> None:
    assert len(linted(tmp_path, b"(\n" * 1000)) == forms.MAX_UNCLOSED
    assert len(linted(tmp_path, ")\n" * 1000)) == forms.MAX_FAULTS


def test_a_file_may_have_the_most_bytes_but_no_more(tmp_path: Path) -> None:
    assert linted(tmp_path, b" " * forms.MAX_BYTES) == ()
    (finding,) = linted(tmp_path, b" " * (forms.MAX_BYTES + 1))
    assert finding.kind == "unreadable" and "1 MiB" in finding.why


# ---- what is no file ---------------------------------------------------------------------------------------------------


def loop(folder: Path) -> Path:
    (folder / "loop.egg").symlink_to("loop.egg")
    return folder / "loop.egg"


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.egg")
    return folder / "pipe.egg"


def folder_like_a_file(folder: Path) -> Path:
    (folder / "folder.egg").mkdir()
    return folder / "folder.egg"


def link_out(folder: Path) -> Path:
    """A link in the folder to a file outside of it."""
    (folder / "inner").mkdir()
    (folder / "secret.egg").write_text("(relation secret (i64))\n")
    (folder / "inner" / "link.egg").symlink_to("../secret.egg")
    (folder / "inner" / "all.egg").write_text('(include "link.egg")\n')
    return folder / "inner" / "all.egg"


def cycle(folder: Path) -> Path:
    for one, other in ("ab", "bc", "ca"):
        (folder / f"{one}.egg").write_text(f'(include "{other}.egg")\n')
    return folder / "a.egg"


PLACES: dict[str, Callable[[Path], Path]] = {
    "a link to itself": loop,
    "a pipe that nobody writes to": pipe,
    "an empty folder": folder_like_a_file,
    "endless zeros": lambda folder: Path("/dev/zero"),
    "nothing": lambda folder: folder / "nothing.egg",
    "a nul byte": lambda folder: folder / "a\0b.egg",
    "a name too long": lambda folder: folder / ("x" * 5000),
    "a link that leads out": link_out,
    "a circle of includes": cycle,
}


@pytest.mark.parametrize("what", PLACES)
def test_what_cannot_be_read_is_a_finding_and_an_error(what: str, tmp_path: Path) -> None:
    path = PLACES[what](tmp_path)
    (finding,) = lint_rules([path], examples=False)
    assert finding.kind in ("unreadable", "include") and finding.severity == "error"
    with pytest.raises(TinycError) as caught:
        load_rules([path])
    assert caught.value.kind in ("FileUnreadable", "RuleFileInvalid")


def test_a_long_chain_of_includes(tmp_path: Path) -> None:
    for n in range(200):
        (tmp_path / f"f{n}.egg").write_text(f'(include "f{n + 1}.egg")\n')
    (finding,) = lint_rules([tmp_path / "f0.egg"], examples=False)
    assert finding.kind == "include" and "more than" in finding.why


# ---- the command -------------------------------------------------------------------------------------------------------


def test_the_command_says_so_and_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "it.egg"
    path.write_bytes(random.Random(1).randbytes(3000))
    assert main(["rules", "lint", str(path)]) == 1
    shown = capsys.readouterr()
    assert shown.err == "" and "1 error, 0 warnings" in shown.out
    path.write_text(")\n(" * 50)
    assert main(["rules", "lint", "--json", str(path)]) == 1
    assert json.loads(capsys.readouterr().out)["errors"] > 1
