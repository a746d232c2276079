"""`tinyc rules lint`: every kind of finding on a rule that has that fault alone, and none on rules that have none."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import tinyc
from tinyc.rulecheck.examples import Example
from tinyc.rulecheck.lint import KINDS, Finding, lint_rules

HEAD = '(ruleset mine)\n(in-phase "mine" "algebra" "EXACT" "on")\n'
"""Two lines; what follows starts on the third."""

GOOD = """; sin(x) * 1 == sin(x), fp32
(rule ((= e (Binary "MUL" (Unary "SIN" x) (Const "fp32" 1065353216)))) ((union e (Unary "SIN" x)))
  :ruleset mine :name "mine/good")
"""


def linted(folder: Path, text: str, examples: bool = False) -> list[Finding]:
    path = folder / "mine.egg"
    path.write_text(text, encoding="utf-8")
    return list(lint_rules([path], examples=examples))


# kind -> text after the head, line of the finding, rule, a word of the reason
CASES: dict[str, tuple[str, int, str, str]] = {
    "unnamed": ('; -x == x, generic\n(rewrite (Unary "NEG" x) (Unary "SIN" x) :ruleset mine)', 4, "", ":name"),
    "ruleset": (
        '; -x == sin(x), generic\n(rewrite (Unary "NEG" x) (Unary "SIN" x) :ruleset other :name "mine/a")',
        4,
        "",
        "other",
    ),
    "name-taken": (f"{GOOD}\n; a == b, generic\n"
                   '(rewrite (Unary "NEG" x) (Unary "SIN" x) :ruleset mine :name "mine/good")', 8, "", "mine/good"),
    "text": ("rewrite (x)", 3, "", "expected a form"),
    "acts": ('(output "file" (Lit 1))', 3, "", "output"),
    "include": ('(include "../elsewhere.egg")', 3, "", "outside of its folder"),
    "unreadable": ('(include "missing.egg")', 1, "", "missing.egg"),
    "phase": ('(phase "late" soon)', 3, "", "number"),
    "class": ('(in-phase "mine" "algebra" "FAST" "on")', 3, "", "EXACT"),
    "malformed": ('; a == b, generic\n(rewrite (Unary "NEG" x) :ruleset mine :name "mine/half")', 4, "mine/half", "rewrite"),
    "no-equation": (
        '; this makes it faster, generic\n(rewrite (Unary "NEG" x) (Unary "SIN" x) :ruleset mine :name "mine/a")',
        4,
        "mine/a",
        "left == right",
    ),
    "large-left-side": (
        '; a == b, generic\n(rewrite (Unary "SIN" (Unary "NEG" (Unary "SIN" (Unary "NEG" (Unary "SQRT" x)))))'
        ' (Unary "SQRT" x) :ruleset mine :name "mine/a")',
        4,
        "mine/a",
        "5 constructors",
    ),
    "no-guard": (
        '; -sin(x) == sin(-x)\n(rewrite (Unary "NEG" (Unary "SIN" x)) (Unary "SIN" (Unary "NEG" x))'
        ' :ruleset mine :name "mine/a")',
        4,
        "mine/a",
        "dtype",
    ),
    "grows": (
        '; exp2(x) == exp2(x / 2) * exp2(x / 2)\n(rewrite (Unary "EXP2" x)\n'
        '  (Binary "MUL" (Unary "EXP2" (Binary "MUL" x (Const "fp32" 1056964608)))'
        ' (Unary "EXP2" (Binary "MUL" x (Const "fp32" 1056964608))))\n'
        '  :when ((= "fp32" (dtype-of x))) :ruleset mine :name "mine/a")',
        4,
        "mine/a",
        "never ends",
    ),
    "shadows": (
        '; sin(-x) == -sin(x), generic\n(rewrite (Unary "SIN" (Unary "NEG" mine)) (Unary "NEG" (Unary "SIN" mine))'
        ' :ruleset mine :name "mine/a")',
        4,
        "mine/a",
        "ruleset",
    ),
    "duplicate": (
        '; -(-y) == y, generic\n(rule ((= f (Unary "NEG" y)) (= g (Unary "NEG" f))) ((union y g))'
        ' :ruleset mine :name "mine/a")',
        4,
        "mine/a",
        "identity/negate-twice",
    ),
    "reorders": (
        '; (x + y) + z == x + (y + z), generic\n(rewrite (Binary "ADD" (Binary "ADD" x y) z)'
        ' (Binary "ADD" x (Binary "ADD" y z)) :ruleset mine :name "mine/a")',
        4,
        "mine/a",
        "x, y, z",
    ),
    "stops": (
        '; no sines: nothing = sin(x)\n(rule ((= e (Unary "SIN" x))) ((panic "a sine")) :ruleset mine :name "mine/a")',
        4,
        "mine/a",
        "panic",
    ),
    "removes": (
        '; sin(-x) == -sin(x), generic\n(rewrite (Unary "SIN" (Unary "NEG" x)) (Unary "NEG" (Unary "SIN" x))'
        ' :subsume :ruleset mine :name "mine/a")',
        4,
        "mine/a",
        "takes a term out",
    ),
    "misspelt": (
        '; max(x, -1) == -x, fp16\n(rewrite (Binary "MAX" x (Const "fp16" -1)) (Unary "NEG" x) :ruleset mine :name "mine/a")',
        4,
        "mine/a",
        "no bits of fp16",
    ),
    "merges": ("(function times (Expr) i64 :merge (* old new))", 3, "", "which no rule said"),
    "refused": (
        '; -x == sin(x), generic\n(rewrite (Unary "NEG" x) (Unary "SIN" x x) :ruleset mine :name "mine/a")',
        4,
        "mine/a",
        "2 arguments",
    ),
}  # fmt: skip


def test_every_kind_has_a_case_and_a_code_of_its_own() -> None:
    assert set(CASES) | {"never-matched"} == set(KINDS)
    codes = [kind.code for kind in KINDS.values()]
    assert sorted(codes) == sorted(set(codes))
    assert all(kind.suggestion for kind in KINDS.values())


def test_a_good_rule_has_no_findings(tmp_path: Path) -> None:
    assert linted(tmp_path, HEAD + GOOD) == []


@pytest.mark.parametrize("kind", CASES)
def test_a_fault_is_found_where_it_is(kind: str, tmp_path: Path) -> None:
    text, line, rule, word = CASES[kind]
    found = linted(tmp_path, HEAD + text + "\n")
    assert {finding.kind for finding in found} == {kind}
    finding = found[0]
    assert (finding.line, finding.rule, finding.code) == (line, rule, KINDS[kind].code)
    assert word in finding.why and finding.suggestion
    assert Path(finding.file).name == ("missing.egg" if kind == "unreadable" else "mine.egg")


def test_all_faults_of_a_file_are_listed_in_order(tmp_path: Path) -> None:
    """Not the first alone, as where the rules are used."""
    kinds = ("acts", "no-equation", "unnamed", "grows", "shadows", "phase")
    rules = "\n\n".join(CASES[kind][0].replace("mine/a", f"mine/a{kind}") for kind in kinds)
    found = linted(tmp_path, f"{HEAD}{rules}\n\n{GOOD}")
    assert {finding.kind for finding in found} >= set(kinds)
    assert [finding.line for finding in found] == sorted(finding.line for finding in found)
    assert not any(finding.rule == "mine/good" for finding in found)


@pytest.mark.spec("004-086")
def test_tinycs_own_rules_have_no_findings() -> None:
    """With the examples: every rule matches in one of them."""
    assert [str(finding) for finding in lint_rules()] == []


# ---- guards --------------------------------------------------------------------------------------------------------

SINE = '(rewrite (Unary "NEG" (Unary "SIN" x)) (Unary "SIN" (Unary "NEG" x)){} :ruleset mine :name "mine/a")'
GUARDED = {
    "declared by the rule": "; -sin(x) == sin(-x), generic\n" + SINE.format(""),
    "a dtype-of": "; -sin(x) == sin(-x)\n" + SINE.format(' :when ((= "fp32" (dtype-of x)))'),
    "a table of dtypes": "; -sin(x) == sin(-x)\n"
    + SINE.format(" :when ((= d (dtype-of x)) (float-dtype d))"),
    "a relation whose rules have one": """
