"""Attention in Triton, as its tutorial on fused attention has it (Dao, FlashAttention-2, arXiv 2307.08691). Imported only where Triton is
installed; compiled, and never run."""

# Triton reads the source of the function: no `from __future__`, no annotations but its own
# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def attention(q, k, v, out, N, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """softmax(q kᵀ) v of one head for each program of the second axis; ``scale``: with the logarithm of 2 in it. Every tile is whole."""
    head = tl.program_id(1) * N * D
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n, d = tl.arange(0, BN), tl.arange(0, D)
    rows = tl.load(q + head + m[:, None] * D + d[None, :])
    keys = k + head + n[None, :] * D + d[:, None]
    values = v + head + n[:, None] * D + d[None, :]
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    sums = tl.zeros((BM, D), tl.float32)
    for _ in range(0, N, BN):
        scores = tl.dot(rows, tl.load(keys))
        most = tl.maximum(top, tl.max(scores, 1) * scale)
        powers = tl.math.exp2(scores * scale - most[:, None])
        fade = tl.math.exp2(top - most)
        total = total * fade + tl.sum(powers, 1)
        sums = tl.dot(powers.to(tl.float16), tl.load(values), sums * fade[:, None])
        top = most
        keys += BN * D
        values += BN * D
    tl.store(out + head + m[:, None] * D + d[None, :], (sums / total[:, None]).to(tl.float16))
