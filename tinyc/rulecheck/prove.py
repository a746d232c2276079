"""Whether a fact of a relation with a declared meaning is true of an instance, and keeps to its policy."""

from __future__ import annotations

from dataclasses import replace

from .bindings import Bindings
from .compare import Outcome, compare, worst
from .context import BadBinder, IllFormed
from .parse import Lit, Var
from .plan import expand, told
from .predicates import holds, unmet, value_of
from .primitives import Fails, compute
from .steps import KNOWN, Arg, Case, Step
from .term import Term, Value, show
from .world import World, known, wrong_fact


def prove(world: World, word: str, args: tuple[Value, ...], value: Value | None, klass: str) -> Outcome:
    """The class in which some alternative of the meaning holds. FACT where it asserts nothing of values.

    Where only its policy does not, ``departs`` of the outcome says so. An instance that does not keep to the policies of
    what it asks for (:attr:`Context.lenient`) need not keep to others."""
    shown = f"({' '.join([word, *map(show, args)])})"
    whole = Outcome("")
    if not world.context.lenient and _has_policy(world, word):
        whole = _proven(world, word, args, value, klass, True)
    found = whole if whole.klass else _proven(world, word, args, value, klass, False)
    if found.klass:
        return replace(found, departs=f"{shown}: {whole.why}" if whole.why and not whole.klass else "")
    if not found.why:
        return Outcome(
            "",
            frozenset(["facts"]),
            f"{shown} is false",
            f"no alternative of the meaning of {word} holds",
            shown,
        )
    return replace(found, why=f"what {shown} asserts is false: {found.why}")


def _has_policy(world: World, word: str) -> bool:
    """Whether the meaning of a word says something of policy, itself or in the words that it uses."""
    cache, key = world.schema.cache, ("policy", word)
    if key not in cache:
        cache[key] = [each.steps for each in _cases(world, word, True)] != [
            each.steps for each in _cases(world, word, False)
        ]
    return bool(cache[key])


def _cases(world: World, word: str, policy: bool) -> list[Case]:
    """What the alternatives of a meaning ask of the arguments ``#0``, ``#1``, … and of ``#value``."""
    cache, key = world.schema.cache, ("meaning", word, policy)
    if key not in cache:
        signature = world.schema.signature(word)
        assert signature is not None
        names = tuple(Var(f"#{k}") for k in range(len(signature.args)))
        said = Var("#value") if signature.result else None
        cache[key] = [
            case
            for each in world.schema.meanings[word]
            for case in expand(world.schema, told(each, names, said, policy), policy=policy)
        ]
    found: list[Case] = cache[key]
    return found


def _proven(
    world: World, word: str, args: tuple[Value, ...], value: Value | None, klass: str, policy: bool
) -> Outcome:
    """The first alternative that holds, or why the one that comes closest does not."""
    names = tuple(Var(f"#{k}") for k in range(len(args)))
    env: dict[str, Value] = dict(zip((each.name for each in names), args, strict=True))
    said = None if value is None else Var("#value")
    if said is not None:
        env[said.name] = value
    best = Outcome("")
    for case in _cases(world, word, policy):
        own: dict[str, Value] = {}
        clash = False
        for name, given in env.items():
            arg = case.names.get(name, Var(name))
            if isinstance(arg, Lit):
                clash = clash or arg.value != given
            elif own.setdefault(arg.name, given) != given:
                clash = clash or not world.same(own[arg.name], given)
        if clash:
            continue
        found = _Proof(world, case, own, klass).run()
        if found.klass:
            return found
        if found.method or not best.why:  # without a method it is of another form than the alternative
            best = found
    return best


class _No(Exception):
    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.why)
        self.outcome = outcome


class _Proof(Bindings):
    """One alternative. Variables of its own are what the terms of the instance say."""

    def __init__(self, world: World, case: Case, env: dict[str, Value], klass: str) -> None:
        super().__init__(env)
        self.world, self.case, self.klass = world, case, klass
        self.held = Outcome("FACT", frozenset(["facts"]))

    def run(self) -> Outcome:
        try:
            pending = list(self.case.steps)
            while pending:
                rest = [step for step in pending if not self._taken(step)]
                if len(rest) == len(pending):
                    return self._rows(pending)
                pending = rest
            return self.held
        except _No as no:
            return no.outcome
        except BadBinder:
            return self.held  # there is no such reduction, and so nothing is said
        except (Fails, IllFormed) as error:
            return Outcome("", frozenset(["facts"]), str(error), str(error), "")

    def _rows(self, pending: list[Step]) -> Outcome:
        """Goes on with each row of a table that fits."""
        failed = Outcome("", why=f"nothing makes {pending[0].words()} true")
        step = next((each for each in pending if each.kind == "relation"), None)
        if step is None:
            return failed
        for row in self.world.rows(step.head):
            if all(
                not self.bound(arg) or self.get(arg) == each for arg, each in zip(step.args, row, strict=True)
            ):
                env = dict(self.env)
                env.update(
                    {arg.name: each for arg, each in zip(step.args, row, strict=True) if isinstance(arg, Var)}
                )
                rest = tuple(each for each in pending if each is not step)
                proof = _Proof(self.world, replace(self.case, steps=rest), env, self.klass)
                proof.held = self.held
                found = proof.run()
                if found.klass:
                    return found
                failed = found
        return failed

    def bind(self, arg: Arg, value: Value) -> None:
        if not self.bound(arg):
            assert isinstance(arg, Var)
            self.env[arg.name] = value
            return
        old = self.get(arg)
        if old == value:
            return
        outcome = compare(self.world, old, value, self.klass)
        if not outcome.klass:
            raise _No(outcome)
        both = outcome.klass if self.held.klass == "FACT" else worst(self.held.klass, outcome.klass)
        self.held = replace(outcome, klass=both, method=self.held.method | outcome.method)

    def _taken(self, step: Step) -> bool:
        if not all(map(self.bound, step.args)):
            if step.kind == "term" and self.bound(step.out):
                assert step.out is not None
                term = self.get(step.out)
                if isinstance(term, Term) and term.head == step.head:
                    for arg, each in zip(step.args, term.args, strict=True):
                        self.bind(arg, each)
                    return True
            if step.kind == "predicate" and all(map(self.bound, step.args[:-1])):
                found = value_of(
                    self.world, str(self.get(step.args[0])), tuple(map(self.get, step.args[1:-1]))
                )
                if found is not None:
                    self.bind(step.args[-1], found)
                    return True
            return False
        args = tuple(map(self.get, step.args))
        match step.kind:
            case "term":
                assert step.out is not None
                self.bind(step.out, self.world.build(step.head, args))
            case "fact":
                assert step.out is not None and step.head in KNOWN
                if self.bound(step.out):
                    true = wrong_fact(self.world, step.head, args, self.get(step.out))
                    if true:
                        raise _No(
                            Outcome("", frozenset(["facts"]), step.words(), true, show(self.get(step.out)))
                        )
                else:
                    self.bind(step.out, known(self.world.facts, step.head, args))
            case "primitive":
                value = compute(step.head, args, self.world.build)
                if step.out is not None:
                    self.bind(step.out, value)
            case "relation":
                if args not in self.world.rows(step.head):
                    what = f"({' '.join([step.head, *map(show, args)])})"
                    raise _No(Outcome("", frozenset(["facts"]), f"{what} is no fact", "no such fact", what))
            case "predicate":
                if not holds(self.world, args):
                    what = unmet(args)
                    raise _No(Outcome("", frozenset(["facts"]), what, "it does not", what))
        return True