; small(x) if x is a constant of fp32
(relation small (Expr))
(rule ((= x (Const "fp32" b))) ((small x)) :ruleset mine :name "mine/small")
; -sin(x) == sin(-x)
"""
    + SINE.format(" :when ((small x))"),
    "nothing computed": "; x[ix] == flip(flip(x))[ix]\n(rewrite (At (Flip (Flip t a) a) ix) (At t ix)"
    ' :ruleset mine :name "mine/a")',
    "facts alone": "; lonely(sin(x)) if x = anything\n(relation lonely (Expr))\n"
    '(rule ((= e (Unary "SIN" x))) ((lonely e)) :ruleset mine :name "mine/a")',
}
UNGUARDED = {
    "nothing": "; -sin(x) == sin(-x)\n" + SINE.format(""),
    "a relation one of whose rules has none": GUARDED["a relation whose rules have one"].replace(
        '(rule ((= x (Const "fp32" b)))',
        '(rule ((= x (Unary "NEG" y))) ((small x)) :ruleset mine :name "mine/more")\n(rule ((= x (Const "fp32" b)))',
    ),
    "an operator for a dtype": "; -sin(x) == sin(-x)\n" + SINE.format(' :when ((!= x (Unary "NEG" x)))'),
    "a place in a vector": '; x[i] == x[j]\n(rewrite (At (Flip t a) ix) (At t (vec-set ix 1 (Lit 0)))'
    ' :ruleset mine :name "mine/a")',
    "a word that is no declaration": "; -sin(x) == sin(-x), generically\n" + SINE.format(""),
}  # fmt: skip


@pytest.mark.parametrize("what", GUARDED)
def test_what_counts_as_a_guard(what: str, tmp_path: Path) -> None:
    assert [finding.kind for finding in linted(tmp_path, HEAD + GUARDED[what])] == []


@pytest.mark.parametrize("what", UNGUARDED)
def test_what_does_not(what: str, tmp_path: Path) -> None:
    assert {finding.kind for finding in linted(tmp_path, HEAD + UNGUARDED[what])} == {"no-guard"}


def test_a_ruleset_can_be_declared_generic(tmp_path: Path) -> None:
    head = HEAD.replace("(ruleset", "; generic: signs move, nothing is rounded\n(ruleset")
    assert linted(tmp_path, head + "\n; -sin(x) == sin(-x)\n" + SINE.format("")) == []


# ---- equations -------------------------------------------------------------------------------------------------------

FACT = '(relation odd (Expr))\n(rule ((= e (Unary "SIN" x))) ((odd e)) :ruleset mine :name "mine/a")'
EQUATIONS = {
    "; odd(e) if e = sin(x)": True,
    "; odd(sin(x)) = true": True,
    "; 0 <= odd(x)": True,
    "; ---- odd functions ----": False,
    "; about sines": False,
    "; if": False,
    ";": False,
    "": False,
    "; odd(e) if e = sin(x)\n": False,
}


@pytest.mark.parametrize("comment", EQUATIONS)
def test_what_a_fact_has_for_an_equation(comment: str, tmp_path: Path) -> None:
    found = linted(tmp_path, f"{HEAD}\n{comment}\n{FACT}\n")
    assert [finding.kind for finding in found] == ([] if EQUATIONS[comment] else ["no-equation"])


@pytest.mark.parametrize("comment", ["; ==", "; sin(x) ==", "; == x", "; sin(x) = x"])
def test_what_is_no_equation_of_two_terms(comment: str, tmp_path: Path) -> None:
    text = GOOD.replace("; sin(x) * 1 == sin(x), fp32", comment)
    assert [finding.kind for finding in linted(tmp_path, HEAD + text)] == ["no-equation"]


# ---- duplicates ------------------------------------------------------------------------------------------------------

SAME = [
    '(rewrite (Binary "MUL" (Unary "SIN" x) (Unary "SQRT" y)) (Unary "SIN" (Binary "ADD" x y)) :when ((> 3 2) (= "fp32" (dtype-of x)))',
    '(rule ((= r (Binary "MUL" p q)) (= q (Unary "SQRT" b)) (= p (Unary "SIN" a)) (= (dtype-of a) "fp32") (< 2 3))'
    ' ((union (Unary "SIN" (Binary "ADD" a b)) r))',
    '(rule ((= "fp32" (dtype-of a)) (< 2 3) (= r (Binary "MUL" (Unary "SIN" a) (Unary "SQRT" b))))'
    ' ((let s (Binary "ADD" a b)) (let t (Unary "SIN" s)) (union r t))',
]
OTHER = [
    SAME[0].replace('(Binary "ADD" x y)', '(Binary "ADD" y x)'),
    SAME[0].replace("(> 3 2)", "(> 2 3)"),
    SAME[0].replace("dtype-of x", "dtype-of y"),
    SAME[0].replace("fp32", "fp16"),
    SAME[0].replace('(Unary "SQRT" y)', '(Unary "SQRT" x)').replace("x y", "x x"),
]


@pytest.mark.parametrize(("one", "two"), list(itertools.permutations(range(len(SAME)), 2)))
def test_names_order_and_nesting_make_no_other_rule(one: int, two: int, tmp_path: Path) -> None:
    text = "".join(f'\n; a == b\n{SAME[n]} :ruleset mine :name "mine/r{n}")\n' for n in (one, two))
    found = linted(tmp_path, HEAD + text)
    assert [(finding.kind, finding.rule) for finding in found] == [("duplicate", f"mine/r{two}")]


@pytest.mark.parametrize("number", range(len(OTHER)))
def test_rules_that_differ_are_no_duplicates(number: int, tmp_path: Path) -> None:
    text = "".join(
        f'\n; a == b\n{rule} :ruleset mine :name "mine/r{n}")\n'
        for n, rule in enumerate((SAME[0], OTHER[number]))
    )
    assert linted(tmp_path, HEAD + text) == []


# ---- reordering --------------------------------------------------------------------------------------------------------

REORDERS = {
    '(rewrite (Binary "MAX" x y) (Binary "MAX" y x)': True,
    '(rewrite (TBinary "ADD" x y) (TBinary "ADD" y x)': True,
    '(rewrite (Binary op x y) (Binary op y x)': True,
    '(birewrite (Binary "ADD" (Binary "ADD" x y) z) (Binary "ADD" x (Binary "ADD" y z))': True,
    '(rewrite (Binary "ADD" x (Unary "NEG" y)) (Binary "SUB" x y)': False,
    '(rewrite (Binary "ADD" x x) (Binary "MUL" x x)': False,
    '(rewrite (Binary "SUB" (Binary "ADD" x y) y) (Binary "ADD" x y)': False,
}  # fmt: skip


@pytest.mark.parametrize("rule", REORDERS)
def test_general_commutativity_and_associativity(rule: str, tmp_path: Path) -> None:
    found = linted(tmp_path, f'{HEAD}; a == b, generic\n{rule} :ruleset mine :name "mine/a")\n')
    assert ("reorders" in {finding.kind for finding in found}) == REORDERS[rule]


# ---- examples ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def one_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a square root and a sine in it: the rules of a user that match in none of all take as long as all of them."""
    program = tinyc.trace(lambda x: x.sqrt() + (x.sin() * 1.0), tinyc.spec("fp32", (4,)))
    monkeypatch.setattr("tinyc.rulecheck.stats.examples", lambda: [Example("roots", program, small=True)])


