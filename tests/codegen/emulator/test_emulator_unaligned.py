"""``barrier.sync`` that is not ``.aligned``: lanes of a warp come to it one by one, and at different places. PTX ISA, "barrier"."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import DELIVERIES, kinds, run, unset

from tinyc.codegen.emulator.copies import Delivery

NEIGHBOURS = """
__device__ __forceinline__ void meet() { asm volatile("barrier.sync 0;" ::: "memory"); }
KERNEL neighbours(int* y, int n) {
  __shared__ int tile[64];
  const int t = threadIdx.x;
  tile[t] = t;
  if (t % 2) { meet(); tile[t] += 0; } else { meet(); y[t + 64] = 7; }
  meet();
  y[t] = tile[n - 1 - t];
}"""
HALVES = """
KERNEL halves(int* y) {
  __shared__ int tile[64];
  const int t = threadIdx.x;
  y[t] = 0;
  tile[t] = t;
  if (t % 2) {
    asm volatile("barrier.sync 3, 32;" ::: "memory");
    y[t] = tile[t ^ 32];
  }
}"""


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("threads", [1, 32, 50, 64])
def test_lanes_come_one_by_one(threads: int, delivery: Delivery) -> None:
    result = run(NEIGHBOURS, "neighbours", 2, threads, [np.zeros(128, np.int32), threads], delivery=delivery)
    assert kinds(result) == {"race"}  # of the two blocks, in y
    result = run(NEIGHBOURS, "neighbours", 1, threads, [unset(128, np.int32), threads], delivery=delivery)
    assert kinds(result) == set() and result.complete
    np.testing.assert_array_equal(result.outputs[0][:threads], np.arange(threads)[::-1])


def test_lanes_are_counted_and_not_warps() -> None:
    """16 of each of two warps are 32 threads."""
    result = run(HALVES, "halves", 1, 64, [unset(64, np.int32)])
    assert kinds(result) == set() and result.complete
    np.testing.assert_array_equal(result.outputs[0], np.arange(64) % 2 * (np.arange(64) ^ 32))


@pytest.mark.parametrize(
    ("source", "right", "wrong", "kind"),
    [
        (HALVES, "3, 32;", "3, 64;", "deadlock"),
        (HALVES, 'asm volatile("barrier.sync 3, 32;" ::: "memory");', "", "race"),
        (HALVES, "t % 2)", "t % 2 && t != 5)", "deadlock"),
        (NEIGHBOURS, "if (t % 2) { meet();", "if (t % 2) {", "barrier"),
        (NEIGHBOURS, "{ meet(); y[t + 64] = 7; }", "{ return; }", "barrier"),
    ],
)
def test_a_planted_fault_is_found(source: str, right: str, wrong: str, kind: str) -> None:
    assert right in source
    arguments = [unset(128, np.int32), 64] if source is NEIGHBOURS else [unset(64, np.int32)]
    name = "neighbours" if source is NEIGHBOURS else "halves"
    assert kind in kinds(run(source.replace(right, wrong), name, 1, 64, arguments))
