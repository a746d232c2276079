"""What every built-in rule obeys, so that rules stay readable, small and in their class; rules/README.md says why."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rule_text import FOLDER, Node, Rule, calls, option, parse, written_rules

import tinyc
from tinyc.egraph import encode, graph
from tinyc.egraph.rulefiles import CLASSES, forms_of, list_rules, load_rules
from tinyc.egraph.vocabulary import VOCABULARY
from tinyc.extract import view
from tinyc.ir.dtypes import WIDENING, DType

RULES = written_rules()
MAX_ATOMS = 4


def constructors() -> frozenset[str]:
    """Of the schema, and those that a rule file declares for itself."""
    names = {each.name for each in VOCABULARY.constructors}
    for path in load_rules().files:
        for form in forms_of(path):
            if form.head == "constructor":
                (tree,) = parse(form.text)
                names.add(str(tree[1]))
    return frozenset(names)


CONSTRUCTORS = constructors()


def atoms(rule: Rule) -> int:
    """Constructor applications on the left-hand side; look-ups of facts and guards are none."""
    return sum(call[0] in CONSTRUCTORS for part in rule.query for call in calls(part))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_obeys_the_laws(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z0-9]+/[a-z0-9]+(-[a-z0-9]+)*", rule.name), "a name is family/what"
    assert rule.name.split("/")[0] in (rule.ruleset, rule.file.stem), "the family is the ruleset or the file"
    assert rule.equation, "no comment above the rule, and none above its group"
    if rule.unites:
        assert "==" in rule.equation, f"no equation in {rule.equation!r}"
    else:
        assert re.search(r"[=<>]| if ", rule.equation), f"no relation in {rule.equation!r}"
    assert atoms(rule) <= MAX_ATOMS or "constructors" in rule.equation, (
        f"{atoms(rule)} constructors on the left-hand side and no word on why"
    )


def test_there_are_rules_enough_and_all_are_read() -> None:
    assert len(list_rules()) >= 60
    assert [rule.name for rule in RULES] == [rule.name for rule in list_rules()]
    assert sum(rule.unites for rule in RULES) >= 60, "facts do not count as rewrites"


def test_no_general_commutativity_or_associativity() -> None:
    """A left-hand side of variables alone under one operator, given back in another order, explodes."""
    for rule in RULES:
        operators = [call for part in rule.query for call in calls(part) if call[0] in ("Binary", "TBinary")]
        if not operators or len(rule.query) > 1:
            continue
        leaves = [leaf for call in operators for leaf in call[2:]]
        plain = all(isinstance(leaf, str) or leaf in operators for leaf in leaves)
        spelled = sorted(str(leaf) for leaf in leaves if isinstance(leaf, str))
        given = [call for part in rule.actions for call in calls(part) if call[0] == operators[0][0]]
        back = sorted(str(leaf) for call in given for leaf in call[2:] if isinstance(leaf, str))
        assert not (plain and given and spelled == back), f"{rule.name} only reorders {spelled}"


def test_classes_are_used_properly() -> None:
    base = load_rules()
    by_class = {klass: [r for r in base.rulesets if r.klass == klass] for klass in CLASSES}
    assert by_class["EXACT"] and by_class["BOUNDED"] and by_class["REAL-ONLY"] and by_class["FACT"]
    assert all(ruleset.default for klass in ("EXACT", "FACT") for ruleset in by_class[klass])
    assert not any(ruleset.default for ruleset in by_class["REAL-ONLY"])
    facts = {ruleset.name for ruleset in by_class["FACT"]}
    for rule in RULES:
        if rule.ruleset in facts:
            assert not rule.unites, f"{rule.name} is of class FACT and changes values"


def test_every_ruleset_has_rules_and_one_declaration() -> None:
    declared: list[str] = []
    for path in load_rules().files:
        declared += [form.text for form in forms_of(path) if form.head == "in-phase"]
    names = [re.findall(r'"([^"]*)"', text)[0] for text in declared]
    assert sorted(names) == sorted(set(names)) == sorted({rule.ruleset for rule in RULES})


def test_conditions_of_selects_are_never_facts() -> None:
    """Index facts come from the ranges of axes alone: no rule sets a range or an index from a Within or a Select."""
    for rule in RULES:
        guards = [call for part in rule.query for call in calls(part) if call[0] in ("Within", "Select")]
        if guards:
            sets = [call[1] for part in rule.actions for call in calls(part) if call[0] == "set"]
            about = {call[0] for call in sets if isinstance(call, list)}
            assert about <= {"free", "dtype-of"}, f"{rule.name} sets {about} under a condition"


# ---- the vocabulary ----------------------------------------------------------------------------------------------


def schema() -> list[list[Node]]:
    trees = parse((FOLDER / "schema.egg").read_text(encoding="utf-8"))
    return [tree for tree in trees if isinstance(tree, list)]


def declared_sorts() -> dict[str, tuple[str, ...]]:
    def flat(node: Node) -> str:
        return node if isinstance(node, str) else f"({' '.join(flat(each) for each in node)})"

    found: dict[str, tuple[str, ...]] = {}
    for form in schema():
        inner = form[1:] if form[0] == "datatype*" else [form]
        for each in inner:
            assert isinstance(each, list)
            if each[0] == "sort":
                container = each[2]
                assert isinstance(container, list)
                found[str(each[1])] = tuple(flat(part) for part in container)
            elif form[0] == "datatype*":
                found[str(each[0])] = ()
            elif each[0] == "datatype":
                found[str(each[1])] = ()
    return found


def declared_constructors() -> dict[str, tuple[tuple[str, ...], str, bool]]:
    """Name -> argument sorts, result sort, whether extraction may pick it."""
    found: dict[str, tuple[tuple[str, ...], str, bool]] = {}

    def variants(sort: str, listed: list[Node]) -> None:
        for each in listed:
            assert isinstance(each, list)
            found[str(each[0])] = (tuple(map(str, each[1:])), sort, True)

    for form in schema():
        if form[0] == "datatype":
            variants(str(form[1]), form[2:])
        elif form[0] == "datatype*":
            for each in form[1:]:
                assert isinstance(each, list)
                if each[0] != "sort":
                    variants(str(each[0]), each[1:])
        elif form[0] == "constructor":
            assert isinstance(form[2], list)
            found[str(form[1])] = (tuple(map(str, form[2])), str(form[3]), ":unextractable" not in form)
    return found


def test_vocabulary_is_the_schema() -> None:
    assert {each.name: each.container for each in VOCABULARY.sorts} == declared_sorts()
    table = {each.name: (each.args, each.result, each.extracted) for each in VOCABULARY.constructors}
    assert table == declared_constructors()

    def merge(form: list[Node]) -> str:
        value = option(form, ":merge")
        return ":no-merge" if value is None else f"({' '.join(map(str, value))})"

    functions = {
        str(form[1]): (tuple(form[2]), form[3], merge(form)) for form in schema() if form[0] == "function"
    }
    assert {each.name: (each.args, each.result, each.merge) for each in VOCABULARY.functions} == functions
    relations = {str(form[1]): tuple(form[2]) for form in schema() if form[0] == "relation"}
    assert {each.name: each.args for each in VOCABULARY.relations} == relations
    assert all(each.meaning for each in (*VOCABULARY.sorts, *VOCABULARY.constructors, *VOCABULARY.functions))


def heads_spelled_in(module: object) -> Iterator[str]:
    """String literals that name a head: of a term that is built, or that a node's ``op`` is compared with."""
    source = Path(str(getattr(module, "__file__", ""))).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        texts: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "term":
            texts = node.args[:1]
        elif (
            isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "op"
        ):
            texts = node.comparators
        elif (
            isinstance(node, ast.Match)
            and isinstance(node.subject, ast.Attribute)
            and node.subject.attr == "op"
        ):
            texts = [
                value.value
                for case in node.cases
                for value in ast.walk(case.pattern)
                if isinstance(value, ast.MatchValue)
            ]
        yield from (
            text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str)
        )


