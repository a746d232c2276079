"""Rule files as nested lists, for tests that look at how rules are written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tinyc.egraph.rulefiles import BUILTIN, forms_of, load_rules

Node = str | list["Node"]
"""An S-expression: a symbol, number or quoted string as text, or a list."""

FOLDER = BUILTIN.resolve().parent


def parse(text: str) -> list[Node]:
    """The S-expressions of a text; comments are left out."""
    stack: list[list[Node]] = [[]]
    for token in re.findall(r';[^\n]*|"(?:\\.|[^"\\])*"|[()]|[^\s()";]+', text):
        if token.startswith(";"):
            continue
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    assert len(stack) == 1, "a parenthesis is not closed"
    return stack[0]


def calls(node: Node) -> Iterator[list[Node]]:
    """Every ``(head …)`` in an S-expression, outermost first."""
    if isinstance(node, list):
        if node and isinstance(node[0], str):
            yield node
        for each in node:
            yield from calls(each)


@dataclass(frozen=True)
class Rule:
    """A rule as written: ``form``: rule, rewrite or birewrite; ``query`` is the left-hand side with its guards, ``actions`` the right-hand side."""

    name: str
    ruleset: str
    file: Path
    line: int
    equation: str
    form: str
    query: list[Node]
    actions: list[Node]

    @property
    def unites(self) -> bool:
        """Whether it makes two terms equal; otherwise it adds facts or terms."""
        return self.form != "rule" or any(call[0] == "union" for part in self.actions for call in calls(part))


def option(form: list[Node], key: str) -> Node | None:
    """The value of ``:key`` in a form."""
    return form[form.index(key) + 1] if key in form else None


def written_rules() -> list[Rule]:
    """Every built-in rule, in load order."""
    base = load_rules()
    known = {(rule.file, rule.line): rule for rule in base.rules}
    found: list[Rule] = []
    for path in base.files:
        for form in forms_of(path):
            if form.head not in ("rule", "rewrite", "birewrite"):
                continue
            (tree,) = parse(form.text)
            assert isinstance(tree, list)
            info = known[str(path), form.line]
            if form.head == "rule":
                query, actions = tree[1], tree[2]
                assert isinstance(query, list) and isinstance(actions, list)
            else:
                guards = option(tree, ":when") or []
                assert isinstance(guards, list)
                query, actions = [tree[1], *guards], [tree[2]]
            found.append(
                Rule(info.name, info.ruleset, path, form.line, info.equation, form.head, query, actions)
            )
    return found
