"""Rule files as the checker reads them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tinyc.egraph.numerals import with_bits, with_numbers
from tinyc.egraph.rulefiles import list_rules, load_rules, texts_of
from tinyc.egraph.vocabulary import VOCABULARY
from tinyc.ir.diagnostics import TinycError
from tinyc.rulecheck import predicates
from tinyc.rulecheck.check import check_rules, check_text, load_base
from tinyc.rulecheck.parse import Call, Lit, Rule, Schema, Var, declare, read, rules_of, variables
from tinyc.rulecheck.plan import expand
from tinyc.rulecheck.primitives import LIMIT, Fails, compute
from tinyc.rulecheck.steps import KNOWN, VALUES

BASE = load_base()


def rule_of(text: str) -> Rule:
    (tree,) = read(text)
    assert isinstance(tree, list)
    return rules_of(tree, "x.egg", 1)[0]


def test_every_rule_is_read_and_spelled_as_it_is_written() -> None:
    written = {rule.name: rule for rule in list_rules()}
    assert set(written) == {rule.name for rule in BASE.rules.values()}
    for rule in BASE.rules.values():
        assert not rule.problem and rule.line == written[rule.name].line
        again = rule_of(
            f"(rule ({' '.join(map(str, rule.body))}) ({' '.join(map(str, rule.actions))})"
            f' :ruleset {rule.ruleset} :name "{rule.name}")'
        )
        assert (again.body, again.actions) == (rule.body, rule.actions)


def test_the_words_are_those_of_the_vocabulary() -> None:
    for each in VOCABULARY.constructors:
        assert BASE.constructors[each.name].args == each.args
        assert BASE.constructors[each.name].result == each.result
    for each in VOCABULARY.functions:
        assert BASE.functions[each.name].args == each.args
    for each in VOCABULARY.relations:
        assert BASE.relations[each.name].args == each.args
    assert {ruleset.name: ruleset.klass for ruleset in load_rules().rulesets} == BASE.classes


@pytest.mark.spec("004-105")
def test_every_relation_and_function_declares_what_it_asserts() -> None:
    """But for tables of a machine, which assert what the rows say."""
    told = set(BASE.meanings) | KNOWN
    tables = {relation for relation in BASE.facts if relation not in told}
    assert set(BASE.functions) <= told
    assert set(BASE.relations) - told <= tables
    assert frozenset(predicates.VALUES) == VALUES


def test_a_rewrite_is_a_rule_and_a_birewrite_two() -> None:
    one = rule_of(
        '(rewrite (Unary "NEG" (Unary "NEG" x)) x :when ((= "i32" (dtype-of x))) :ruleset r :name "r/a")'
    )
    assert str(one.body[0]) == '(= _root (Unary "NEG" (Unary "NEG" x)))' and len(one.body) == 2
    assert str(one.actions[0]) == "(union _root x)"
    (tree,) = read('(birewrite (Unary "NEG" x) (Binary "SUB" z x) :ruleset r :name "r/b")')
    assert isinstance(tree, list)
    assert [rule.direction for rule in rules_of(tree, "x.egg", 1)] == ["=>", "<="]


def test_wildcards_are_variables_of_their_own() -> None:
    rule = rule_of('(rule ((= e (Binary _ _ _))) ((union e e)) :ruleset r :name "r/a")')
    assert len(variables(rule.body)) == 4


def test_strings_numbers_and_comments() -> None:
    assert read('(a "b ) ; c" -3) ; (d') == [["a", '"b ) ; c"', "-3"]]
    rule = rule_of('(rule ((= e (Const "fp32" -3))) ((union e e)) :ruleset r :name "r/a")')
    call = rule.body[0].args[1]
    assert isinstance(call, Call) and call.args == (Lit("fp32"), Lit(-3))


def test_equal_variables_are_one_and_meanings_take_their_place() -> None:
    rule = rule_of('(rule ((row-maximum m k s) (= s t)) ((union m m)) :ruleset r :name "r/a")')
    (case,) = expand(BASE, rule.body)
    assert case.names["s"] == case.names["t"]
    assert [step.head for step in case.steps if step.kind == "term"] == ["Reduce"]
    assert case.sorts["m"] == "Expr" and case.sorts["k"] == "Ixs"


def test_a_relation_without_a_meaning_is_unfolded() -> None:
    schema = BASE.copy()
    declare(schema, "(relation doubled (Expr Expr))", "x.egg", 1)
    declare(
        schema,
        '(rule ((= e (Binary "ADD" x x))) ((doubled e x)) :ruleset identity :name "mine/doubled")',
        "x.egg",
        2,
    )
    rule = rule_of('(rule ((doubled e x)) ((union e e)) :ruleset identity :name "mine/use")')
    (case,) = expand(schema, rule.body)
    assert case.unfolded == ("mine/doubled",)
    assert [step.head for step in case.steps] == ["Binary"]
    assert case.steps[0].args[1] == case.steps[0].args[2]
    assert isinstance(case.names["x"], Var)


BAD: dict[str, str] = {
    "declared nowhere": "((= e (Frobnicate x)))",
    "takes 2 arguments": '((= e (Unary "NEG")))',
    "floating-point number": "((= e (Const 1.5 0)))",
    "no fact and no action": "(e)",
    "does not bind": "((= e (Const d b)))",
}


@pytest.mark.parametrize("why", BAD)
def test_a_rule_that_cannot_be_read_is_an_error_and_no_skip(why: str) -> None:
    text = f'(rule {BAD[why]} ((union e y)) :ruleset identity :name "mine/a")'
    (verdict,) = check_text(text, BASE)
    assert verdict.verdict == "error" and why in verdict.why, verdict


def test_a_meaning_that_is_none_is_refused_with_its_line() -> None:
    for text in (
        "(meaning)",
        "(meaning (nothing-such x))",
        "(meaning (is-one c d))",
        "(meaning (is-one c) c)",
    ):
        with pytest.raises(TinycError, match="RuleFileInvalid"):
            declare(Schema(relations=dict(BASE.relations)), text, "x.egg", 3)


def test_primitives_are_the_engines() -> None:
    def of(head: str, *args: object) -> object:
        return compute(head, args, lambda name, given: (name, *given))

    assert [of("/", -7, 2), of("%", -7, 2), of("/", 7, -2), of("%", 7, -2)] == [-3, -1, -3, 1]
    assert of("unstable-vec-map", of("unstable-fn", "+", 2), (1, 2)) == (3, 4)
    assert of("unstable-vec-map", of("unstable-fn", "vec-get", (5, 6)), (1, 0)) == (6, 5)
    assert of("vec-append", (1,), (), (2,)) == (1, 2) and of("vec-range", 3) == (0, 1, 2)
    assert of("&", 12, 10) == 8 and of("max", 1, 3) == 3 and of("-", 4) == -4
    for head, *args in (
        ("+", LIMIT - 1, 1),
        ("/", 1, 0),
        ("%", 1, 0),
        ("vec-get", (1,), 1),
        ("<", 2, 2),
        ("!=", 1, 1),
    ):
        with pytest.raises(Fails):
            of(str(head), *args)


# ---- constants -----------------------------------------------------------------------------------------------------------

NUMERALS = {
    ("i32", "-1"): 4294967295,
    ("i32", "-2147483648"): 2147483648,
    ("i32", "4294967295"): 4294967295,
    ("fp32", "0.5"): 1056964608,
    ("fp32", "-1.0"): 3212836864,
    ("fp32", "-0.0"): 2147483648,
    ("fp32", "3e38"): 2137108966,
    ("fp32", "1e-45"): 1,
    ("fp16", "-65504.0"): 64511,
    ("fp16", ".1"): 11878,
    ("bf16", "2.5e2"): 17274,
    ("bool", "1"): 1,
}
"""What a constant is spelled as, and its bits."""


@pytest.mark.parametrize(("dtype", "literal"), NUMERALS)
def test_a_number_stands_for_its_bits(dtype: str, literal: str, tmp_path: Path) -> None:
    """In files, for the engine and the checker alike: `x == c` of a constant has instances whatever the constant is."""
    path = tmp_path / "constant.egg"
    path.write_text(
        f"""(ruleset constant)
