"""The programs of documents 002 §5 and 004 §3.5, as corrected by the resolutions, against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
from ir_programs import ATTENTION, ATTENTION_004, CONV, CONV_004, GEMM, GEMM_004, leaf, load, op

from tinyc.ir import bind, dumps, evaluate, parse_json, program_from_document, program_to_document


def read(text: str):
    return program_from_document(parse_json(text))


def halves(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float16)


def conv(x: np.ndarray, w: np.ndarray, groups: int = 1) -> np.ndarray:
    """A direct 3×3 convolution, stride 2, pad 1, in float64."""
    n, total, h, wide = x.shape
    out, cin = w.shape[:2]
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    result = np.zeros((n, out, (h - 1) // 2 + 1, (wide - 1) // 2 + 1))
    for co in range(out):
        first = co // (out // groups) * cin
        for oy in range(result.shape[2]):
            for ox in range(result.shape[3]):
                window = padded[:, first : first + cin, 2 * oy : 2 * oy + 3, 2 * ox : 2 * ox + 3]
                result[:, co, oy, ox] = (window * w[co].astype(np.float64)).sum(axis=(1, 2, 3))
    assert total == groups * cin
    return result


def softmax(s: np.ndarray) -> np.ndarray:
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.spec("002-36", "002-38", "002-34", "002-03")
@pytest.mark.parametrize("m, n, k", [(150, 130, 70), (1, 1, 1), (64, 64, 64), (5, 7, 1)])
def test_gemm(rng, m, n, k):
    a, b = halves(rng, m, k), halves(rng, k, n)
    (c,) = evaluate(bind(read(GEMM), {"M": m, "N": n, "K": k}), {"A": a, "B": b})
    assert c.dtype == np.float16
    np.testing.assert_allclose(c, (a.astype(np.float64) @ b.astype(np.float64)), rtol=1e-3, atol=1e-3)


@pytest.mark.spec("002-37", "002-03")
def test_gemm_without_a_permutation(rng):
    """RESHAPE and EXPAND alone align B, where k stands before n in the product."""
    full = {"result_shape": ["M", "K", "N"]}
    program = load(
        leaf("A", ["M", "K"]), leaf("B", ["K", "N"]),
        op("a", "RESHAPE", "A", result_shape=["M", "K", 1]), op("b", "RESHAPE", "B", result_shape=[1, "K", "N"]),
        op("left", "EXPAND", "a", **full), op("right", "EXPAND", "b", **full),
        op("product", "MUL", "left", "right"), op("c", "REDUCE", "product", op="SUM", axes=["K"], dtype="fp32"),
    )  # fmt: skip
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((5, 7), (7, 4)))
    np.testing.assert_array_equal(evaluate(program, {"A": a, "B": b})[0], a @ b)


@pytest.mark.spec("002-39", "002-40", "002-03", "I-14", "I-16")
@pytest.mark.parametrize("h, w", [(5, 5), (6, 6), (7, 4)])
def test_grouped_conv(rng, h, w):
    x, weights, bias = halves(rng, 2, 6, h, w), halves(rng, 4, 3, 3, 3), halves(rng, 4)
    sizes = {"N": 2, "G": 2, "Cin": 3, "Rcout": 2, "H": h, "W": w}
    (y,) = evaluate(bind(read(CONV), sizes), {"X": x, "W": weights, "bias": bias})
    wanted = conv(x, weights, groups=2) + bias.astype(np.float64)[:, None, None]
    np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.spec("002-41", "002-42", "002-03", "004-034", "I-17", "I-18")
@pytest.mark.parametrize("m, n", [(4, 4), (4, 9)])
@pytest.mark.parametrize("text", [ATTENTION, ATTENTION_004])
def test_attention(rng, text, m, n):
    q, k = halves(rng, 2, 4, m, 8), halves(rng, 2, 4, n, 8)
    (p,) = evaluate(read(text), {"Q": q, "K": k})
    scores = np.einsum("bhmd,bhnd->bhmn", q.astype(np.float64), k.astype(np.float64))
    np.testing.assert_allclose(p, softmax(scores), rtol=1e-3, atol=1e-3)


@pytest.mark.spec("004-034", "004-022", "002-02", "I-05", "I-22")
def test_gemm_of_document_004(rng):
    a, b, bias = halves(rng, 6, 5), halves(rng, 5, 4), halves(rng, 4)
    program = read(GEMM_004)
    assert [port.name for port in program.inputs] == ["A", "B", "bias"]
    assert [port.name for port in program.outputs] == ["C2"]
    assert {node.uop for node in program.nodes}.isdisjoint({"CONTRACT", "POOL"})
    (c,) = evaluate(program, {"A": a, "B": b, "bias": bias})
    wanted = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias.astype(np.float64), 0)
    np.testing.assert_allclose(c, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.spec("004-034", "004-022", "I-23")
@pytest.mark.parametrize("h, w", [(5, 5), (6, 8)])
def test_conv_of_document_004(rng, h, w):
    x, weights = halves(rng, 2, 3, h, w), halves(rng, 4, 3, 3, 3)
    (y,) = evaluate(read(CONV_004), {"X": x, "W": weights})
    np.testing.assert_allclose(y, conv(x, weights), rtol=1e-3, atol=1e-3)


@pytest.mark.spec("004-010")
@pytest.mark.parametrize("text", [GEMM, CONV, ATTENTION, GEMM_004, CONV_004, ATTENTION_004])
def test_round_trip_is_byte_stable(text):
    first = dumps(program_to_document(read(text)))
    assert dumps(program_to_document(read(first))) == first
    assert first == dumps(program_to_document(read(text)))
    assert read(first) == read(text)


@pytest.mark.spec("002-35", "I-11")
def test_no_contract_is_left_and_ids_are_the_documents():
    gemm = read(GEMM)
    assert [node.id for node in gemm.nodes if "." not in node.id] == [f"n{at}" for at in range(10)]
    assert [node.id for node in gemm.nodes if "." in node.id] == ["n7.lhs", "n7.rhs"]


def test_a_512_cubed_gemm_needs_no_product_tensor(rng):
    import tracemalloc

    program = bind(read(GEMM), {"M": 512, "N": 512, "K": 512})
    a, b = halves(rng, 512, 512), halves(rng, 512, 512)
    tracemalloc.start()
    (c,) = evaluate(program, {"A": a, "B": b})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-3, atol=1e-2)
