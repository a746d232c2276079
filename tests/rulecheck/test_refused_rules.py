"""What cannot be tried, or the engine would refuse, is an error that says what is amiss: no skip, no traceback, no guess."""

from __future__ import annotations

import pytest

from tinyc.ir.diagnostics import TinycError
from tinyc.rulecheck.check import check_text, load_base
from tinyc.rulecheck.sorting import ill_sorted

BASE = load_base()

NO_SORT = {
    '(rewrite (Binary "ADD" x (Lit 1)) x {})': "(Lit 1) is of sort Ix",
    '(rewrite (Unary "NEG" x) (TUnary "NEG" x) {})': "x is of sort Expr, and (TUnary",
    '(rule ((= e (Unary "NEG" x)) (= s (shape x))) ((union e x)) {})': "takes Tensor there",
    '(rewrite (Binary "ADD" x (Const "fp32" x)) x {})': "takes i64 there",
    '(rewrite (Shrink x "a" lo hi 1) x {})': "takes i64 there",
    "(rewrite (Unary 3 x) x {})": "takes String there",
    '(rule ((= e (Unary "NEG" x))) ((set (Unary "NEG" x) x)) {})': "which is no function",
    "(rule ((= e (IScale k a))) ((union k 1)) {})": "which are no terms",
    '(rule ((= e (Reduce "MAX" (vec-of 1 2) x))) ((union e x)) {})': "1 is of sort i64",
}

AMISS = {
    '(rewrite (Unary "NEG" x) (Binary "SUB" z x) {})': "speaks of z",
    '(rule ((= e (Cast d x)) (widening d "float32")) ((union e x)) {})': '"float32" stands in no row of widening',
    '(rule ((= e (Unary "NEG" x)) (< 0 (limit-of "shared"))) ((union e x)) {})': '"shared" stands in no row',
    '(rewrite (Binary "ADD" x (Const "i32" b)) x :when ((= b -1)) {})': "-1 are no bits of i32",
    "(rule ((= t (Shrink x a lo hi 1)) (< hi lo)) ((union t x)) {})": "without (< hi lo) there is one",
    "(rule ((= t (Flip x 0)) (= 0 (vec-get (shape x) 0))) ((union t x)) {})": "without (= 0 (vec-get",
    '(relation odd (Expr)) (rule ((= e (Unary "NEG" x)) (odd x)) ((union e x)) {})': "nothing derives odd",
}


def why(text: str) -> str:
    (found,) = check_text(text.replace("{}", ':ruleset identity :name "mine/a"'), BASE)
    assert found.verdict == "error"
    return found.why


@pytest.mark.parametrize("text", NO_SORT)
def test_terms_of_another_sort_are_refused(text: str) -> None:
    assert NO_SORT[text] in why(text)


@pytest.mark.parametrize("text", AMISS)
def test_what_is_amiss_is_named(text: str) -> None:
    assert AMISS[text] in why(text)


def test_no_rule_of_tinycs_is_ill_sorted() -> None:
    assert [rule.name for rule in BASE.rules.values() if list(ill_sorted(rule, BASE))] == []


@pytest.mark.parametrize("text", ["(meaning (loadable x))", "(meaning (Unary op x) x)", "(meaning (low i))"])
def test_what_a_word_of_tinycs_means_is_settled(text: str) -> None:
    with pytest.raises(TinycError, match="settled"):
        check_text(text, BASE)


@pytest.mark.parametrize("said", ["(Gg (Gg x))", "(Hh x)"])
@pytest.mark.parametrize(
    "rule", ["(rewrite (Gg x) x {})", '(rewrite (Unary "NEG" (Unary "NEG" x)) (Gg x) {})']
)
def test_a_meaning_that_says_the_word_itself_is_none(said: str, rule: str) -> None:
    words = "(constructor Gg (Expr) Expr) (constructor Hh (Expr) Expr) (meaning (Hh x) (Gg x))"
    assert "the meaning of Gg says Gg itself" in why(f"{words} (meaning (Gg x) {said}) {rule}")


def test_a_bound_by_the_bounds_of_the_parts_is_true() -> None:
    """Though the values of a sum, or of a multiple, may lie in a smaller range."""
    options = ':ruleset extents :name "mine/a"'
    text = (
        "(rule ((= e (IAdd a b)) (= h (high a)) (= l (high b))) ((set (high e) (+ h (+ {} l)))) "
        + options
        + ")"
    )
    exact, looser, wrong = (check_text(text.replace("{}", more), BASE)[0] for more in ("0", "1", "-1"))
    assert exact.sound and not exact.notes
    assert looser.verdict == wrong.verdict == "unsound"
