"""Variables that have a value, and the arguments of steps over them."""

from __future__ import annotations

from .parse import Lit, Var
from .steps import Arg
from .term import Value


class Bindings:
    """``env``: the value of each variable that has one."""

    def __init__(self, env: dict[str, Value]) -> None:
        self.env = env

    def bound(self, arg: Arg | None) -> bool:
        return isinstance(arg, Lit) or (isinstance(arg, Var) and arg.name in self.env)

    def get(self, arg: Arg) -> Value:
        return arg.value if isinstance(arg, Lit) else self.env[arg.name]