CONTAINERS = {"vec-of", "vec-empty", "set-of", "set-empty"}


@pytest.mark.parametrize("module", [encode, view], ids=lambda module: module.__name__)
def test_heads_that_python_spells_are_in_the_vocabulary(module: object) -> None:
    spelled = set(heads_spelled_in(module))
    assert spelled, "found none: the test does not see how this module spells heads"
    known = {each.name for each in (*VOCABULARY.constructors, *VOCABULARY.functions)} | CONTAINERS
    assert spelled - known == set()


def test_what_extraction_reads_is_in_the_vocabulary() -> None:
    constructors = {each.name for each in VOCABULARY.constructors} | CONTAINERS
    assert constructors >= set(graph.EXTRACTABLE)
    fields = ("functions", "relations", "constructors")
    words = {each.name for field in fields for each in getattr(VOCABULARY, field)}
    declared = {
        form.text.split()[1]
        for path in load_rules().files
        for form in forms_of(path)
        if form.head == "relation"
    }
    assert words | declared >= set(graph.TABLES)
    assert {
        each.name
        for each in VOCABULARY.constructors
        if each.result in ("Buf", "Ix", "Atom") and each.extracted
    } <= set(graph.EXTRACTABLE)


def test_every_term_of_a_program_has_the_arguments_that_the_vocabulary_says() -> None:
    def relu(x: tinyc.Tensor) -> tinyc.Tensor:  # type: ignore[name-defined]
        return x.pad([(1, 0), (0, 2)]).flip(0)[::2].T.reshape(-1).relu().sum(0)

    encoded = encode.encode(tinyc.trace(relu, x=tinyc.spec("fp32", (4, 6))))
    arity = VOCABULARY.arity()
    for name, args in (*encoded.terms, *encoded.facts, *((name, args) for name, args, _ in encoded.sets)):
        if name not in CONTAINERS:
            assert len(args) == arity[name], name


def test_python_and_the_rules_agree_which_casts_keep_every_value() -> None:
    """Behind these alone, a contraction's operand is still loaded as it is."""
    facts = [
        tuple(DType(str(dtype).strip('"')) for dtype in form[1:])
        for form in parse((FOLDER / "prop.egg").read_text())
        if isinstance(form, list) and form[0] == "widening"
    ]
    assert len(facts) == len(set(facts))
    assert set(facts) == WIDENING
