"""Rules of a user's, true and false, with words of their own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tinyc.rulecheck.check import check_rules, check_text, load_base
from tinyc.rulecheck.verdict import Verdict, to_json, to_text

BASE = load_base()
RULES = Path(__file__).parent.parent / "rules"


def verdict(text: str, klass: str = "EXACT") -> Verdict:
    """Of the last rule in a text."""
    return check_text(text.replace(":named", ':ruleset identity :name "mine/rule"'), BASE, klass)[-1]


SOUND: dict[str, tuple[str, str]] = {
    # text, class
    "relu of a maximum": ('(rewrite (Unary "RELU" (Binary "MAX" x y)) (Binary "MAX" (Unary "RELU" x) (Unary "RELU" y)) :named)', "EXACT"),
    "x - x in integers": ('(rewrite (Binary "SUB" x x) (Const "i32" 0) :when ((= "i32" (dtype-of x))) :named)', "EXACT"),
    "associativity of i32": ('(rewrite (Binary "ADD" (Binary "ADD" x y) z) (Binary "ADD" x (Binary "ADD" y z)) :when ((= "i32" (dtype-of x))) :named)', "EXACT"),
    "associativity of fp32": ('(rewrite (Binary "ADD" (Binary "ADD" x y) z) (Binary "ADD" x (Binary "ADD" y z)) :when ((= "fp32" (dtype-of x))) :named)', "REASSOC"),
    "a power of a sum": ('(rewrite (Binary "MUL" (Unary "EXP2" x) (Unary "EXP2" y)) (Unary "EXP2" (Binary "ADD" x y)) :when ((= "fp32" (dtype-of x))) :named)', "REAL-ONLY"),
    "a reciprocal twice": ('(rewrite (Unary "RECIP" (Unary "RECIP" x)) x :when ((= "fp32" (dtype-of x))) :named)', "REAL-ONLY"),
    "permute back": ("(rewrite (Permute (Permute x p q) q p) x :named)", "EXACT"),
    "reshape twice": ("(rewrite (Reshape (Reshape x s) t) (Reshape x t) :named)", "EXACT"),
    "flip twice": ("(rewrite (Flip (Flip x a) a) x :named)", "EXACT"),
    "where of one value": ("(rewrite (TWhere c x x) x :when ((= s (shape x))) :named)", "EXACT"),
    "a reduction of a maximum": ('(rewrite (Reduce "MAX" k (Binary "MAX" x y)) (Binary "MAX" (Reduce "MAX" k x) (Reduce "MAX" k y)) :when ((= "fp32" (dtype-of x))) :named)', "EXACT"),
    "an index in two steps": ("(rewrite (IScale a (IScale b x)) (IScale (* a b) x) :named)", "EXACT"),
    "a select under a select": ("(rewrite (Select c (Select c x y) z) (Select c x z) :named)", "EXACT"),
    "a buffer of its own elements": (
        "(rule ((= b (Fill d s (Read a ix))) (= ix (axes-upto 0 s (vec-length s))) (= b (Alias s a))) ((union b (Alias s a))) :named)", "EXACT"),
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
def test_a_true_rule_is_sound(name: str) -> None:
    text, klass = SOUND[name]
    found = verdict(text, klass)
    assert found.sound and found.instances > 0, str(found)


WRONG: dict[str, tuple[str, str]] = {
    # text, class
    "relu of a minimum of sums": ('(rewrite (Unary "RELU" (Binary "ADD" x y)) (Binary "ADD" (Unary "RELU" x) (Unary "RELU" y)) :named)', "REAL-ONLY"),
    "x - x in floats": ('(rewrite (Binary "SUB" x x) (Const "fp32" 0) :when ((= "fp32" (dtype-of x))) :named)', "BOUNDED"),
    "x * 0": ('(rule ((= e (Binary "MUL" x c)) (= c (Const "fp32" 0))) ((union e c)) :named)', "BOUNDED"),
    "associativity in any class": ('(rewrite (Binary "ADD" (Binary "ADD" x y) z) (Binary "ADD" x (Binary "ADD" y z)) :when ((= "fp32" (dtype-of x))) :named)', "EXACT"),
    "associativity in fp16": ('(rewrite (Binary "ADD" (Binary "ADD" x y) z) (Binary "ADD" x (Binary "ADD" y z)) :named)', "REASSOC"),
    "softmax without its maximum": ('(rewrite (Unary "EXP2" (Binary "SUB" x y)) (Binary "FDIV" (Unary "EXP2" x) (Unary "EXP2" y)) :when ((= "fp32" (dtype-of x))) :named)', "BOUNDED"),
    "a distribution that is none": ('(rewrite (Binary "MUL" x (Binary "ADD" y z)) (Binary "ADD" (Binary "MUL" x y) z) :named)', "REAL-ONLY"),
    "permute twice": ("(rewrite (Permute (Permute x p q) p q) x :named)", "EXACT"),
    "a flip of another axis": ("(rewrite (Flip (Flip x a) b) x :named)", "EXACT"),
    "swapped branches": ("(rewrite (Select c x y) (Select c y x) :named)", "EXACT"),
    "a sum of a maximum": ('(rewrite (Reduce "SUM" k (Binary "MAX" x y)) (Binary "MAX" (Reduce "SUM" k x) (Reduce "SUM" k y)) :when ((= "fp32" (dtype-of x))) :named)', "REAL-ONLY"),
    "a bound that is too tight": ("(rule ((= e (Plus c x r)) (= a (atom-high x)) (= b (high r))) ((set (high e) (+ (* c a) b))) :named)", "EXACT"),
    "axes forgotten": ('(rule ((= e (Binary op x y)) (= s (free x))) ((set (free e) s)) :named)', "EXACT"),
    "a class that says nothing": ('(rewrite (Unary "NEG" (Unary "NEG" x)) x :named)', "FACT"),
    "a primitive that fails in an action": ("(rule ((= e (At t ix))) ((set (top-axis (vec-get ix 0)) 0)) :named)", "EXACT"),
    "a panic at a good program": ('(rule ((= e (Unary "RELU" x))) ((panic "no relu")) :named)', "EXACT"),
    "a reduction over no axes": ('(rule ((= e (Reduce op k x))) ((union e (Reduce op (vec-of (Lit 3)) x))) :named)', "EXACT"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_false_rule_has_a_counterexample(name: str) -> None:
    text, klass = WRONG[name]
    found = verdict(text, klass)
    assert found.verdict == "unsound" and found.counterexample is not None, str(found)
    shown = str(found.counterexample)
    assert "true:" in shown and "claimed:" in shown and found.counterexample.variables


OWN = """
(relation halved (Expr Expr))
{meaning}
(rule ((= e (Binary "MUL" x (Const "fp32" {half})))) ((halved e x)) :ruleset identity :name "mine/halved")
(rule ((halved e x) (= y (Binary "ADD" e e))) ((union y x)) :ruleset identity :name "mine/rule")
"""
MEANING = '(meaning (halved e x) (= e (Binary "MUL" x (Const "fp32" 1056964608))))'  # 0.5


@pytest.mark.parametrize("meaning", ["", MEANING], ids=["unfolded", "declared"])
def test_a_relation_of_ones_own(meaning: str) -> None:
    halved, rule = check_text(OWN.format(meaning=meaning, half=1056964608), BASE, "BOUNDED")
    assert halved.sound and rule.sound, f"{halved}\n{rule}"
    assert (halved.method == "unfolded") is (not meaning)


def test_with_a_meaning_the_rule_that_breaks_it_is_the_one_that_is_wrong() -> None:
    halved, rule = check_text(OWN.format(meaning=MEANING, half=1048576000), BASE, "BOUNDED")  # 0.25
    assert halved.verdict == "unsound" and rule.sound
    halved, rule = check_text(OWN.format(meaning="", half=1048576000), BASE, "BOUNDED")
    assert halved.sound and rule.verdict == "unsound"


FUNCTION = """
(function rank (Tensor) i64 :no-merge)
(meaning (= n (rank t)) (= n (vec-length (shape t))))
(rule ((= t (Reshape x s))) ((set (rank t) {value})) :ruleset identity :name "mine/rank")
"""


def test_a_function_of_ones_own() -> None:
    assert check_text(FUNCTION.format(value="(vec-length s)"), BASE)[-1].sound
    assert check_text(FUNCTION.format(value="(- (vec-length s) 1)"), BASE)[-1].verdict == "unsound"


CONSTRUCTOR = """
(constructor Square (Expr) Expr)
(meaning (Square x) (Binary "MUL" x x))
(rewrite (Square (Unary "NEG" x)) (Square {right}) :ruleset identity :name "mine/square")
"""


def test_a_constructor_of_ones_own() -> None:
    assert check_text(CONSTRUCTOR.format(right="x"), BASE)[-1].sound
    assert check_text(CONSTRUCTOR.format(right='(Unary "RELU" x)'), BASE)[-1].verdict == "unsound"


def test_a_false_fact_is_found() -> None:
    (found,) = check_text('(widening "fp32" "fp16")', BASE)
    assert found.verdict == "unsound" and "widening" in str(found)


def test_the_smallest_counterexample_is_small() -> None:
    text = '(rewrite (Reduce "SUM" k (Binary "MUL" a b)) (Binary "MUL" (Reduce "SUM" k a) (Reduce "SUM" k b)) :named)'
    found = verdict(text, "REAL-ONLY")
    assert found.counterexample is not None
    values = dict(found.counterexample.variables)
    assert "k" in values and values["k"].count("Ax") == 1, values


@pytest.mark.parametrize("file", ["powers.egg", "silu.egg"])
def test_the_rules_of_the_examples_are_sound(file: str) -> None:
    found = check_rules([RULES / file], only=[file])
    assert found and all(each.sound for each in found), "\n".join(map(str, found))


def test_the_rule_of_the_readme_is_sound() -> None:
    text = (RULES.parent.parent / "rules" / "README.md").read_text(encoding="utf-8")
    (rule,) = (
        block for block in re.findall(r"```egg\n(.*?)```", text, re.DOTALL) if "(ruleset logarithm)" in block
    )
    (found,) = check_text(rule, BASE)
    assert found.sound and found.klass == "BOUNDED", str(found)


def test_verdicts_as_json_and_as_text() -> None:
    wrong = verdict(*WRONG["swapped branches"])
    document = json.loads(to_json([wrong]))
    assert document["sound"] is False and document["rules"][0]["counterexample"]["why"]
    text = to_text([wrong])
    assert "unsound" in text and "1 rules: 0 sound" in text


LARGE = {
    "a false equation": '(rule ((= e (Const "fp32" b))) ((union e (Read (Fill "fp32" (vec-of 9999 9999) (Const "fp32" 0)) (vec-of (Lit 0) (Lit 0))))) :named)',
    "a true bound": "(rule ((= e (Plus 1 (Ax 0 999) (Plus 1 (Ax 1 999) (Lit 0))))) ((set (low e) 0)) :named)",
}


@pytest.mark.parametrize("name", LARGE)
def test_what_is_too_large_to_evaluate_is_neither_true_nor_false(name: str) -> None:
    """No instance of it was judged."""
    found = verdict(LARGE[name])
    assert found.verdict == "error" and "no instance" in found.why, str(found)


def test_rows_of_a_file_are_checked_with_its_rules(tmp_path: Path) -> None:
    path = tmp_path / "mine.egg"
    path.write_text('(widening "fp32" "fp16")\n', encoding="utf-8")
    (found,) = check_rules([path], only=[str(path)])
    assert found.verdict == "unsound" and found.rule == '(widening "fp32" "fp16")'


# ---- rules that would take for ever, or say nothing --------------------------------------------------------------------

ENDLESS = {
    "a huge vector": "(rule ((= t (Flip x a)) (= v (vec-range 100000000))) ((union t (Reshape x v)))",
    "a huge axis": '(rule ((= t (TReduce "MAX" 1 (Expand (Expand (Expand x 0 300) 1 300) 2 300)))) ((union t t))',
    "powers of powers": '(rule ((= e (Binary "POW" (Binary "POW" (Binary "POW" (Binary "POW" x a) b) c) d)) (= "fp32" (dtype-of x)))'
    " ((union e x))",
    "a term of terms that repeat": '(rule ((= x0 (Binary "ADD" y y)) '
    + " ".join(f'(= x{k + 1} (Binary "MUL" x{k} x{k}))' for k in range(24))
    + ') ((union x24 (Unary "NEG" y)))',
    "too many applications": "(rule ("
    + " ".join(f'(= x{k} (Unary "NEG" x{k + 1}))' for k in range(3000))
    + ") ((union x0 x2))",
    "a variable of no sort": "(rule ((= x x)) ((union x x))",
    "a misspelt operator": '(rewrite (Unary "NEGATE" (Unary "NEGATE" x)) x',
    "a misspelt dtype": '(rewrite (Unary "NEG" (Unary "NEG" x)) x :when ((= "float32" (dtype-of x)))',
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_every_rule_ends_with_a_verdict(kind: str) -> None:
    (found,) = check_text(f'{ENDLESS[kind]} :ruleset identity :name "mine/a")', BASE)
    assert not found.sound and "the checker fails" not in found.why


def test_words_that_are_defined_by_each_other_have_no_meaning() -> None:
    text = """(constructor Aa (Expr) Expr) (constructor Bb (Expr) Expr)
