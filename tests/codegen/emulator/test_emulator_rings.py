"""Rings of cp.async of every size: exactly those that are right are clean, in every delivery.

A ring of S stages copies D steps ahead and waits until N groups are left. At step k there are D + k groups, of which group k
is needed: N must be at most D - 1. The stage that is filled at step k, of step k + D, must not be one that is read or still
to be read: D must be at most S - 1. And all threads must have come to step k before it is filled, and its copies be over for all
of them: the barrier stands between the wait and the copy.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from emulated import DELIVERIES, integers, run, unset

STEPS = 7


def ring(stages: int, ahead: int, left: int, order: str) -> str:
    parts = {
        "w": f"wait<{left}>();",
        "b": "__syncthreads();",
        "c": f"if (k + {ahead} < {STEPS}) copy4(&stage[(k + {ahead}) % {stages}][t], x + (k + {ahead}) * 64 + t); commit();",
        "r": f"sum += stage[k % {stages}][t ^ 33];",
    }
    return f"""
KERNEL ring(const float* x, float* y) {{
  __shared__ float stage[{stages}][64];
  int t = threadIdx.x;
  float sum = 0;
  for (int s = 0; s < {ahead}; s++) {{ copy4(&stage[s % {stages}][t], x + s * 64 + t); commit(); }}
  for (int k = 0; k < {STEPS}; k++) {{
    {" ".join(parts[part] for part in order)}
  }}
  y[t] = sum;
}}"""


def is_right(stages: int, ahead: int, left: int, order: str) -> bool:
    """``order`` of a step: w(ait), b(arrier), c(opy), r(ead)."""
    if order == "wbcr":
        return ahead <= stages - 1 and left <= ahead - 1
    if order == "wbrbc":  # all have read before the copy starts: one stage more may be filled
        return ahead <= stages and left <= ahead - 1
    if (
        order == "cwbr"
    ):  # the copy starts before the barrier, with one group more; others may still read step k - 1
        return ahead <= stages - 2 and left <= ahead
    if order == "cwbrb":
        return ahead <= stages - 1 and left <= ahead
    return False  # bwcr, wcr: no barrier between the others' waits and the read


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("order", ["wbcr", "wbrbc", "cwbr", "cwbrb", "bwcr", "wcr"])
def test_exactly_the_right_rings_are_clean(order: str, delivery: str) -> None:
    x = integers(0, STEPS * 64)
    wanted = x.reshape(STEPS, 64).sum(0)[np.arange(64) ^ 33]
    outcomes = set()
    for stages, ahead, left in itertools.product((2, 3, 4), (1, 2, 3), (0, 1, 2)):
        result = run(
            ring(stages, ahead, left, order), "ring", 1, 64, [x, unset(64)], delivery=delivery, seed=stages
        )
        right = is_right(stages, ahead, left, order)
        findings = [str(each) for each in result.findings]
        assert (findings == []) == right, (stages, ahead, left, findings)
        if right:
            np.testing.assert_array_equal(result.outputs[1], wanted)
        outcomes.add(right)
    assert outcomes == ({True, False} if order not in ("bwcr", "wcr") else {False})