UNUSED = '; log2(x) == sin(x), fp32\n(rewrite (Unary "LOG2" x) (Unary "SIN" x) :when ((= "fp32" (dtype-of x))) :ruleset mine :name "mine/a")'


def test_a_rule_that_never_matches_is_a_warning(one_example: None, tmp_path: Path) -> None:
    used = UNUSED.replace("LOG2", "SQRT").replace("log2", "sqrt").replace("mine/a", "mine/used")
    excused = UNUSED.replace("fp32\n", "fp32 (no example: no program has a logarithm)\n").replace(
        "mine/a", "mine/excused"
    )
    found = linted(tmp_path, f"{HEAD}{UNUSED}\n\n{used}\n\n{excused}\n", examples=True)
    assert [(f.kind, f.rule, f.severity, f.line) for f in found if f.kind != "duplicate"] == [
        ("never-matched", "mine/a", "warning", 4)
    ]


def test_what_the_engine_refuses_is_a_finding(one_example: None, tmp_path: Path) -> None:
    """Of another sort: only the engine knows."""
    wrong = GOOD.replace('((union e (Unary "SIN" x)))', "((union e (Lit 3)))")
    found = linted(tmp_path, HEAD + wrong, examples=True)
    assert [(f.kind, f.rule, f.line) for f in found] == [("refused", "mine/good", 4)]


