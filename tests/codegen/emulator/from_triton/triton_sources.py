"""Kernels in Triton, as one would write them there. Only make_ptx.py imports this, with Triton; the tests run the PTX beside it."""

# Triton reads the source of a function: no `from __future__`, no annotations but its own
import triton.language as tl


def add(x, y, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = at < count
    tl.store(out + at, tl.load(x + at, mask=here) + tl.load(y + at, mask=here), mask=here)


def softmax(x, out, columns, stride, BLOCK: tl.constexpr):
    """A row of fp32 for each program."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    here = at < columns
    values = tl.load(x + row * stride + at, mask=here, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * stride + at, powers / tl.sum(powers, axis=0), mask=here)


def layer_norm(x, weight, bias, out, columns, epsilon, BLOCK: tl.constexpr):
    """A row of bf16 for each program, in fp32."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    here = at < columns
    values = tl.load(x + row * columns + at, mask=here, other=0.0).to(tl.float32)
    centred = tl.where(here, values - tl.sum(values, axis=0) / columns, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + epsilon)
    w = tl.load(weight + at, mask=here, other=0.0).to(tl.float32)
    b = tl.load(bias + at, mask=here, other=0.0).to(tl.float32)
    tl.store(out + row * columns + at, (centred * scale * w + b).to(tl.bfloat16), mask=here)


def sums(x, of_columns, of_all, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    """Of each column of fp32, and of everything: blocks of rows add up by atomics."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    here = (m[:, None] < rows) & (n[None, :] < columns)
    values = tl.load(x + m[:, None] * columns + n[None, :], mask=here, other=0.0)
    total = tl.sum(values, axis=0)
    tl.atomic_add(of_columns + n, total, mask=n < columns)
    tl.atomic_add(of_all, tl.sum(total, axis=0))


def scan(x, running, largest, place, columns, BLOCK: tl.constexpr):
    """Of each row of integers: running sums, the largest and where it is first."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    here = at < columns
    values = tl.load(x + row * columns + at, mask=here, other=-2147483648)
    tl.store(running + row * columns + at, tl.cumsum(tl.where(here, values, 0), axis=0), mask=here)
    tl.store(largest + row, tl.max(values, axis=0))
    tl.store(place + row, tl.argmax(values, axis=0))


def sort(x, out, BLOCK: tl.constexpr):
    """Rows of integers, each as long as a block is."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


def locked(lock, out, BLOCK: tl.constexpr):
    """One block after the other adds one: each waits until the lock is 0."""
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(out + at) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def random_bits(out, seed, count, BLOCK: tl.constexpr):
    """Philox, ten rounds of integer products."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.randint(seed, at), mask=at < count)


def gemm_bias_relu(
    a, b, c, bias, M, N, K, stride_a, stride_b, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """relu(a b + bias), all row by row, of any size; what is summed in is what c has, or fp32."""
    blocks = tl.cdiv(N, BN)
    m = tl.program_id(0) // blocks * BM + tl.arange(0, BM)
    n = tl.program_id(0) % blocks * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), tl.int32 if a.dtype.element_ty == tl.int8 else tl.float32)
    for begin in range(0, K, BK):
        left = tl.load(
            a + m[:, None] * stride_a + (begin + k)[None, :],
            mask=(m[:, None] < M) & ((begin + k)[None, :] < K),
            other=0,
        )
        right = tl.load(
            b + (begin + k)[:, None] * stride_b + n[None, :],
            mask=((begin + k)[:, None] < K) & (n[None, :] < N),
            other=0,
        )
        sums = tl.dot(left, right, sums)
    found = sums + tl.load(bias + n, mask=n < N, other=0)[None, :]
    here = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c + m[:, None] * N + n[None, :], tl.maximum(found, 0).to(c.dtype.element_ty), mask=here)


def attention(q, k, v, out, scale, length, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Causal, of one head for each program in y; fp16, the softmax in one pass."""
    head = tl.program_id(1) * length * D
    m, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    query = tl.load(q + head + m[:, None] * D + d[None, :], mask=m[:, None] < length, other=0.0)
    mixed = tl.zeros((BM, D), tl.float32)
    top, total = tl.full((BM,), -float("inf"), tl.float32), tl.zeros((BM,), tl.float32)
    for begin in range(0, tl.minimum(length, (tl.program_id(0) + 1) * BM), BN):
        n = begin + tl.arange(0, BN)
        key = tl.load(k + head + n[None, :] * D + d[:, None], mask=n[None, :] < length, other=0.0)
        scores = tl.dot(query, key) * (scale * 1.4426950408889634)
        scores = tl.where((m[:, None] >= n[None, :]) & (n[None, :] < length), scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, axis=1))
        powers, less = tl.exp2(scores - higher[:, None]), tl.exp2(top - higher)
        value = tl.load(v + head + n[:, None] * D + d[None, :], mask=n[:, None] < length, other=0.0)
        mixed = tl.dot(powers.to(tl.float16), value, mixed * less[:, None])
        top, total = higher, total * less + tl.sum(powers, axis=1)
    found = (mixed / total[:, None]).to(tl.float16)
    tl.store(out + head + m[:, None] * D + d[None, :], found, mask=m[:, None] < length)