(in-phase "constant" "algebra" "EXACT" "on")
; c != x == x != c, (Const "{dtype}" {literal})
(rewrite (Binary "CMPNE" (Const "{dtype}" {literal}) x) (Binary "CMPNE" x (Const "{dtype}" {literal})) :ruleset constant :name "constant/turned")
(rewrite (TBinary "CMPNE" (Imm "{dtype}" {literal}) x) (TBinary "CMPEQ" x (Imm "{dtype}" {literal})) :ruleset constant :name "constant/wrong")
"""
    )
    texts = texts_of([path])
    assert f'(Const "{dtype}" {NUMERALS[dtype, literal]}) x)' in texts[0]
    assert f'x != c, (Const "{dtype}" {literal})' in texts[0]  # comments stay
    turned, wrong = check_rules([path], only=["constant"])
    assert turned.sound and turned.instances >= 40, turned
    assert wrong.verdict == "unsound", wrong


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "i32", "bool"])
def test_what_is_shown_of_a_constant_is_read_as_its_bits(dtype: str) -> None:
    width = {"fp32": 32, "i32": 32, "bool": 1}.get(dtype, 16)
    drawn = Random(dtype)
    for bits in (0, 1, (1 << width) - 1, *(drawn.getrandbits(width) for _ in range(2000))):
        text = f'(Const "{dtype}" {bits})'
        assert with_bits(with_numbers(text)) == text


def test_a_counterexample_shows_numbers() -> None:
    """Bits stay where no number spells them, as those of infinity."""
    text = '(rewrite (Binary "MAX" x (Const "fp32" 1120403456)) (Binary "MAX" x (Const "fp32" {})) :ruleset identity :name "mine/a")'
    for bits, shown in ((3267887104, "-100.0"), (4286578688, "4286578688")):
        (found,) = check_text(text.format(bits), BASE)
        assert found.why.startswith(f'_root == (Binary "MAX" x (Const "fp32" {shown}))')
    assert with_numbers('(Imm "i32" 4294967295)') == '(Imm "i32" -1)'


@pytest.mark.parametrize(
    ("dtype", "literal"),
    [
        ("i32", "-2147483649"),
        ("i32", "4294967296"),
        ("fp16", "-1"),
        ("fp16", "65536"),
        ("bf16", "-1"),
        ("bool", "2"),
    ],
)
def test_what_are_no_bits_is_said(dtype: str, literal: str) -> None:
    text = f'(rewrite (Binary "MUL" x (Const "{dtype}" {literal})) x :ruleset identity :name "mine/a")'
    (found,) = check_text(text, BASE)
    assert found.verdict == "error" and f"{literal} are no bits of {dtype}" in found.why


@pytest.mark.parametrize(("dtype", "literal"), [("fp16", "7e4"), ("i32", "1.5"), ("bool", "0.5")])
def test_a_number_that_its_dtype_does_not_hold_is_said(dtype: str, literal: str) -> None:
    text = f'(rewrite (Binary "MAX" x (Const "{dtype}" {literal})) x :ruleset identity :name "mine/a")'
    (found,) = check_text(text, BASE)
    assert found.verdict == "error" and f"{literal} is a floating-point number" in found.why
