"""The entry points: a verdict for every rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from tinyc.egraph.forms import scan
from tinyc.egraph.numerals import with_bits
from tinyc.ir.diagnostics import TinycError

from . import affine
from .borders import Borders
from .compare import Outcome
from .context import BadBinder, IllFormed, Reject
from .growth import inventing
from .instantiate import Attempt
from .judge import Tally, Wrong, act, claimed
from .listed import unlisted
from .parse import Call, Lit, Rule, Schema, Unreadable, Var, calls, declare, load
from .plan import expand
from .primitives import Fails
from .shown import noted, size_of, unsound
from .sorting import ill_sorted, unbound
from .steps import Case
from .term import show
from .types import misspelt
from .untried import in_the_way, sorted_out, underived
from .verdict import Counterexample, Note, Verdict
from .world import World

ENOUGH = 40
"""Instances of a rule."""

OF_FACTS, OF_NUMBERS = 120, 200
"""Of a rule that claims facts, or is about numbers alone: they are cheap."""

OF_OTHERS = 100
"""Of a rule that is not tinyc's own: nobody has looked at it before."""

OF_LONG, LONG = 20, 2100
"""Of a rule that reduces along axes of which it says that they are longer than this: they are dear."""

TRIES = 80
"""At least so many attempts, so that every shape comes up as often as its rule allows."""

MOST_TRIES = 2400
HOPELESS = 1200
"""At most so many attempts, and so many per case; twice as many where they are cheap."""

FEW = 1
"""Instances that are too few, so that relations are unfolded as well."""

LARGEST_RULE = 400
"""Applications in a rule; instances of larger ones take too long to make. No rule of tinyc's has a fifth of that."""

AFTER = 40
"""Attempts after a counterexample, for a smaller one."""

PROOFS = 60
"""Instances with opaque indices, for isl; and how many are tried for them."""
PROOF_TRIES = 600

COUNTED = ("i64", "String", "Problem")
"""Sorts of rules that are about numbers alone."""

TEXT = "text.egg"
"""The file of rules that come without one."""

FAILURES = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RecursionError,
    AssertionError,
    AttributeError,
)
"""Of this program, at a rule that it was not made for."""

PLACED = (*COUNTED, "Ix", "Ixs", "Atom", "Axes", "Ints")
"""Sorts of rules that are about indices."""

Base = Schema


def load_base(extra: Sequence[str | Path] = ()) -> Base:
    """The built-in rules and those of ``extra``. Raises TinycError RuleFileInvalid, FileUnreadable."""
    return load(extra)


def check_rules(extra: Sequence[str | Path] = (), only: Sequence[str] = ()) -> tuple[Verdict, ...]:
    """A verdict for every rule, in file order; with ``only`` for the rules, rulesets or files of these names.

    Facts of a relation that has a meaning are checked as well. Raises TinycError RuleFileInvalid, FileUnreadable.
    """
    base = load_base(extra)
    return tuple(check_all(base, only))


def check_all(base: Base, only: Sequence[str] = ()) -> Iterator[Verdict]:
    """The verdicts of :func:`check_rules`, one at a time."""
    for verdict in check_tables(base):
        if not only or {verdict.rule, verdict.file, Path(verdict.file).name} & set(only):
            yield verdict
    directions: dict[str, list[Rule]] = {}
    for rule in base.rules.values():
        directions.setdefault(rule.name, []).append(rule)
    for name, rules in directions.items():
        if (
            not only
            or name in only
            or rules[0].ruleset in only
            or Path(rules[0].file).name in only
            or rules[0].file in only
        ):
            verdicts = [check_rule(each, base) for each in rules]
            yield max(verdicts, key=lambda each: ("sound", "unsound", "error").index(each.verdict))


