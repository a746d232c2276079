"""A product and a softmax in Triton, as one would write them there. Imported only where Triton is installed."""

# Triton reads the source of the functions: no `from __future__`, no annotations but its own
# mypy: ignore-errors
import triton
import triton.language as tl

PRODUCTS = (
    # tile of a block along m, n and k; stages; warps
    (64, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (128, 64, 64, 4, 4),
    (128, 128, 32, 4, 4),
    (128, 128, 64, 3, 4),
    (128, 128, 64, 3, 8),
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
)
"""What the product is tried with; the fastest is taken."""


def gemm_bias_relu(
    a,
    b,
    c,
    bias,
    M,
    N,
    K,
    stride_a,
    stride_b,
    stride_c,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    """relu(a b + bias), all row by row; every tile is whole. GROUP rows of tiles are walked together, so that they find
    each other's operands in the L2 cache."""
    number = tl.program_id(0)
    blocks_n = N // BN
    first = number // (GROUP * blocks_n) * GROUP
    rows = tl.minimum(M // BM - first, GROUP)
    inside = number % (GROUP * blocks_n)
    m = (first + inside % rows) * BM + tl.arange(0, BM)
    n = inside // rows * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_tile = a + m[:, None] * stride_a + k[None, :]
    b_tile = b + k[:, None] * stride_b + n[None, :]
    sums = tl.zeros((BM, BN), tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        sums = tl.dot(tl.load(a_tile), tl.load(b_tile), sums)
        a_tile += BK
        b_tile += BK * stride_b
    found = sums.to(c.dtype.element_ty) + tl.load(bias + n)[None, :]
    tl.store(c + m[:, None] * stride_c + n[None, :], tl.maximum(found, 0.0).to(c.dtype.element_ty))


def softmax(x, out, columns, stride, WIDTH: tl.constexpr):
    """A row for each program, all of it in registers. WIDTH: the power of two from ``columns`` on."""
    row = tl.program_id(0)
    places = tl.arange(0, WIDTH)
    inside = places < columns
    values = tl.load(x + row * stride + places, inside, other=float("-inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * stride + places, (powers / tl.sum(powers, 0)).to(out.dtype.element_ty), inside)


def functions(torch):
    """Program -> function over torch's tensors. The product raises ValueError for sizes that it does not take."""
    configurations = [
        triton.Config({"BM": m, "BN": n, "BK": k, "GROUP": 8}, num_warps=warps, num_stages=stages)
        for m, n, k, stages, warps in PRODUCTS
    ]
    product = triton.autotune(configurations, key=["M", "N", "K"])(triton.jit(gemm_bias_relu))
    row = triton.jit(softmax)

    def call_product(a, b, bias):
        (m, k), n = a.shape, b.shape[1]
        if m % 256 or n % 256 or k % 64:
            raise ValueError("its tiles are whole")
        c = torch.empty((m, n), device=a.device, dtype=a.dtype)

        def grid(chosen):
            return ((m // chosen["BM"]) * (n // chosen["BN"]),)

        product[grid](a, b, c, bias, m, n, k, a.stride(0), b.stride(0), c.stride(0))
        return c

    def call_softmax(x):
        rows, columns = x.shape
        out = torch.empty_like(x)
        width = triton.next_power_of_2(columns)
        row[(rows,)](x, out, columns, x.stride(0), WIDTH=width, num_warps=min(32, max(4, width // 512)))
        return out

    return {"gemm_bias_relu": call_product, "softmax": call_softmax}
