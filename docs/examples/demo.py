"""The main job, start to end: relu(A·B + bias), written naively, becomes one fused kernel that runs here.

``make demo``, or ``python docs/examples/demo.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tinyc
from tinyc.compiler import KernelInfo
from tinyc.ir import evaluate

M, N, K = 150, 130, 70


def gemm_bias_relu(a: Any, b: Any, bias: Any) -> Any:
    """No matrix product in sight: movement makes three axes of two; then multiply, sum, add, relu."""
    a = a.reshape(M, 1, K).broadcast_to(M, N, K)
    b = b.permute(1, 0).reshape(1, N, K).broadcast_to(M, N, K)
    product = (a * b).sum(axis=2)
    return (product + bias.reshape(1, N).broadcast_to(M, N)).relu()


def main() -> None:
    program = tinyc.trace(
        gemm_bias_relu, tinyc.spec("fp32", (M, K)), tinyc.spec("fp32", (K, N)), tinyc.spec("fp32", (N,))
    )
    heading(f"1. The naive program: {len(program.nodes)} nodes")
    for node in program.nodes:
        shape = "×".join(map(str, program.types[node.id].shape))
        print(f"  {node.id:4} {node.uop:8} {' '.join(map(str, node.src)):12} {shape}")

    compiled = tinyc.optimize_and_compile(program)

    heading("2. The report: what was chosen, and why the naive program lost")
    # what the rules did, which `tinyc report` shows as well, is left out here
    print(str(compiled.report).partition("\nRules: ")[0])

    heading("3. The generated code")
    for kernel in compiled.kernels:
        show_code(kernel)

    heading("4. The result, against the reference evaluator")
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape, dtype=np.float32) for shape in ((M, K), (K, N), (N,))]
    got = compiled(*arrays)
    (wanted,) = evaluate(program, dict(zip((port.name for port in program.inputs), arrays, strict=True)))
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)
    print(f"right: {got.size} elements, largest difference {abs(got - wanted).max():.2g}")

    a, b, bias = arrays
    ours, numpys = best_ms(lambda: compiled(a, b, bias)), best_ms(lambda: np.maximum(a @ b + bias, 0))
    print(f"a call takes {ours:.3f} ms here, numpy {numpys:.3f} ms (best of 50 each)")
    size = 4 * M * N * K
    print(f"it allocates {compiled.executable.peak_bytes:,} bytes beside its operands; A·B alone, written")
    print(f"out as the naive program says, is a tensor of {size:,} bytes")


def show_code(kernel: KernelInfo) -> None:
    """The Region in the head of the source, a few lines of the innermost loop, and the entry."""
    lines = kernel.source.splitlines()
    head = next(number for number, line in enumerate(lines) if not line.startswith(";"))
    entry = next(number for number, line in enumerate(lines) if f"@{kernel.name}(" in line)
    inner = [line for line in lines if "x float> @llvm.fma" in line][:3]
    print("\n".join(lines[:head]))
    if inner:
        print("\n; … the innermost loop:")
        print("\n".join(inner))
    print("\n; … the entry:")
    print("\n".join(lines[entry : lines.index("}", entry) + 1]))
    print(f"\n{len(lines)} lines of LLVM IR for {kernel.name}; all of it: compiled.kernels[0].source")


def best_ms(call: Callable[[], object]) -> float:
    times = []
    for _ in range(50):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return 1e3 * min(times)


def heading(text: str) -> None:
    print(f"\n== {text} ==\n")


if __name__ == "__main__":
    main()