def check_text(text: str, base: Base | None = None, klass: str | None = None) -> tuple[Verdict, ...]:
    """Verdicts for the rules and facts in ``text`` (a rule file's text: one mutated rule, or a rule with its own
    declarations), in the context of ``base`` (the built-in rules where None). A rule of a name that ``base`` has takes its place. The class is
    that of its ruleset, unless ``klass`` says otherwise. Raises TinycError RuleFileInvalid."""
    schema = (base or load_base()).copy()
    found: list[Rule] = []
    for form in scan(with_bits(text))[0]:
        found += declare(schema, form.text, TEXT, form.line)
    tables = [each for each in check_tables(schema) if each.file == TEXT]
    return (*tables, *(check_rule(rule, schema, klass) for rule in found))


def check_tables(base: Base) -> Iterator[Verdict]:
    """The ground facts of relations with a meaning."""
    for relation, rows in base.facts.items():
        if not any(each.facts or each.policy for each in base.meanings.get(relation, ())):
            continue
        for row in rows:
            if (relation, row) not in base.places:
                continue  # an example
            file, line = base.places[relation, row]
            name = f"({relation} {' '.join(map(show, row))})"
            world = World(base, name)
            blank = Verdict(name, "", "FACT", "sound", "table", True, 1, "FACT", "", file, line)
            claim = claimed(world, relation, row, None, "EXACT")
            if claim.klass:
                yield replace(blank, notes=(Note(relation, (), claim.departs),) if claim.departs else ())
            else:
                wrong = Counterexample((), claim.left or "the fact is false", name, claim.why)
                yield replace(blank, verdict="unsound", measured="", why=claim.why, counterexample=wrong)


# ---- one rule -------------------------------------------------------------------------------------------------------


def check_rule(rule: Rule, base: Base, klass: str | None = None) -> Verdict:
    """The verdict on one rule in the context of ``base``."""
    declared = klass or base.classes.get(rule.ruleset, "")
    blank = Verdict(rule.name, rule.ruleset, declared, "error", "", False, 0, "", "", rule.file, rule.line)
    if rule.problem:
        return replace(blank, why=rule.problem)
    if not declared:
        return replace(blank, why=f"ruleset {rule.ruleset!r} has no class: (in-phase …) is missing")
    parts = (*rule.body, *rule.actions)
    size = sum(1 for part in parts for _ in calls(part))
    if size > LARGEST_RULE:
        return replace(blank, why=f"it has {size} applications, and at most {LARGEST_RULE} can be tried")
    for why in (*misspelt(parts), *unlisted(rule, base), *ill_sorted(rule, base), *_merged(rule, base)):
        return replace(blank, why=why)
    try:
        cases = expand(base, rule.body)
        _actions_known(rule, base)
        sorted_out(cases)
    except Unreadable as error:
        return replace(blank, why=str(error))
    try:
        return _verdict(rule, base, cases, blank)
    except Unreadable as error:  # of a word that only its actions speak of
        return replace(blank, why=str(error))
    except FAILURES as error:
        # a rule that this program was not made for: an error of its verdict, and no end of the run
        return replace(blank, why=f"the checker fails on it: {type(error).__name__}: {error}")


def _verdict(rule: Rule, base: Base, cases: list[Case], blank: Verdict) -> Verdict:
    panics = any(action.head == "panic" for action in rule.actions)
    if not cases:
        if panics:
            return replace(blank, verdict="sound", method="facts", symbolic=True, measured="FACT")
        return replace(blank, why=underived(rule, base))
    return _tried(rule, base, cases, blank, panics)


def _tried(rule: Rule, base: Base, cases: list[Case], blank: Verdict, panics: bool) -> Verdict:
    tally = Tally()
    with np.errstate(all="ignore"):
        return _judged(rule, base, cases, blank, panics, tally)