(rewrite (Aa x) (Bb x) :ruleset identity :name "mine/ab")
(rewrite (Bb x) (Aa x) :ruleset identity :name "mine/ba")
"""
    assert {each.why for each in check_text(text, BASE)} == {
        f"nothing derives {word}, which its body asks for, and a (meaning ({word} …) …) is missing"
        for word in ("Aa", "Bb")
    }


def test_a_merge_that_invents_values_is_no_ground_for_a_rule() -> None:
    text = """(function divided-by (Ix) i64 :merge (* old new))
(rule ((= e (IScale k a)) (> k 0)) ((set (divided-by e) k)) :ruleset index :name "mine/scaled")
(rule ((= n (divided-by a)) (> n 0) (= e (IScale n (IDiv a n)))) ((union e a)) :ruleset index :name "mine/undone")
"""
    scaled, undone = check_text(text, BASE)
    assert scaled.sound and undone.verdict == "error" and "no rule said" in undone.why


def test_rows_of_the_machine_are_tinycs_own(tmp_path: Path) -> None:
    path = tmp_path / "rows.egg"
    path.write_text(
        '(warp-threads "sm80" 31)\n(reduction-neutral "MAX" "fp32" 0)\n(reduction-neutral "MAX" "bool" 0)\n'
    )
    found = {each.rule: each.verdict for each in check_rules([path], only=[str(path)])}
    assert found == {
        '(warp-threads "sm80" 31)': "unsound",
        '(reduction-neutral "MAX" "fp32" 0)': "unsound",
        '(reduction-neutral "MAX" "bool" 0)': "sound",
    }
