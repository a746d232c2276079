"""The actions of a rule, carried out on an instance: every claim is held against what is true."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .compare import Outcome, compare, worst
from .context import IllFormed
from .flatten import substituted
from .parse import Call, Lit, Rule, Var
from .primitives import Fails
from .prove import prove
from .steps import KNOWN
from .term import Term, Value, show
from .verdict import CLASSES, Note
from .world import World, departs, wrong_fact


@dataclass
class Tally:
    """What the instances of a rule showed."""

    klass: str = ""
    methods: set[str] = field(default_factory=set)
    instances: int = 0
    departures: list[tuple[str, str]] = field(default_factory=list)
    """Of the instance at hand: words, and why what is said with them is not what the built-in rules say."""
    notes: dict[str, tuple[int, Note]] = field(default_factory=dict)
    """By word, with the size of the instance."""


@dataclass(frozen=True)
class Wrong(Exception):
    outcome: Outcome
    claim: str


def act(rule: Rule, world: World, klass: str, tally: Tally) -> None:
    """Carries out the actions on an instance. Raises Wrong for a claim that is false."""
    env = dict(world.env)
    for action in rule.actions:
        try:
            _action(action, world, env, klass, tally)
        except Fails as error:
            text = f"{action}: {error}"
            raise Wrong(
                Outcome(
                    "", why="a primitive fails in an action, which stops the engine", left=text, right="-"
                ),
                str(action),
            ) from None
        except IllFormed as error:
            raise Wrong(
                Outcome(
                    "",
                    why="the action makes a term that no program has",
                    left=str(error),
                    right=made(action, env),
                ),
                str(action),
            ) from None


def made(action: Call, env: dict[str, Value]) -> str:
    """What an action says, with numbers and words in the place of its variables."""
    numbers = {name: Lit(value) for name, value in env.items() if isinstance(value, int | str)}
    return str(substituted(action, numbers))


def _action(action: Call, world: World, env: dict[str, Value], klass: str, tally: Tally) -> None:
    schema = world.schema
    match action.head:
        case "let":
            name = action.args[0]
            assert isinstance(name, Var)
            env[name.name] = world.instance(action.args[1], env)
        case "panic":
            outcome = Outcome("", why="the rule stops a program that is well formed", left="no fault", right=show(action.args[0].value) if isinstance(action.args[0], Lit) else "")  # fmt: skip
            raise Wrong(outcome, "panic")
        case "union":
            a, b = (world.instance(each, env) for each in action.args)
            if klass == "FACT":
                raise Wrong(
                    Outcome(
                        "",
                        why="its class is FACT, and it makes two values equal",
                        left="a fact alone is claimed",
                        right="two values become one",
                    ),
                    str(action),
                )
            _judge(compare(world, a, b, klass), klass, f"{action.args[0]} == {action.args[1]}", tally)
        case "set":
            call = action.args[0]
            if not isinstance(call, Call):
                raise Fails("(set …) takes a function and a value")
            args = tuple(world.instance(each, env) for each in call.args)
            value = world.instance(action.args[1], env)
            _judge(claimed(world, call.head, args, value, klass), klass, str(action), tally, call.head)
        case "subsume" | "delete":
            call = action.args[0]
            if isinstance(call, Call) and call.head in schema.constructors:
                world.instance(call, env)
        case head if head in schema.relations:
            args = tuple(world.instance(each, env) for each in action.args)
            _judge(claimed(world, head, args, None, klass), klass, str(action), tally, head)
        case _:
            term = world.instance(action, env)
            if isinstance(term, Term) and term.head == "Out":
                number, buffer = term.args
                wanted = world.context.outputs.get(number)
                if wanted is None:
                    raise Wrong(
                        Outcome("", why="the program has no such output", left="-", right=show(term)),
                        str(action),
                    )
                shape = world.facts._of(wanted)
                axes, _ = world.facts.axes_upto(0, shape, len(shape))
                right = world.build(
                    "Fill", (world.facts.dtype(wanted), shape, world.build("At", (wanted, axes)))
                )
                _judge(compare(world, right, buffer, klass), klass, str(action), tally)


def claimed(world: World, word: str, args: tuple[Value, ...], value: Value | None, klass: str) -> Outcome:
    """Whether a fact holds."""
    if word in KNOWN:
        try:
            true = wrong_fact(world, word, args, value)
        except IllFormed as error:
            true = f"there is none: {error}"
        call = f"({' '.join([word, *map(show, args)])})"
        claim = Outcome(
            "" if true else "EXACT", frozenset(["facts"]), f"of {call}", true, f"it is {show(value)}"
        )
        if true:
            return claim
        return replace(claim, klass="FACT", departs=departs(world, word, args, value))
    if word not in world.schema.meanings:
        return Outcome("FACT", frozenset(["unfolded"]))
    return prove(world, word, args, value, klass)


def _judge(outcome: Outcome, klass: str, claim: str, tally: Tally, word: str = "") -> None:
    """Keeps the outcome of a claim, or raises Wrong where it holds in a weaker class than declared, or in none."""
    if outcome.klass and outcome.departs:
        tally.departures.append((word, outcome.departs))
    if outcome.klass == "FACT":
        tally.methods |= outcome.method
        return
    allowed = "EXACT" if klass == "FACT" else klass
    if not outcome.klass:
        raise Wrong(outcome, claim)
    if CLASSES.index(outcome.klass) > CLASSES.index(allowed):
        why = f"holds as {outcome.klass} only, and its class is {klass}: {outcome.why}"
        raise Wrong(replace(outcome, klass="", why=why), claim)
    tally.methods |= outcome.method
    tally.klass = worst(tally.klass, outcome.klass) if tally.klass else outcome.klass
