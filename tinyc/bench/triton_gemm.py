"""A product in Triton, as one would write it there. Imported only where Triton is installed."""

# Triton reads the source of the function: no `from __future__`, no annotations but its own
# mypy: ignore-errors
import triton.language as tl


def gemm_bias_relu(
    a,
    b,
    c,
    bias,
    K,
    stride_a,
    stride_b,
    stride_c,
    blocks_n,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """relu(a b + bias), all row by row; every tile is whole."""
    number = tl.program_id(0)
    m = number // blocks_n * BM + tl.arange(0, BM)
    n = number % blocks_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_tile = a + m[:, None] * stride_a + k[None, :]
    b_tile = b + k[:, None] * stride_b + n[None, :]
    sums = tl.zeros((BM, BN), tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        sums = tl.dot(tl.load(a_tile), tl.load(b_tile), sums)
        a_tile += BK
        b_tile += BK * stride_b
    found = sums.to(tl.float16) + tl.load(bias + n)[None, :]
    tl.store(c + m[:, None] * stride_c + n[None, :], tl.maximum(found, 0.0).to(tl.float16))
