"""`tinyc rules lint`: what comes next to a fault and is none, and odd ways to write what is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tinyc
from tinyc.egraph.rulefiles import load_rules
from tinyc.ir.diagnostics import TinycError
from tinyc.rulecheck import parse
from tinyc.rulecheck.lint import Finding, lint_rules

HEAD = '(ruleset mine)\n(in-phase "mine" "algebra" "EXACT" "on")\n'
ODD = '(rewrite (Unary "SIN" (Unary "NEG" x)) (Unary "NEG" (Unary "SIN" x)){} :ruleset mine :name "mine/odd")'
GOOD = f"; sin(-x) == -sin(x), generic\n{ODD.format('')}\n"


def linted(folder: Path, text: str | bytes, name: str = "mine.egg") -> list[Finding]:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(lint_rules([path], examples=False))


def rule(left: str, right: str, more: str = "", name: str = "mine/a") -> str:
    return f'(rewrite {left} {right}{more} :ruleset mine :name "{name}")'


# kind -> what it is not
CLEAN: dict[str, str] = {
    "acts": '; a fact of a relation of its own: a table\n(relation table (String i64))\n(table "run" 3)\n' + GOOD,
    "include": '(include "part.egg")\n' + GOOD,
    "phase": '(phase "later" 55)\n(ruleset late)\n(in-phase "late" "later" "FACT" "off")\n' + GOOD,
    "no-equation": "; of group and rule alike, generic: sin(-x) == -sin(x)\n" + ODD.format(""),
    "large-left-side": "; five constructors, as nothing smaller names both; sin(x) == sin(x), generic\n"
    + rule('(Unary "SIN" (Unary "SQRT" (Unary "SIN" (Unary "SQRT" (Unary "LOG2" x)))))', '(Unary "LOG2" x)'),
    "four constructors": "; a == b, generic\n"
    + rule('(Unary "SIN" (Unary "SQRT" (Unary "SIN" (Unary "LOG2" x))))', '(Unary "LOG2" x)'),
    "no-guard": "; sin(-x) == -sin(x)\n" + ODD.format(' :when ((= "fp32" (dtype-of x)))'),
    "a dtype that a stream has": "; stream(s, w) + stream(s, v) == stream(s, w + v)\n"
    + rule('(Binary "ADD" (Stream k s w c) (Stream k s v c))', '(Stream k s (Binary "ADD" w v) c)'),
    "conditions are bool": "; l <= i < h and m <= i < n == max(l, m) <= i < min(h, n)\n"
    + rule('(Binary "MIN" (Within i l h) (Within i m n))', "(Within i (max l m) (min h n))"),
    "a rank that is looked at": "; x[i, ..] == flip(x)[0, ..]\n"
    + rule("(At (Flip t a) ix)", "(At t (vec-of (Lit 0)))", " :when ((= 1 (vec-length ix)))"),
    "grows": "; sin(sin(x)) == sin(x), generic: it matches what it makes, which is smaller\n"
    + rule('(Unary "SIN" (Unary "SIN" x))', '(Unary "SIN" x)'),
    "rules that undo one another": "; sin(x) == log2(x), generic\n"
    + rule('(Unary "SIN" x)', '(Unary "LOG2" x)')
    + "\n"
    + rule('(Unary "LOG2" x)', '(Unary "SIN" x)', name="mine/b"),
    "shadows": "; a variable that is called like a part of a word; sin(-mines) == -sin(mines), generic\n"
    + ODD.format("").replace(" x)", " mines)"),
    "duplicate": GOOD + "; log2(-x) == -log2(x), generic\n" + ODD.format("").replace("SIN", "LOG2").replace("odd", "cos"),
    "stops": '(ruleset last)\n(in-phase "last" "check" "FACT" "on")\n; nothing = sin(x)\n'
    '(rule ((= e (Unary "SIN" x))) ((panic "a sine")) :ruleset last :name "last/sine")',
}  # fmt: skip


@pytest.mark.parametrize("kind", CLEAN)
def test_what_is_next_to_a_fault_is_none(kind: str, tmp_path: Path) -> None:
    (tmp_path / "part.egg").write_text("; a table\n(relation part (String))\n")
    assert linted(tmp_path, HEAD + CLEAN[kind]) == []


# ---- words that are taken ------------------------------------------------------------------------------------------------

SHORT = {"shape", "dtype", "free", "low", "high", "phase"}
"""Facts of the documentation, and what a rule file is made of."""
TECHNICAL = {"accumulator", "arithmetic", "comparison", "computed", "contracts", "fusible", "loadable"}
TECHNICAL |= {"regroups", "solid", "widening"}
"""No one calls a value so."""


def test_the_words_of_tinycs_own_rules_leave_the_short_ones_to_variables() -> None:
    """The engine refuses a variable that is called like a relation or function: they have names of two words."""
    schema = parse.load()
    words = {*schema.relations, *schema.functions}
    assert {word for word in words if "-" not in word} == SHORT | TECHNICAL


@pytest.mark.parametrize("word", ["shape", "low", "computed", "plan-tile", "index", "Ixs", "Reduce"])
def test_a_variable_that_is_called_like_a_word(word: str, tmp_path: Path) -> None:
    """The finding says what the word is and where it is declared; the engine refuses the rule."""
    text = HEAD + "; sin(-x) == -sin(x), generic\n" + ODD.format("").replace(" x)", f" {word})")
    (finding,) = linted(tmp_path, text)
    assert finding.kind == "shadows" and finding.line == 4
    place = finding.why.split(" of ")[2].split(",")[0]
    file, line = place.split(":")
    declared = (Path(tinyc.__file__).parent / "rules" / file).read_text().splitlines()[int(line) - 1]
    assert word in declared.replace("(", " ").replace(")", " ").split()


@pytest.mark.parametrize("word", ["shape", "index"])
def test_the_engine_refuses_it_and_says_where(word: str, tmp_path: Path) -> None:
    (tmp_path / "mine.egg").write_text(HEAD + ODD.format("").replace(" x)", f" {word})"))
    program = tinyc.trace(lambda x: x + 1.0, tinyc.spec("fp32", (3,)))
    with pytest.raises(TinycError, match=f"{word} is declared already") as caught:
        tinyc.optimize_and_compile(program, rules=[tmp_path / "mine.egg"])
    assert (caught.value.at["line"], caught.value.at["rule"]) == ("3", "mine/odd")


@pytest.mark.parametrize(
    "word", ["size", "core", "key", "width", "top", "one", "zero", "parts", "scores", "machine"]
)
def test_plain_words_are_free(word: str, tmp_path: Path) -> None:
    assert linted(tmp_path, HEAD + GOOD.replace(" x)", f" {word})")) == []


# ---- what belongs to tinyc ---------------------------------------------------------------------------------------------

TAKEN = {
    '(in-phase "identity" "algebra" "REAL-ONLY" "off")\n': ("class", "algebra.egg"),
    '(phase "check" 1)\n': ("phase", "90"),
    '(in-phase "mine" "reduce" "EXACT" "on")\n': ("class", "mine.egg:2"),
}


@pytest.mark.parametrize("line", TAKEN)
def test_a_ruleset_joins_one_phase_and_a_phase_has_one_number(line: str, tmp_path: Path) -> None:
    kind, word = TAKEN[line]
    (finding,) = linted(tmp_path, HEAD + line)
    assert (finding.kind, finding.line) == (kind, 3) and word in finding.why
    with pytest.raises(TinycError, match=word):
        load_rules([tmp_path / "mine.egg"])


# ---- rules that feed one another -----------------------------------------------------------------------------------------

ONE = "; sin(x) == log2(x * x), generic\n" + rule(
    '(Unary "SIN" x)', '(Unary "LOG2" (Binary "MUL" x x))', name="mine/one"
)
TWO = "; log2(x) == sin(x + x), generic\n" + rule(
    '(Unary "LOG2" x)', '(Unary "SIN" (Binary "ADD" x x))', name="mine/two"
)


def test_two_rules_that_feed_one_another_grow(tmp_path: Path) -> None:
    assert linted(tmp_path, HEAD + ONE) == [] and linted(tmp_path, HEAD + TWO) == []
    found = linted(tmp_path, f"{HEAD}{ONE}\n{TWO}\n{GOOD}")
    assert [(each.kind, each.rule) for each in found] == [("grows", "mine/one"), ("grows", "mine/two")]
    assert "mine/two" in found[0].why and "mine/one" in found[1].why


# ---- odd ways to write -----------------------------------------------------------------------------------------------------

ODDLY: dict[str, str | bytes] = {
    "nothing": "",
    "a comment alone": "; (rule",
    "blank lines": "\n \n\t\n",
    "lines that end as in Windows": (HEAD + GOOD).replace("\n", "\r\n").encode(),
    "lines that end as in old files": (HEAD + GOOD).replace("\n", "\r").encode(),
    "a semicolon in a string": HEAD + GOOD.replace("mine/odd", "mine/; odd").replace("generic", "; generic"),
    "parentheses in strings and comments": HEAD
    + GOOD.replace("mine/odd", "mine/(odd").replace("; sin", "; ))) sin"),
    "an escaped quote": HEAD + GOOD.replace("mine/odd", 'mine/\\"odd'),
    "words in other scripts": (HEAD + GOOD).replace("mine", "правило").replace(" x)", " 变量)"),
    "all on one line": (HEAD + "\n; sin(-x) == -sin(x), generic\n").replace("\n(in", " (in") + ODD.format(""),
    "a comment inside": HEAD + GOOD.replace('(Unary "NEG" (Unary', '(Unary "NEG" ; here (\n  (Unary'),
}


@pytest.mark.parametrize("what", ODDLY)
def test_it_may_be_written_so(what: str, tmp_path: Path) -> None:
    assert linted(tmp_path, ODDLY[what]) == []


COMPILED = [
    "nothing",
    "lines that end as in Windows",
    "lines that end as in old files",
    "words in other scripts",
]


@pytest.mark.parametrize("what", COMPILED)
def test_and_it_does_what_it_says(what: str, tmp_path: Path) -> None:
    content = ODDLY[what]
    (tmp_path / "mine.egg").write_bytes(content if isinstance(content, bytes) else content.encode())
    program = tinyc.trace(lambda x: (-x).sin() + 1.0, tinyc.spec("fp32", (3,)))
    compiled = tinyc.optimize_and_compile(program, rules=[tmp_path / "mine.egg"])
    x = np.array([0.0, 1.0, -2.0], np.float32)
    np.testing.assert_allclose(compiled(x=x), 1.0 - np.sin(x), rtol=1e-6, atol=1e-6)
    assert any(rule.rule.endswith("/odd") and rule.matches for rule in compiled.report.rules) == bool(content)


TRICKED = {
    "right to left": "\u202e",
    "an isolate": "\u2066",
    "a line separator": "\u2028",
    "a C1 control": "\x85",
}


@pytest.mark.parametrize("what", TRICKED)
def test_characters_that_hide_what_a_file_says(what: str, tmp_path: Path) -> None:
    """One in a comment could show a rule in it, or hide one."""
    (finding,) = linted(tmp_path, f"{HEAD}; sin {TRICKED[what]} cos\n{GOOD}")
    assert (finding.kind, finding.line) == ("text", 3) and "character" in finding.why


# ---- what the engine refuses, or what never matches ------------------------------------------------------------------------

AMISS = {
    rule('(Binary "ADD" x (Lit 1))', "x", ' :when ((= "fp32" (dtype-of x)))'): "refused",
    rule('(Unary "NEG" x)', "x", ' :when ((= "fp32" (dtype x)))'): "refused",
    rule('(Unary "NEG" x)', '(Binary "SUB" y x)', ' :when ((= "fp32" (dtype-of x)))'): "refused",
    rule("(Cast d x)", "x", ' :when ((= "fp16" (dtype-of x)) (widening d "float32"))'): "misspelt",
    rule('(Cast "fp16" x)', "x", ' :when ((< 0 (limit-of "shared-memory")))'): "misspelt",
    rule('(Cast "fp16" x)', "x", ' :when ((target-machine "sm08"))'): "misspelt",
    rule('(Binary "MUL" x (Const "fp16" b))', "x", " :when ((= b 1065353216))"): "misspelt",
}
SPELLED = {
    rule('(Reduce "MAX" (vec-of a b) x)', '(Reduce "MAX" (vec-of a) (Reduce "MAX" (vec-of b) x))'),
    rule("(Reshape x (vec-append s (vec-of 1)))", "(Reshape (Reshape x s) (vec-push s 1))"),
    rule("(Cast d x)", "x", " :when ((= d (dtype-of x)) (float-dtype d))"),
}


@pytest.mark.parametrize("text", AMISS)
def test_sorts_and_words_are_looked_at_without_the_engine(text: str, tmp_path: Path) -> None:
    assert [each.kind for each in linted(tmp_path, f"{HEAD}; a == b\n{text}\n")] == [AMISS[text]]


@pytest.mark.parametrize("text", sorted(SPELLED))
def test_vectors_and_tables_that_are_right_are_no_fault(text: str, tmp_path: Path) -> None:
    assert linted(tmp_path, f"{HEAD}; a == b, generic\n{text}\n") == []


# ---- several files -------------------------------------------------------------------------------------------------------


def test_names_and_rulesets_of_several_files(tmp_path: Path) -> None:
    one, two = tmp_path / "one.egg", tmp_path / "two.egg"
    one.write_text(HEAD + GOOD)
    two.write_text(HEAD + GOOD.replace("SIN", "SQRT"))
    found = lint_rules([one, two], examples=False)
    assert {each.file for each in found} == {str(two)}
    assert {each.kind for each in found} == {"shadows", "class", "name-taken"}
    assert lint_rules([two], examples=False) == ()


def test_a_file_that_is_given_twice_is_read_once(tmp_path: Path) -> None:
    one = tmp_path / "one.egg"
    one.write_text(HEAD + GOOD)
    (tmp_path / "link.egg").symlink_to(one)
    assert lint_rules([one, tmp_path, one, tmp_path / "link.egg"], examples=False) == ()
