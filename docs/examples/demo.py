"""The main job, start to end: relu(A·B + bias), written naively, becomes one fused kernel that runs here.

``make demo``, or ``python docs/examples/demo.py``.
"""

from __future__ import annotations

import numpy as np

import tinyc
from tinyc.ir import evaluate

M, N, K = 150, 130, 70


def gemm_bias_relu(a, b, bias):  # type: ignore[no-untyped-def]
    """No matrix product in sight: movement makes three axes of two, multiply, sum, add, relu."""
    a = a.reshape(M, 1, K).broadcast_to(M, N, K)
    b = b.permute(1, 0).reshape(1, N, K).broadcast_to(M, N, K)
    product = (a * b).sum(axis=2)
    return (product + bias.reshape(1, N).broadcast_to(M, N)).relu()


def main() -> None:
    program = tinyc.trace(
        gemm_bias_relu, tinyc.spec("fp32", (M, K)), tinyc.spec("fp32", (K, N)), tinyc.spec("fp32", (N,))
    )
    heading(f"The naive program: {len(program.nodes)} nodes")
    for node in program.nodes:
        shape = "×".join(map(str, program.types[node.id].shape))
        print(f"  {node.id:4} {node.uop:8} {' '.join(map(str, node.src)):12} {shape}")

    compiled = tinyc.optimize_and_compile(program)

    heading("The generated code")
    for kernel in compiled.kernels:
        lines = kernel.source.splitlines()
        print("\n".join(lines[:40]))
        print(f"… {len(lines)} lines of LLVM IR; kernel {kernel.name}, algorithm {kernel.plan.algo!r}")

    heading("The report")
    print(compiled.report)

    heading("The result, against the reference evaluator")
    random = np.random.default_rng(0)
    a, b, bias = (random.standard_normal(shape, dtype=np.float32) for shape in ((M, K), (K, N), (N,)))
    got = compiled(a, b, bias)
    (wanted,) = evaluate(
        program, {port.name: x for port, x in zip(program.inputs, (a, b, bias), strict=True)}
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)
    print(f"right: {got.size} elements, largest difference {abs(got - wanted).max():.2g}")


def heading(text: str) -> None:
    print(f"\n== {text} ==\n")


if __name__ == "__main__":
    main()
