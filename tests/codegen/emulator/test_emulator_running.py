"""That everything ends, that the page is true, and what compiling says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from emulated import integers, kinds, run, unset

from tinyc import TinycError
from tinyc.codegen.emulator import emulate
from tinyc.codegen.nvrtc import compile_ptx

PAGE = Path(__file__).parents[3] / "docs" / "emulator.md"


EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_examples_of_the_page_run(code: str) -> None:
    exec(compile(code, "emulator.md", "exec"), {})


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) == 2


@pytest.mark.parametrize(
    "body",
    [
        "for (;;) if (x[0] == 7) break;",
        "volatile int* v = x; while (true) { if (*v > threadIdx.x) v += 0; else if (*v == 99) return; }",
        "volatile int* v = x; while (*v + (int)threadIdx.x < 1000) if (threadIdx.x % 3) *v; else if (*v) return;",
    ],
)
def test_a_loop_that_never_ends_is_stopped(body: str) -> None:
    with pytest.raises(TinycError) as caught:
        run(f"KERNEL k(volatile int* x) {{ {body} }}".replace("volatile int* v = x;", "volatile int* v = x;"),
            "k", 1, 64, [np.zeros(4, np.int32)], limit=60_000)  # fmt: skip
    assert caught.value.code == "E1706" and "k has executed" in caught.value.why


def test_lanes_that_take_a_lock_in_turn_all_get_it() -> None:
    """The lanes that spin have the lower program counter; the one that holds the lock must have its turn."""
    source = """
KERNEL locked(int* lock, int* total) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      __threadfence();
      *total += 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}"""
    result = run(source, "locked", 2, 32, [np.zeros(1, np.int32), np.zeros(1, np.int32)], limit=10_000_000)
    assert result.outputs[1][0] == 64 and result.findings == ()
    unlocked = run(source.replace("__threadfence();", ""), "locked", 2, 32, [np.zeros(1, np.int32)] * 0 + [
        np.zeros(1, np.int32), np.zeros(1, np.int32)], limit=10_000_000)  # fmt: skip
    assert kinds(unlocked) == {"race"}


def test_blocks_that_wait_for_each_other_run_together() -> None:
    source = """
KERNEL grid(const float* x, float* part, volatile u32* count, float* y) {
  int t = blockIdx.x * 32 + threadIdx.x;
  part[t] = 2 * x[t];
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd((u32*)count, 1);
    while (*count < gridDim.x) { }
    __threadfence();
  }
  __syncthreads();
  y[t] = part[(t + 32) % (gridDim.x * 32)];
}"""
    x = integers(0, 256)
    arguments = [x, unset(256), np.zeros(1, np.uint32), unset(256)]
    result = run(source, "grid", 8, 32, arguments)
    assert [str(each) for each in result.findings] == []
    np.testing.assert_array_equal(result.outputs[3], np.roll(2 * x, -32))
    without = run(source.replace("while (*count < gridDim.x) { }", ""), "grid", 8, 32, arguments)
    assert "race" in kinds(without)
    with pytest.raises(TinycError) as caught:
        run(source, "grid", 8, 32, arguments, together=64, limit=100_000)
    assert caught.value.code == "E1706"


def test_findings_say_where_and_why() -> None:
    source = """
KERNEL k(const float* x, float* y) {
  __shared__ float tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = tile[63 - threadIdx.x];
}"""
    (found,) = run(source, "k", (2, 3), 64, [np.zeros(64, np.float32), np.zeros(64, np.float32)]).findings[:1]
    shared = [each for each in run(source, "k", 1, 64, [integers(0, 64), unset(64)]).findings]
    assert [each.kind for each in shared] == ["race"] and shared[0].count == 64
    assert shared[0].text == "y[threadIdx.x] = tile[63 - threadIdx.x];" and shared[0].space == "shared"
    assert (shared[0].block, shared[0].warp, shared[0].lane, shared[0].address) == ((0, 0, 0), 0, 0, 63 * 4)
    assert "warp 1, lane 31" in shared[0].why and "kernel.cu:" in shared[0].why
    for part in (
        "race at PTX line",
        "ld.shared.f32 (64 times)",
        "tile[63",
        "block (0, 0, 0), warp 0, lane 0",
    ):
        assert part in str(shared[0])
    assert found.line > 0


def test_the_same_run_gives_the_same_result() -> None:
    source = "KERNEL k(float* y) { atomicAdd(y, threadIdx.x * 0.1f); y[1] = 3; }"
    text = compile_ptx('#define KERNEL extern "C" __global__ void\n' + source)
    first, second = (
        emulate(text, "k", 4, 64, [np.zeros(2, np.float32)], delivery="random", seed=3) for _ in range(2)
    )
    assert first.outputs[0].tobytes() == second.outputs[0].tobytes()
    assert first.findings == second.findings and first.counters == second.counters
    assert kinds(first) == {"race"}


def test_nvrtc_says_what_it_refuses() -> None:
    with pytest.raises(TinycError) as caught:
        compile_ptx('int x;\nextern "C" __global__ void k(int* y) { *y = z; }')
    assert caught.value.code == "E1707" and '"z" is undefined' in caught.value.why
    with pytest.raises(TinycError) as caught:
        compile_ptx("", "sm_1234")
    assert caught.value.code == "E1707" and "sm_1234" in caught.value.why


def test_ptx_knows_its_architecture_and_its_lines() -> None:
    source = 'extern "C" __global__ void k(int* y) {\n  *y = 1;\n}'
    assert ".target sm_80" in compile_ptx(source) and ".target sm_90a" in compile_ptx(source, "sm_90a")
    result = emulate(compile_ptx(source), "k", 1, 2, [np.zeros(1, np.int32)], source=source)
    assert [(each.cuda, each.text) for each in result.findings] == [("kernel.cu:2", "*y = 1;")]
