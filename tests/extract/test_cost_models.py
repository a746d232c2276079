"""Cost models that a user writes: one that minimises memory, and ones that are none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

import tinyc
from tinyc import TinycError
from tinyc.extract.cost.checked import Checked, checked
from tinyc.extract.cost.hardware import Hardware, hardware
from tinyc.extract.cost.model import Roofline, Work, terms_of
from tinyc.ir.tiny import Program

CPU = hardware("cpu")
FREE_LAUNCHES = replace(CPU, launch=0.0)


def three_uses(size: int = 256) -> Program:
    def program(a: tinyc.Tensor, b: tinyc.Tensor) -> tuple[tinyc.Tensor, ...]:
        product = a @ b
        return product.relu(), product * product, product + 1.0

    return tinyc.trace(program, *[tinyc.spec("fp32", (size, size))] * 2)


@dataclass(frozen=True)
class LeastMemory:
    """Bytes of the buffers that kernels fill; arithmetic only decides between equals."""

    hardware: Hardware = FREE_LAUNCHES

    def seconds(self, work: Work) -> float:
        return work.bytes_written + 1e-9 * (work.flops + work.vector_flops + work.ops)

    def kernel(self, work: Work) -> float:
        return self.seconds(work)


def materialised(compiled: Any) -> int:
    return sum(ref.bytes for kernel in compiled.kernels for ref in kernel.region.outputs)


def test_a_model_that_minimises_memory_stores_less() -> None:
    """The product is not stored: each of its three uses computes it again."""
    program = three_uses()
    fast = tinyc.optimize_and_compile(program)
    small = tinyc.optimize_and_compile(program, cost_model=LeastMemory())
    assert (len(fast.kernels), len(small.kernels)) == (4, 3)
    assert (materialised(fast), materialised(small)) == (4 * 256 * 256 * 4, 3 * 256 * 256 * 4)
    arrays = [np.random.default_rng(0).integers(-3, 4, (256, 256)).astype(np.float32) for _ in range(2)]
    for one, other in zip(fast(*arrays), small(*arrays), strict=True):
        np.testing.assert_array_equal(one, other)


@dataclass(frozen=True)
class Broken:
    """Answers as told."""

    answers: Mapping[str, Callable[[Work], Any]] = field(default_factory=dict)
    hardware: Any = CPU

    def seconds(self, work: Work) -> Any:
        return self.answers.get("seconds", lambda work: 1.0)(work)

    def kernel(self, work: Work) -> Any:
        return self.answers.get("kernel", lambda work: 1.0)(work)


class WithTerms(Broken):
    def terms(self, work: Work) -> Any:
        return self.answers["terms"](work)


def failing(work: Work) -> float:
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize("method", ["seconds", "kernel"])
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda work: None, "None is no number"),
        (lambda work: "1.0", "'1.0' is no number"),
        (lambda work: True, "True is no number"),
        (lambda work: 1j, "1j is no number"),
        (lambda work: math.nan, "nan is not finite"),
        (lambda work: math.inf, "inf is not finite"),
        (lambda work: -1e-9, "-1e-09 is negative"),
        (failing, "ZeroDivisionError: division by zero"),
    ],
    ids=["none", "text", "bool", "complex", "nan", "inf", "negative", "raises"],
)
def test_what_is_no_estimate_is_an_error(method: str, answer: Callable[[Work], Any], said: str) -> None:
    with pytest.raises(TinycError) as raised:
        tinyc.optimize_and_compile(three_uses(4), cost_model=Broken({method: answer}))
    assert (raised.value.kind, raised.value.code) == ("CostModelInvalid", "E1507")
    assert f"Broken.{method}" in raised.value.why
    assert said in raised.value.why


@pytest.mark.parametrize("model", [object(), 3, Roofline, Broken(hardware="cpu"), Broken(hardware=None)])
def test_what_is_no_model_is_an_error_before_anything_is_compiled(model: Any) -> None:
    unbound = tinyc.trace(lambda a: -a, tinyc.spec("fp32", ("N",)))
    with pytest.raises(TinycError) as raised:
        tinyc.optimize_and_compile(unbound, cost_model=model)
    assert raised.value.kind == "CostModelInvalid"


def test_numbers_of_every_kind_are_estimates() -> None:
    for value in (0, 1, np.float32(2.0), np.int64(3), np.float64(4.0)):
        number = checked(Broken({"kernel": lambda work, value=value: value})).kernel(Work())
        assert type(number) is float
        assert number == float(value)


def test_terms_add_up_or_are_refused() -> None:
    right = checked(WithTerms({"terms": lambda work: {"a": 3, "gain": -2.0}}))
    assert terms_of(right, Work()) == {"a": 3.0, "gain": -2.0}
    assert terms_of(checked(Broken()), Work()) == {"estimate": 1.0}
    for answer in ({"a": 0.5}, {"a": math.nan}, {"a": None}, [1.0], None):
        with pytest.raises(TinycError) as raised:
            terms_of(checked(WithTerms({"terms": lambda work, answer=answer: answer})), Work())
        assert raised.value.kind == "CostModelInvalid"
        assert "WithTerms.terms" in raised.value.why


def test_only_the_default_model_is_not_wrapped() -> None:
    model = Roofline(CPU)
    assert checked(model) is model

    class Doubled(Roofline):
        def kernel(self, work: Work) -> float:
            return -1.0

    with pytest.raises(TinycError):
        checked(Doubled(CPU)).kernel(Work())
    user = checked(LeastMemory())
    assert isinstance(user, Checked)
    assert checked(user) is user


def test_a_models_own_diagnostic_is_kept() -> None:
    def refuse(work: Work) -> float:
        raise TinycError("InvalidArgument", "not for this machine", "use another")

    with pytest.raises(TinycError) as raised:
        checked(Broken({"kernel": refuse})).kernel(Work())
    assert raised.value.kind == "InvalidArgument"
