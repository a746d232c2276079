"""Bank conflicts, sectors, instructions and loops, against counts by hand."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from emulated import GEMM, gemm, run, unset

from tinyc.codegen.emulator.counters import _sectors, _wavefronts


def shared(stride: int, type: str = "float", lanes: int = 32, offset: int = 0) -> tuple[int, int]:
    """Wavefronts and the least possible of one warp that reads ``type`` at every ``stride``-th element."""
    source = f"""
KERNEL k({type}* y) {{
  extern __shared__ __align__(16) unsigned char memory[];
  {type}* tile = ({type}*)memory;
  volatile u32* words = (u32*)memory;
  for (int i = threadIdx.x; i < 8192; i += 32) words[i] = i;
  __syncthreads();
  if (threadIdx.x < {lanes}) y[threadIdx.x] = tile[threadIdx.x * {stride} + {offset}];
}}"""
    result = run(source, "k", 1, 32, [unset(32 * 4)], shared_bytes=32768)
    assert result.findings == ()
    (found,) = [each for each in result.counters.shared if each.instruction.startswith("ld")]
    assert found.executed == 1 and found.line > 0 and found.cuda.startswith("kernel.cu:")
    return found.wavefronts, found.ideal


@pytest.mark.parametrize(
    ("stride", "wavefronts"), [(0, 1), (1, 1), (2, 2), (3, 1), (4, 4), (5, 1), (8, 8), (16, 16), (32, 32), (33, 1), (64, 32)]
)  # fmt: skip
def test_words_of_four_bytes(stride: int, wavefronts: int) -> None:
    assert shared(stride) == (wavefronts, 1)


def test_bytes_of_one_word_go_together() -> None:
    assert shared(1, "unsigned char") == (1, 1)
    assert shared(2, "unsigned short") == (1, 1)
    assert shared(4, "unsigned short") == (2, 1)  # words at every second bank


def test_eight_bytes_go_by_halves_and_sixteen_by_quarters() -> None:
    assert shared(1, "double") == (2, 2)
    assert shared(2, "double") == (4, 2)
    assert shared(1, "float4") == (4, 4)
    assert shared(2, "float4") == (8, 4)
    assert shared(8, "float4") == (32, 4)
    assert shared(1, "float4", lanes=8) == (1, 1)
    assert shared(1, "double", lanes=20) == (2, 2)


def _by_hand(slots: list[int], addresses: list[int], size: int) -> tuple[int, int]:
    lanes = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[size]
    total, groups = 0, 0
    for group in sorted({slot // lanes for slot in slots}):
        banks: dict[int, set[int]] = defaultdict(set)
        for slot, address in zip(slots, addresses, strict=True):
            if slot // lanes == group:
                for byte in range(address, address + size):
                    banks[byte // 4 % 32].add(byte // 4)
        total += max(len(words) for words in banks.values())
        groups += 1
    return total, groups


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_wavefronts_of_any_pattern(size: int) -> None:
    rng = np.random.default_rng(size)
    for _ in range(50):
        slots = np.sort(rng.choice(96, rng.integers(1, 97), replace=False))
        addresses = rng.integers(0, 64, len(slots)) * size
        found = _wavefronts(slots, addresses, size)
        assert found[1:] == _by_hand(slots.tolist(), addresses.tolist(), size)
        assert found[0] == len({slot // 32 for slot in slots.tolist()})


@pytest.mark.parametrize("size", [1, 4, 16])
def test_sectors_of_any_pattern(size: int) -> None:
    rng = np.random.default_rng(size)
    for _ in range(50):
        slots = np.sort(rng.choice(96, rng.integers(1, 97), replace=False))
        addresses = (rng.integers(0, 200, len(slots)) * size + (1 << 40)).astype(np.uint64)
        touched: dict[int, set[int]] = defaultdict(set)
        places: dict[int, set[int]] = defaultdict(set)
        for slot, address in zip(slots.tolist(), addresses.tolist(), strict=True):
            touched[slot // 32].add(address // 32)
            places[slot // 32].add(address)
        wanted = (
            len(touched),
            sum(len(each) for each in touched.values()),
            sum(-(-len(each) * size // 32) for each in places.values()),
        )
        assert _sectors(slots, addresses, size) == wanted


@pytest.mark.parametrize(
    ("index", "sectors", "ideal"), [("t", 4, 4), ("2 * t", 8, 4), ("8 * t", 32, 4), ("0 * t", 1, 1), ("t + 1", 5, 4)]
)  # fmt: skip
def test_sectors_of_global_memory(index: str, sectors: int, ideal: int) -> None:
    source = f"KERNEL k(const float* x, float* y) {{ int t = threadIdx.x; y[t] = x[{index}]; }}"
    result = run(source, "k", 1, 64, [np.zeros(1024, np.float32), unset(64)])
    load, store = result.counters.global_
    extra = 2 * sectors if index != "t + 1" else 10
    if index in ("t", "t + 1", "0 * t", "2 * t", "8 * t"):
        assert (load.executed, load.sectors, load.ideal) == (2, extra, 2 * ideal)
    assert (store.executed, store.sectors, store.ideal) == (2, 8, 8)


def test_a_loop_counts_its_iterations_and_tensor_operations() -> None:
    counters = gemm(GEMM, 128, 128, 256)[0].counters
    assert counters.tensor_operations == 2 * 128 * 128 * 256
    (loop,) = [each for each in counters.loops if each.tensor_operations]
    assert loop.iterations == 8 * 8  # 8 warps, 256 / 32 steps
    assert loop.tensor_operations == 2 * 128 * 128 * 32 / 8
    assert loop.classes["tensor"] == 32 and loop.classes["shared"] == 12 and loop.classes["barrier"] == 1
    assert loop.first_line < loop.last_line and loop.cuda
    assert counters.instructions["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] == 32 * 64
    assert counters.classes["tensor"] == 32 * 64 and counters.barriers == 8 * 8
    assert sum(counters.instructions.values()) == sum(counters.classes.values())
    assert counters.bank_conflicts == 0
    assert all(each.sectors == each.ideal for each in counters.global_)


def test_divergent_warps_count_each_way() -> None:
    source = """
KERNEL k(float* y) {
  int t = threadIdx.x;
  float v = t;
  if (t % 2) { for (int i = 0; i < 10; i++) v = v * v + y[i]; } else v = sqrtf(v);
  y[t + 64] = v;
}"""
    counters = run(source, "k", 1, 64, [np.zeros(128, np.float32)]).counters
    assert counters.instructions["sqrt.rn.f32"] == 2  # one per warp, though half of its lanes
    assert counters.instructions["st.global.f32"] == 2