def _judged(rule: Rule, base: Base, cases: list[Case], blank: Verdict, panics: bool, tally: Tally) -> Verdict:
    wrong, tries = _instances(rule, base, cases, blank, tally)
    seen = [[each.steps for each in cases]]
    lenient = expand(base, rule.body, policy=False)
    if wrong is None and [each.steps for each in lenient] not in seen:
        kept = tally.instances
        wrong, further = _instances(rule, base, lenient, blank, tally, lenient=True)
        if not kept and tally.instances:
            tally.notes[""] = (
                0,
                Note("", (), f"no instance among {tries} tries keeps to the policies of what it asks for"),
            )
        tries += further
    for how in () if panics else ("unfold", "relax"):
        more = expand(base, rule.body, how) if wrong is None and tally.instances < FEW else []
        if more and [each.steps for each in more] not in seen:
            seen.append([each.steps for each in more])
            wrong, further = _instances(rule, base, more, blank, tally)
            tries += further
            if wrong is not None and how == "relax":
                why = f"no instance among {tries} tries has what its relations assert, and without that it is wrong"
                return replace(wrong, verdict="error", why=f"{why}: {wrong.why}")
    if wrong is not None:
        return wrong
    if not tally.instances:
        if panics:
            return replace(
                blank, verdict="sound", method="facts", symbolic=True, instances=tries, measured="FACT"
            )
        why = f"no instance among {tries} tries satisfies its body, and is small enough to evaluate"
        return replace(blank, why=f"{why}{in_the_way(rule, base)}")
    proven = (
        _proven(rule, base, lenient, blank, tally) if "points" in tally.methods or _bounds(rule) else None
    )
    if isinstance(proven, Verdict):
        return proven
    methods = tally.methods or {"facts"}
    if proven:
        methods = (methods - {"points"}) | {"isl"}
    if "rationals" in methods:
        methods = methods - {"sampled"}  # only where a constant of an instance was no number
    symbolic = not methods & {"sampled", "points"}
    return replace(
        blank,
        verdict="sound",
        method="+".join(sorted(methods)),
        symbolic=symbolic,
        instances=tally.instances,
        measured=tally.klass or "FACT",
        notes=tuple(note for _, note in tally.notes.values()),
    )


def _instances(
    rule: Rule, base: Base, cases: list[Case], blank: Verdict, tally: Tally, lenient: bool = False
) -> tuple[Verdict | None, int]:
    """Tries the cases in turn, from small instances to large; the smallest counterexample found, and how many tries.
    ``lenient``: the cases are without the policies of what the rule asks for, since a user's rule may depart from them."""
    wrong: Verdict | None = None
    smallest, number, found = 0, 0, 0
    shaped = any(sort in ("Tensor", "Buf", "Ints") for case in cases for sort in case.sorts.values())
    least = TRIES + 4 * len(cases) if shaped else 0
    counted = all(sort in COUNTED for case in cases for sort in case.sorts.values())
    facts = not any(action.head == "union" for action in rule.actions)
    placed = all(sort in PLACED for case in cases for sort in case.sorts.values())
    bordered = (counted or facts or placed) and not lenient
    other = base.is_other(rule.file) and rule.file != TEXT
    enough = (OF_NUMBERS if counted else OF_FACTS) if bordered else OF_OTHERS if other else ENOUGH
    if not bordered and any(map(_long, cases)):
        enough = least = OF_LONG
    most = min(MOST_TRIES, HOPELESS * len(cases) * (2 if counted else 1))
    tight = any(action.head == "panic" for action in rule.actions)
    borders = Borders()
    while number < most:
        which = number % len(cases)
        number += 1
        if wrong is None and found >= enough and number > least:
            break
        seed = f"{rule.name} {which}{' lenient' if lenient else ''}"
        make = partial(
            Attempt, base, cases[which], seed, (number - 1) // len(cases), not tight, lenient=lenient
        )
        attempt = make()
        try:
            worlds = [attempt.run()]
        except Reject:
            continue
        if bordered:
            worlds += borders.of(make, attempt)
        judged = False
        for world in worlds:
            for name, arg in cases[which].names.items():
                world.env[name] = arg.value if isinstance(arg, Lit) else world.env[arg.name]
            world.context.complete = True
            tally.departures.clear()
            try:
                act(rule, world, blank.klass, tally)
            except Reject:
                continue
            except Wrong as error:
                size = size_of(world)
                if wrong is None:
                    most = min(most, number + AFTER)
                if wrong is None or size < smallest:
                    smallest, wrong = size, unsound(blank, world, tally, error)
            judged = True
            noted(world, tally)
        found += judged
        tally.instances += judged
    return wrong, number


