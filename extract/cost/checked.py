"""A user's cost model, held to the protocol: what is no estimate becomes a TinycError that names the method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from tinyc.ir.diagnostics import TinycError

from .hardware import Hardware
from .model import CostModel, Roofline, Work, terms_of

TOLERANCE = 1e-6
"""Of an estimate: how far its terms may be from adding up to it."""


def checked(model: CostModel) -> CostModel:
    """``model``, with every answer looked at: a number, finite, not negative. Raises TinycError CostModelInvalid, now for
    a missing method or an attribute ``hardware`` that is none, later for an answer."""
    if type(model) in (Roofline, Checked):
        return model
    for method in ("seconds", "kernel"):
        if not callable(getattr(model, method, None)):
            raise _invalid(model, method, "there is no such method")
    row = _asked(model, "hardware", lambda: model.hardware)
    if not isinstance(row, Hardware):
        raise _invalid(model, "hardware", f"it is {row!r}, not a row of the hardware table")
    return Checked(model, row)


@dataclass(frozen=True)
class Checked:
    """A model whose answers are looked at."""

    model: CostModel
    hardware: Hardware

    def seconds(self, work: Work) -> float:
        return _number(self.model, "seconds", _asked(self.model, "seconds", lambda: self.model.seconds(work)))

    def kernel(self, work: Work) -> float:
        return _number(self.model, "kernel", _asked(self.model, "kernel", lambda: self.model.kernel(work)))

    def terms(self, work: Work) -> Mapping[str, float]:
        """The model's terms, which must add up to its estimate; single ones may be negative."""
        whole = self.kernel(work)
        found = _asked(self.model, "terms", lambda: terms_of(self.model, work))
        if not isinstance(found, Mapping):
            raise _invalid(self.model, "terms", f"{found!r} is no mapping from names to numbers")
        terms = {
            str(name): _number(self.model, "terms", value, least=-math.inf) for name, value in found.items()
        }
        if abs(sum(terms.values()) - whole) > TOLERANCE * max(whole, 1e-30):
            raise _invalid(
                self.model, "terms", f"they add up to {sum(terms.values())}, the estimate is {whole}"
            )
        return terms


def _asked(model: object, method: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except TinycError:
        raise
    except Exception as error:
        raise _invalid(model, method, f"it raised {type(error).__name__}: {error}") from error


def _number(model: object, method: str, value: object, least: float = 0.0) -> float:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise _invalid(model, method, f"{value!r} is no number")
    number = float(value)
    if not math.isfinite(number) or number < least:
        raise _invalid(model, method, f"{number} is " + ("negative" if number < least else "not finite"))
    return number


def _invalid(model: object, method: str, why: str) -> TinycError:
    name = type(model).__name__
    return TinycError(
        "CostModelInvalid",
        f"{name}.{method}: {why}",
        "estimates are finite numbers of at least 0; docs/cost.md has a model to start from",
        at={"layer": "extract", "value": f"{name}.{method}"},
    )
