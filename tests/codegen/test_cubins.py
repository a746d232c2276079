"""Machine code for GPUs, and what ptxas says that kernels take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tinyc.codegen.nvrtc import compile_cubin, usage_in
from tinyc.ir.diagnostics import TinycError
from tinyc.ir.usage import KernelUsage

SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) spills(const float* x, float* y) {
  float v[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 64; ++i) y[i * 1024 + threadIdx.x] = v[63 - i] * v[(i * 7) % 64];
}
extern "C" __global__ void plain(float* x) {
  __shared__ float s[32];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[31 - threadIdx.x];
}
extern "C" __global__ void indexed(const float* x, float* y, int n) {
  float v[256];
  for (int i = 0; i < 256; ++i) v[i] = x[i];
  for (int i = 0; i < n; ++i) v[(i * 37) % 256] += v[i % 256];
  y[threadIdx.x] = v[n];
}
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_86", "sm_89"])
def test_what_kernels_take_is_read_back(arch: str) -> None:
    cubin = compile_cubin(SPILLS, arch)
    assert cubin.image.startswith(b"\x7fELF") and f".target {arch}" in cubin.ptx
    usage = {each.kernel: each for each in cubin.usage}
    assert set(usage) == {"spills", "plain", "indexed"} and {each.arch for each in cubin.usage} == {arch}
    spills, plain, indexed = usage["spills"], usage["plain"], usage["indexed"]
    assert spills.registers <= 64 and spills.spill_store_bytes > 0 and spills.spill_load_bytes > 0
    assert spills.fault and "spill stores" in spills.fault
    assert (plain.stack_bytes, plain.spill_store_bytes, plain.spill_load_bytes, plain.fault) == (
        0,
        0,
        0,
        None,
    )
    assert plain.shared_bytes - spills.shared_bytes == 128 and 0 < plain.registers <= 32
    assert indexed.stack_bytes == 1024 and indexed.fault == "a stack of 1024 bytes"


def test_equal_sources_give_equal_machine_code() -> None:
    again = compile_cubin.__wrapped__
    assert again(SPILLS) == again(SPILLS)


def test_a_virtual_architecture_has_no_machine_code() -> None:
    cubin = compile_cubin(SPILLS, "compute_80")
    assert cubin.image == b"" and cubin.usage == () and "spills" in cubin.ptx


def test_what_ptxas_refuses_is_an_error() -> None:
    wrong = 'extern "C" __global__ void k(int* x) { asm("mov.b32 %0, %%nothing;" : "=r"(x[0])); }'
    with pytest.raises(TinycError) as caught:
        compile_cubin(wrong)
    assert caught.value.kind == "CudaRefused"


def test_a_log_without_figures_says_nothing() -> None:
    text = "Compiling entry function 'k' for 'sm_80'\n 8 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads\n"
    assert usage_in("") == usage_in("nothing") == usage_in(text) == ()
    assert usage_in(text + "Used 12 registers") == (KernelUsage("k", "sm_80", 12, 8, 0, 4, 0),)
    helper = (
        "Function properties for helper\n 96 bytes stack frame, 8 bytes spill stores, 0 bytes spill loads\n"
    )
    (found,) = usage_in(text + "Used 12 registers" + helper)
    assert (found.stack_bytes, found.spill_store_bytes) == (96, 8), "of functions that it calls as well"


def test_a_log_of_one_byte_is_written_to_memory_of_its_own() -> None:
    """NVRTC ends an empty log with a zero. Bytes of one byte are shared by the whole process."""
    compile_cubin('extern "C" __global__ void quiet(float* x) { x[0] = 1.0f; }', "compute_80")
    assert [bytes([each])[0] for each in range(256)] == list(range(256))


@pytest.mark.parametrize("arch", ["compute_80", "sm_80"])
def test_machine_code_does_not_say_where_it_was_compiled(
    arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        found.append(compile_cubin.__wrapped__(SPILLS, arch))
    assert found[0] == found[1]
    assert b"here" not in found[0].image and "here" not in found[0].ptx