def _long(case: Case) -> bool:
    reduces = any(step.head in ("Reduce", "TReduce", "Stream", "RoundedStream") for step in case.steps)
    return reduces and max(case.extents, default=0) > LONG


def _bounds(rule: Rule) -> bool:
    """Whether a rule claims bounds of indices."""
    sets = [action.args[0] for action in rule.actions if action.head == "set"]
    return any(isinstance(each, Call) and each.head in affine.BOUNDS for each in sets)


def _proven(rule: Rule, base: Base, cases: list[Case], blank: Verdict, tally: Tally) -> Verdict | bool:
    """Whether what a rule says of indices holds over all integers; a verdict where it does not."""
    proven = 0
    for number in range(PROOF_TRIES):
        if proven >= PROOFS:
            break
        case = cases[number % len(cases)]
        attempt = Attempt(base, case, f"{rule.name} isl", number // len(cases), loose=False, opaque=True)
        try:
            world = attempt.run()
            for name, arg in case.names.items():
                world.env[name] = arg.value if isinstance(arg, Lit) else world.env[arg.name]
            asked = [step for step in case.steps if step.kind == "fact" and step.head in affine.BOUNDS]
            bounded = frozenset(attempt.get(step.args[0]) for step in asked)
            space = affine.Affine(world.facts, bounded)
            claims = list(_index_claims(rule, world, space))
        except (Reject, Fails, IllFormed, KeyError):
            continue
        for text, outcome in claims:
            if outcome is None:
                return False
            if not outcome.klass:
                return unsound(blank, world, tally, Wrong(outcome, text))
        proven += bool(claims)
    return proven > 0


def _index_claims(rule: Rule, world: World, space: affine.Affine) -> Iterator[tuple[str, Outcome | None]]:
    env = dict(world.env)
    for action in rule.actions:
        if action.head == "let" and isinstance(action.args[0], Var):
            env[action.args[0].name] = world.instance(action.args[1], env)
        elif action.head == "union":
            a, b = (world.instance(each, env) for each in action.args)
            yield str(action), affine.equal(space, a, b)
        elif (
            action.head == "set" and isinstance(action.args[0], Call) and action.args[0].head in affine.BOUNDS
        ):
            (index,) = (world.instance(each, env) for each in action.args[0].args)
            value = world.instance(action.args[1], env)
            yield str(action), affine.bound(space, action.args[0].head, index, value)


def _actions_known(rule: Rule, base: Base) -> None:
    for why in unbound(rule):
        raise Unreadable(why)
    for call in (call for action in rule.actions for call in calls(action)):
        signature = base.signature(call.head)
        if signature is not None and len(signature.args) != len(call.args):
            raise Unreadable(
                f"{call.head} takes {len(signature.args)} arguments, not {len(call.args)}: {call}"
            )


def _merged(rule: Rule, base: Base) -> Iterator[str]:
    """Functions that a rule asks for and whose values are not those that rules set, so that it may ask for any."""
    for call in (call for fact in rule.body for call in calls(fact)):
        if call.head in base.functions and call.head not in base.meanings:
            why = inventing(base, call.head)
            if why:
                yield why


__all__ = [
    "BadBinder",
    "Base",
    "TinycError",
    "check_all",
    "check_rule",
    "check_rules",
    "check_text",
    "load_base",
]