def test_a_rule_that_stops_the_engine_is_a_finding(one_example: None, tmp_path: Path) -> None:
    text = '; sqrt(x) == true, fp32\n(rule ((= e (Unary "SQRT" x)) (= "fp32" (dtype-of x))) ((union e (Const "bool" 1))) :ruleset mine :name "mine/a")'
    found = linted(tmp_path, HEAD + text, examples=True)
    assert [(f.kind, f.rule) for f in found] == [("refused", "mine/a")]


# ---- what is linted ------------------------------------------------------------------------------------------------------


def test_files_of_the_context_are_not_looked_at(tmp_path: Path) -> None:
    """They are there: mine.egg uses what base.egg declares."""
    (tmp_path / "base.egg").write_text('(relation odd (Expr))\n(rule () () :name "base/bad")\n')
    mine = tmp_path / "mine.egg"
    mine.write_text(
        f'{HEAD}; odd(e) if e = sin(x)\n(rule ((= e (Unary "SIN" x))) ((odd e)) :ruleset mine :name "mine/a")\n'
    )
    assert lint_rules([mine], [tmp_path / "base.egg"], examples=False) == ()
    (refused,) = lint_rules([mine], examples=False)
    assert "odd" in refused.why


@pytest.mark.parametrize(
    "line",
    [
        "(relation mine (Expr))",
        "(ruleset identity)",
        "(sort Unary)",
        "(function shape (Tensor) i64 :no-merge)",
    ],
)
def test_a_word_that_is_declared_twice(line: str, tmp_path: Path) -> None:
    (finding,) = linted(tmp_path, f"{HEAD}{line}\n")
    assert (finding.kind, finding.line) == ("shadows", 3) and line.split()[1].strip(")") in finding.why


