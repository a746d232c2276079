"""Which rules feed themselves for ever, found on paper: the engine, given the same rule, agrees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinyc.egraph.engine import Engine
from tinyc.egraph.rulefiles import load_rules, one_rule_per_ruleset, texts_of
from tinyc.rulecheck import parse
from tinyc.rulecheck.atoms import atoms_of
from tinyc.rulecheck.growth import grows
from tinyc.rulecheck.parse import Schema

#: rule -> an instance of it, whether it grows without end
RULES: dict[str, tuple[str, bool]] = {
    # each of these makes what it matches, larger
    '(rewrite (Unary "EXP2" x) (Binary "MUL" (Unary "EXP2" (Binary "MUL" x x)) x)': ('(Unary "EXP2" {x})', True),
    '(rule ((= e (Unary "NEG" x))) ((Unary "NEG" e))': ('(Unary "NEG" {x})', True),
    '(rewrite (Binary "FDIV" x y) (Binary "FDIV" (Binary "MUL" x y) (Binary "MUL" y y))': ('(Binary "FDIV" {x} {y})', True),
    '(rule ((= e (Const d n)) (> n 0)) ((Const d (+ n 1)))': ('(Const "i32" 3)', True),
    '(rewrite (At t ix) (At (Flip (Flip t 0) 0) ix)': ("(At (Input 0) (vec-empty))", True),
    '(rule ((= a (Unary op x)) (= b (Unary op y))) ((Unary op (Binary "ADD" a b)))': ('(Unary "SIN" {x})', True),
    '(rule ((= e (Cast d x))) ((Cast d (Cast "fp16" e)))': ('(Cast "fp32" {x})', True),
    '(birewrite (Unary "NEG" x) (Binary "SUB" (Unary "NEG" (Unary "SIN" x)) x)': ('(Unary "NEG" {x})', True),
    # these make what they match, but no more than there is, or less
    '(rewrite (Binary "ADD" x y) (Binary "ADD" y x)': ('(Binary "ADD" {x} {y})', False),
    '(rewrite (Binary "ADD" (Binary "ADD" x y) z) (Binary "ADD" x (Binary "ADD" y z))': (
        '(Binary "ADD" (Binary "ADD" {x} {y}) {x})',
        False,
    ),
    '(rule ((= e (Binary op x y))) ((union e (Binary "ADD" e (Const "fp32" 0))))': ('(Binary "SUB" {x} {y})', False),
    '(rule ((= e (Unary "NEG" x))) ((union e (Unary "NEG" (Unary "NEG" e))))': ('(Unary "NEG" {x})', False),
    '(rule ((= e (Const d n)) (> n 0)) ((Const d (- n 1)))': ('(Const "i32" 6)', False),
    '(rewrite (Binary "FDIV" x y) (Binary "FDIV" (Binary "FDIV" x y) (Const "fp32" 1065353216))': (
        '(Binary "FDIV" {x} {y})',
        False,
    ),
    '(rewrite (Binary "MUL" x (Binary "ADD" y z)) (Binary "ADD" (Binary "MUL" x y) (Binary "MUL" x z))': (
        '(Binary "MUL" {x} (Binary "ADD" {y} {y}))',
        False,
    ),
    '(birewrite (Unary "NEG" x) (Binary "SUB" (Const "fp32" 0) x)': ('(Unary "NEG" {x})', False),
    '(rewrite (IScale k (Lit a)) (Lit (* k a))': ("(IScale 3 (Lit 2))", False),
}  # fmt: skip

LEAVES = {"x": "(Read (Arg 0) (vec-empty))", "y": "(Read (Arg 1) (vec-empty))"}


@pytest.fixture(scope="module")
def schema() -> Schema:
    return parse.load()


@pytest.fixture(scope="module")
def engine() -> Engine:
    """With the declarations of the schema, and no rules."""
    engine = Engine()
    engine.include(next(path for path in load_rules().files if path.name == "schema.egg"))
    return engine


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_grows_on_paper_as_in_the_engine(rule: str, schema: Schema, engine: Engine) -> None:
    instance, endless = RULES[rule]
    text = f'{rule} :ruleset alone :name "alone/rule")'
    (tree,) = parse.read(text)
    assert isinstance(tree, list)
    found = [grows(atoms_of(each, schema), schema) for each in parse.rules_of(tree, "f", 1)]
    assert any(found) == endless
    engine.command("(push)")
    engine.command(f"(ruleset alone) {text}")
    engine.command(instance.format(**LEAVES))
    sizes = [sum(engine.sizes().values())]
    while len(sizes) < 9 and sizes[-1] < 5000:
        engine.run("(run alone)")
        sizes.append(sum(engine.sizes().values()))
    engine.command("(pop)")
    assert (sizes[-1] > sizes[-2]) == endless, sizes


def test_a_guard_that_is_known_of_all_terms_does_not_hide_growth(schema: Schema) -> None:
    """The dtype of what the rule makes is found by ruleset prop, which does not run here."""
    rule = '(rewrite (Unary "EXP2" x) (Unary "EXP2" (Binary "MUL" x x)) :when ((= "{}" (dtype-of x)){}) :ruleset a :name "a/b")'

    def endless(dtype: str, more: str = "") -> bool:
        (tree,) = parse.read(rule.format(dtype, more))
        assert isinstance(tree, list)
        (found,) = parse.rules_of(tree, "f", 1)
        return grows(atoms_of(found, schema), schema)

    assert endless("fp32")
    narrowed = rule.replace('(Binary "MUL" x x)', '(Cast "fp32" x)').format("fp16", "")
    (tree,) = parse.read(narrowed)
    assert isinstance(tree, list)
    assert not grows(atoms_of(parse.rules_of(tree, "f", 1)[0], schema), schema)


def test_no_rule_of_tinycs_grows_without_end(schema: Schema) -> None:
    assert [name for name, rule in schema.rules.items() if grows(atoms_of(rule, schema), schema)] == []


# ---- a rule per ruleset ------------------------------------------------------------------------------------------------


def test_every_rule_gets_a_ruleset_of_its_own_and_lines_stay() -> None:
    base = load_rules()
    names: set[str] = set()
    for path, text in zip(base.files, texts_of(base.files), strict=True):
        alone, homes = one_rule_per_ruleset(text)
        assert alone.count("\n") == text.count("\n")
        assert not names & set(homes)
        names |= set(homes)
        here = {rule.name: rule.ruleset for rule in base.rules if rule.file == str(path)}
        assert {rule: home for home, rule in homes.values()} == here
    assert len(names) == len(base.rules)


def test_rules_whose_names_differ_in_a_sign_get_different_rulesets(tmp_path: Path) -> None:
    names = ["a/b-c", "a-b/c", "a/b_c", "a/b c", "a/b--c"]
    text = "\n".join(f'(rewrite (Unary "NEG" x) x :ruleset m :name "{name}") ; :name "no"' for name in names)
    alone, homes = one_rule_per_ruleset(text)
    assert [rule for _, rule in homes.values()] == names
    assert all(alone.count(f"(ruleset {own})") == 1 for own in homes)
