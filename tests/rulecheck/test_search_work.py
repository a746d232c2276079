"""What rules cost that match nothing, as a count: how often their left-hand sides are found but for their comparisons.

Seconds depend on the machine, and the engine does not tell what a search looks at. So every rule has a probe, a rule of the
same left-hand side without ``<``, ``<=``, ``>``, ``>=`` and ``!=``, and the engine counts its matches: the rows that a search
must produce before a comparison can refuse them. What a search looks at and drops for another reason is not counted, so this
is a lower bound of the work. A left-hand side of which two parts have nothing to do with each other, which is what makes a
matcher explode, is counted in full. The seconds are held to a budget by the slow tests of test_stats.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import tinyc
from tinyc.egraph.rulefiles import load_rules
from tinyc.rulecheck import parse
from tinyc.rulecheck.atoms import Arg, Atom, atoms_of
from tinyc.rulecheck.examples import Example, examples
from tinyc.rulecheck.parse import Lit, Schema
from tinyc.rulecheck.stats import saturated

HEAD = '(ruleset probes)\n(in-phase "probes" "check" "FACT" "on")\n'

WORK = 1
"""Rows that a rule may produce in vain per e-node."""


def probes(files: list[Path]) -> str:
    """A rule file with the probe of every rule."""
    schema = parse.load(files)
    rules = [rule for rule in schema.rules.values() if rule.direction != "<="]
    return HEAD + "".join(
        probe(n, rule.name, atoms_of(rule, schema).body, schema) for n, rule in enumerate(rules)
    )


def probe(number: int, name: str, body: Sequence[Atom], schema: Schema) -> str:
    """All that the left-hand side names is an argument of the fact that the probe adds: the engine looks for no more of a
    left-hand side than its right-hand side needs."""
    tables = [atom for atom in body if atom.kind != "primitive"]
    sorts: dict[str, str] = {}
    for atom in tables:
        declared = schema.signature(atom.head)
        assert declared is not None
        sorts |= {
            arg: sort
            for arg, sort in zip((*atom.args, atom.out), (*declared.args, declared.result), strict=True)
            if isinstance(arg, str)
        }
    computed = {atom.out: atom for atom in body if atom.kind == "primitive" and isinstance(atom.out, str)}
    # where there is no such place there is no row, and an index that is read nowhere else guards the rest all the same
    sorts |= {
        out: schema.sorts[sorts[str(atom.args[0])]][1]
        for out, atom in computed.items()
        if atom.head == "vec-get" and out not in sorts
    }

    def spelled(arg: Arg | None) -> str:
        if isinstance(arg, str) and arg in computed and arg not in sorts:
            return application(computed[arg])
        return arg.replace("$", "term-") if isinstance(arg, str) else str(arg)

    def application(atom: Atom) -> str:
        return f"({' '.join([atom.head, *map(spelled, atom.args)])})"

    facts = [
        application(atom) if atom.out is None else f"(= {spelled(atom.out)} {application(atom)})"
        for atom in tables
    ]
    # what is computed is looked for where another fact has it, or it must be a constant
    for atom in computed.values():
        if atom.out in sorts:
            facts.append(f"(= {spelled(atom.out)} {application(atom)})")
    facts += [
        f"(= {atom.out} {application(atom)})"
        for atom in body
        if atom.kind == "primitive" and isinstance(atom.out, Lit)
    ]
    return (
        f"(relation probed-{number} ({' '.join(sorts.values())}))\n(rule ({' '.join(facts)})"
        f' ((probed-{number} {" ".join(map(spelled, sorts))})) :ruleset probes :name "probe/{name}")\n'
    )


def wasted(example: Example, files: list[Path], folder: Path) -> tuple[dict[str, int], int]:
    """Rule -> rows, of the rules that matched nothing; and the e-nodes of the whole."""
    (folder / "probes.egg").write_text(probes(files))
    base = load_rules([*files, folder / "probes.egg"])
    phases = saturated(example.program, base, example.targets[0]).phases
    matches: dict[str, int] = {}
    for rule, count in (item for phase in phases for item in phase.rule_matches.items()):
        matches[rule] = matches.get(rule, 0) + count
    names = [rule.name for rule in base.rules if not rule.name.startswith("probe/")]
    idle = {name: matches.get(f"probe/{name}", 0) for name in names if not matches.get(name)}
    return idle, phases[-1].enodes


def product() -> Example:
    return Example(
        "product",
        tinyc.trace(lambda a, b, c: (a @ b + c).relu(), *(tinyc.spec("fp32", (s, s)) for s in (64, 64, 64))),
        ("sm80",),
    )


LARGE = ("attention_causal.json", "conv3x3_silu.json", "bench mlp")


@pytest.mark.parametrize("name", LARGE)
def test_no_rule_of_tinycs_works_more_than_its_budget_in_vain(name: str, tmp_path: Path) -> None:
    """The worst of them, check/range, produces a sixth of a row per e-node."""
    example = next(each for each in examples(small=False) if each.name == name)
    idle, enodes = wasted(example, [], tmp_path)
    assert len(idle) > 100
    assert {rule: rows for rule, rows in idle.items() if rows > WORK * enodes} == {}


CROSSED = """
(ruleset crossing)
(in-phase "crossing" "algebra" "FACT" "on")
; crossed(a) if a, b and c are elements that have nothing to do with each other, and have a negative number of indices
(relation crossed (Expr))
(rule ((= a (At t ix)) (= b (At r jx)) (= c (Read d kx)) (< (+ (vec-length ix) (+ (vec-length jx) (vec-length kx))) 0))
  ((crossed a)) :ruleset crossing :name "crossing/elements")
; crossed(a) if a is an element with a negative number of indices
(rule ((= a (At t ix)) (< (vec-length ix) 0)) ((crossed a)) :ruleset crossing :name "crossing/element")
"""


def test_a_left_hand_side_whose_parts_have_nothing_to_do_with_each_other_is_over_it(tmp_path: Path) -> None:
    path = tmp_path / "crossed.egg"
    path.write_text(CROSSED)
    idle, enodes = wasted(product(), [path], tmp_path)
    assert [rule for rule, rows in idle.items() if rows > WORK * enodes] == ["crossing/elements"]
    assert 0 < idle["crossing/element"] <= enodes