def test_a_folder_and_what_it_includes(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "part.egg").write_text(HEAD + CASES["stops"][0])
    (tmp_path / "all.egg").write_text('(include "inner/part.egg")\n')
    (finding,) = lint_rules([tmp_path], examples=False)
    assert finding.kind == "stops" and finding.file.endswith("part.egg")


# ---- what a guard, a merge or a dtype hides ----------------------------------------------------------------------------

REORDERED = (
    '(rewrite (Binary "ADD" x y) (Binary "ADD" y x) :when ((= "fp32" (dtype-of x)))',
    '(rule ((= e (Binary "ADD" x s)) (= s (Binary "ADD" y z)) (= d (dtype-of x)) (accumulator d))'
    ' ((union e (Binary "ADD" (Binary "ADD" x y) z)))',
    '(rule ((= e (TBinary "MAX" x y)) (= d (dtype x))) ((let r (TBinary "MAX" y x)) (union e r))',
)
ORDERED = (
    '(rule ((= e (Binary "ADD" c x)) (is-one c)) ((union e (Binary "ADD" x c)))',
    '(rewrite (Binary "ADD" (Const "fp32" b) x) (Binary "ADD" x (Const "fp32" b))',
    '(rewrite (Binary "MAX" x (Binary "MAX" x y)) (Binary "MAX" x y) :when ((= "fp32" (dtype-of x)))',
)


@pytest.mark.parametrize("rule", (*REORDERED, *ORDERED))
def test_a_guard_of_dtypes_does_not_hide_that_a_rule_only_reorders(rule: str, tmp_path: Path) -> None:
    found = linted(tmp_path, f'{HEAD}; a == b, generic\n{rule} :ruleset mine :name "mine/a")\n')
    assert [each.kind for each in found] == (["reorders"] if rule in REORDERED else [])


@pytest.mark.parametrize(
    ("merge", "value", "grows"),
    [
        ("max", "(+ n 1)", True),
        ("min", "(- n 1)", True),
        ("min", "(+ n 1)", False),
        ("max", "(min 40 (+ n 1))", False),
    ],
)
def test_a_value_that_is_set_again_and_again(merge: str, value: str, grows: bool, tmp_path: Path) -> None:
    text = f"""{HEAD}(function size-of (Tensor) i64 :merge ({merge} old new))
; size-of(input) = 1
(rule ((= t (Input i))) ((set (size-of t) 1)) :ruleset mine :name "mine/first")
; size-of(t) = another if n
(rule ((= n (size-of t))) ((set (size-of t) {value})) :ruleset mine :name "mine/next")
"""
    assert [(each.kind, each.rule) for each in linted(tmp_path, text)] == (
        [("grows", "mine/next")] if grows else []
    )


def test_a_ruleset_that_is_real_only_is_off(tmp_path: Path) -> None:
    (finding,) = linted(tmp_path, '(ruleset mine)\n(in-phase "mine" "algebra" "REAL-ONLY" "on")\n')
    assert (finding.kind, finding.line) == ("class", 2) and "off by default" in finding.why
    assert linted(tmp_path, '(ruleset mine)\n(in-phase "mine" "algebra" "REAL-ONLY" "off")\n') == []
