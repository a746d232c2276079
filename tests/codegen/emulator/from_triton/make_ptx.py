"""Writes the PTX beside this file: ``python make_ptx.py``, in an environment with Triton (made by 3.9.0). No GPU is needed.

Each is what Triton makes for sm_80, without lines of sources and without debug sections. Its first lines say of which kernel, with
what constants, and with how many bytes of shared memory it is launched.
"""

import os
import re
from pathlib import Path

os.environ |= {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_DEFAULT_FP_FUSION": "1"}

import triton
import triton_sources as kernels
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HERE = Path(__file__).parent
F16, F32, BF16, I8, I32 = "*fp16", "*fp32", "*bf16", "*i8", "*i32"

#: file -> kernel, types of its arguments (16: a number that 16 divides), constants, warps, stages
MADE = {
    "add": ("add", [F32, F32, F32, "i32"], {"BLOCK": 512}, 4, 2),
    "softmax": ("softmax", [F32, F32, "i32", "i32"], {"BLOCK": 1024}, 4, 2),
    "layer_norm": ("layer_norm", [BF16, BF16, BF16, BF16, "i32", "fp32"], {"BLOCK": 256}, 2, 2),
    "sums": ("sums", [F32, F32, F32, "i32", "i32"], {"BM": 64, "BN": 32}, 4, 2),
    "scan": ("scan", [I32, I32, I32, I32, "i32"], {"BLOCK": 256}, 4, 2),
    "sort": ("sort", [I32, I32], {"BLOCK": 256}, 4, 2),
    "locked": ("locked", [I32, I32], {"BLOCK": 128}, 4, 2),
    "random_bits": ("random_bits", [I32, "i32", "i32"], {"BLOCK": 256}, 4, 2),
    "gemm_fp16": (
        "gemm_bias_relu",
        [F16, F16, F16, F16, 16, 16, 16, 16, 16],
        {"BM": 64, "BN": 64, "BK": 32},
        4,
        3,
    ),
    "gemm_tf32": (
        "gemm_bias_relu",
        [F32, F32, F32, F32, "i32", "i32", "i32", 16, 16],
        {"BM": 64, "BN": 32, "BK": 16},
        4,
        2,
    ),
    "gemm_int8": (
        "gemm_bias_relu",
        [I8, I8, I32, I32, "i32", "i32", "i32", 16, 16],
        {"BM": 32, "BN": 32, "BK": 32},
        2,
        2,
    ),
    "attention": (
        "attention",
        [F16, F16, F16, F16, "fp32", "i32"],
        {"D": 64, "BM": 64, "BN": 32},
        4,
        2,
    ),
}


def made(kernel, types, constants, warps, stages):
    function = triton.jit(getattr(kernels, kernel))
    named = dict(zip(function.arg_names, types, strict=False))
    signature = {name: "i32" if kind == 16 else kind for name, kind in named.items()}
    divisible = [name for name, kind in named.items() if kind == 16 or str(kind).startswith("*")]
    places = {(function.arg_names.index(name),): [["tt.divisibility", 16]] for name in divisible}
    source = ASTSource(
        fn=function,
        signature=signature | dict.fromkeys(constants, "constexpr"),
        constexprs={(function.arg_names.index(name),): value for name, value in constants.items()},
        attrs=places,
    )
    compiled = triton.compile(
        source, target=GPUTarget("cuda", 80, 32), options={"num_warps": warps, "num_stages": stages}
    )
    ptx = compiled.asm["ptx"]
    ptx = re.sub(r"(?m)^\s*\.(?:loc|file)\b.*\n", "", ptx)
    ptx = re.sub(r"(?ms)^\s*\.section\s+\.debug\w*\s*\{.*?^\s*\}\n?", "", ptx)
    ptx = re.sub(r"(?m)^//.*\n|^\s*\$L__(?:tmp|func_(?:begin|end))\d+:\n", "", ptx)
    settings = ", ".join(f"{name} = {value}" for name, value in constants.items())
    head = f"// Triton {triton.__version__}: {kernel} of triton_sources.py, {settings}, {warps} warps, {stages} stages"
    return f"{head}\n// shared: {compiled.metadata.shared} bytes\n{ptx.strip()}\n"


if __name__ == "__main__":
    for name, how in MADE.items():
        (HERE / f"{name}.ptx").write_text(made(*how))
