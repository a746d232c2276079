"""What a program's Regions compute, in both forms, by playback. For property tests over whole programs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from random_programs import agree

from tinyc.codegen.playback import play
from tinyc.ir.check_region import fault
from tinyc.ir.evaluate import evaluate
from tinyc.ir.explicit import ccon1_fault, explicit, misaligned, point
from tinyc.ir.plan import Extracted
from tinyc.ir.tiny import Program

#: operations whose results are rounded: what follows may differ where a sum is taken in another order
ROUNDED = frozenset({"EXP2", "LOG2", "SQRT", "RSQRT", "RECIP", "SIN", "FDIV", "POW"})


def check_forms(program: Program, extracted: Extracted, inputs: dict[str, NDArray[np.generic]]) -> None:
    """Playback of the point form, of the explicit form and the Tiny evaluator agree: exactly where arithmetic is exact,
    within the tolerance of the dtype elsewhere. Every Region is sound in both forms, and holds C-CON1."""
    shown = replace(extracted, regions=tuple(explicit(region) for region in extracted.regions))
    for region, wide in zip(extracted.regions, shown.regions, strict=True):
        assert point(wide) == region and explicit(wide) == wide
        assert fault(region) is None and fault(wide) is None
        assert misaligned(wide) is None and ccon1_fault(wide) is None
    arrays = [inputs[port.name] for port in program.inputs]
    exact = not any(node.uop in ROUNDED for node in program.nodes)
    wanted, real = evaluate(program, inputs), evaluate(program, inputs, float64=True)
    both = zip(play(extracted, arrays), play(shown, arrays), strict=True)
    for (at_points, over_axes), want, value in zip(both, wanted, real, strict=True):
        for got in (at_points, over_axes):
            assert got.dtype == want.dtype and got.shape == want.shape
            assert agree(got, want, value).all()
        if exact:
            np.testing.assert_array_equal(at_points, over_axes)
