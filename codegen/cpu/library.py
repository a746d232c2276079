"""Small functions in LLVM IR that generated kernels call. All are inlined, so that loops over them vectorise.

Conversions are by integer operations where a CPU may lack the instruction: LLVM would call a library function
that is not there, and the process would die.
"""

from __future__ import annotations

import struct

from .host import Host


def float_literal(value: float) -> str:
    """A finite or infinite fp32 number as LLVM writes it (the bits of the equal double)."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


# 2**f = sum(EXP2[i] * f**i) on [-1/2, 1/2], minimax in relative error (0.033 ulp of fp32 before rounding).
# The first coefficient is exact, so integers give exact powers of two.
EXP2 = (
    1.0,
    0.6931472028553384,
    0.24022647913600628,
    0.05550332470535366,
    0.009618437359121223,
    0.0013398874650719025,
    0.00015353362031707112,
)

_ROUND_BF16 = """\
; nearest bf16 (ties to even), as fp32
define internal float @round_bf16(float %x) alwaysinline nounwind {
  %bits = bitcast float %x to i32
  %shifted = lshr i32 %bits, 16
  %odd = and i32 %shifted, 1
  %half = add i32 %odd, 32767
  %up = add i32 %bits, %half
  %quiet = or i32 %bits, 4194304
  %nan = fcmp uno float %x, 0.0
  %chosen = select i1 %nan, i32 %quiet, i32 %up
  %kept = and i32 %chosen, -65536
  %y = bitcast i32 %kept to float
  ret float %y
}
"""

_LOAD_BF16 = """\
define internal float @from_bf16(i16 %h) alwaysinline nounwind {
  %wide = zext i16 %h to i32
  %bits = shl i32 %wide, 16
  %y = bitcast i32 %bits to float
  ret float %y
}
"""

_STORE_BF16 = """\
; the bits of a value that is a bf16 already
define internal i16 @to_bf16(float %x) alwaysinline nounwind {
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %h = trunc i32 %high to i16
  ret i16 %h
}
"""

_FP16_NATIVE = {
    "round_fp16": """\
; nearest fp16 (ties to even), as fp32
define internal float @round_fp16(float %x) alwaysinline nounwind {
  %h = fptrunc float %x to half
  %y = fpext half %h to float
  ret float %y
}
""",
    "from_fp16": """\
define internal float @from_fp16(i16 %h) alwaysinline nounwind {
  %half = bitcast i16 %h to half
  %y = fpext half %half to float
  ret float %y
}
""",
    "to_fp16": """\
define internal i16 @to_fp16(float %x) alwaysinline nounwind {
  %half = fptrunc float %x to half
  %h = bitcast half %half to i16
  ret i16 %h
}
""",
}

# The same by integers, for CPUs without the instructions: three cases (normal; subnormal, rounded by adding a
# number whose last bit is the last bit of the result; infinity and NaN), chosen by select.
_FP16_INTEGER = {
    "round_fp16": """\
; nearest fp16 (ties to even), as fp32
define internal float @round_fp16(float %x) alwaysinline nounwind {
  %h = call i16 @to_fp16(float %x)
  %y = call float @from_fp16(i16 %h)
  ret float %y
}
""",
    "from_fp16": """\
define internal float @from_fp16(i16 %h) alwaysinline nounwind {
  %wide = zext i16 %h to i32
  %magnitude = and i32 %wide, 32767
  %shifted = shl i32 %magnitude, 13
  %normal = add i32 %shifted, 939524096
  %special = add i32 %shifted, 1879048192
  %tiny = add i32 %shifted, 947912704
  %tiny.f = bitcast i32 %tiny to float
  %tiny.g = fsub float %tiny.f, 0x3F10000000000000
  %tiny.b = bitcast float %tiny.g to i32
  %is.tiny = icmp ult i32 %magnitude, 1024
  %is.special = icmp uge i32 %magnitude, 31744
  %a = select i1 %is.tiny, i32 %tiny.b, i32 %normal
  %b = select i1 %is.special, i32 %special, i32 %a
  %sign.h = and i32 %wide, 32768
  %sign = shl i32 %sign.h, 16
  %bits = or i32 %b, %sign
  %y = bitcast i32 %bits to float
  ret float %y
}
""",
    "to_fp16": """\
define internal i16 @to_fp16(float %x) alwaysinline nounwind {
  %bits = bitcast float %x to i32
  %magnitude = and i32 %bits, 2147483647
  %sign.f = lshr i32 %bits, 16
  %sign = and i32 %sign.f, 32768
  %odd.s = lshr i32 %magnitude, 13
  %odd = and i32 %odd.s, 1
  %rebased = add i32 %magnitude, -939520001
  %up = add i32 %rebased, %odd
  %normal = lshr i32 %up, 13
  %m.f = bitcast i32 %magnitude to float
  %m.t = fadd float %m.f, 5.000000e-01
  %m.b = bitcast float %m.t to i32
  %tiny = sub i32 %m.b, 1056964608
  %is.tiny = icmp ult i32 %magnitude, 947912704
  %is.large = icmp uge i32 %magnitude, 1199570944
  %is.nan = icmp ugt i32 %magnitude, 2139095040
  %large = select i1 %is.nan, i32 32256, i32 31744
  %a = select i1 %is.tiny, i32 %tiny, i32 %normal
  %b = select i1 %is.large, i32 %large, i32 %a
  %all = or i32 %b, %sign
  %h = trunc i32 %all to i16
  ret i16 %h
}
""",
}


def _exp2(fma: bool) -> str:
    """2**x: x = n + f, polynomial in f, scaled by 2**n in two factors so that subnormals round once."""
    lines = [
        "; 2**x within 2 ulp; right at overflow, underflow (subnormals too), infinities and NaN",
        "define internal float @exp2_f32(float %x) alwaysinline nounwind {",
        f"  %low = fcmp olt float %x, {float_literal(-152.0)}",
        f"  %x1 = select i1 %low, float {float_literal(-152.0)}, float %x",
        f"  %high = fcmp ogt float %x1, {float_literal(129.0)}",
        f"  %x2 = select i1 %high, float {float_literal(129.0)}, float %x1",
        # adding 1.5 * 2**23 leaves the nearest integer in the low bits of the sum
        f"  %t = fadd float %x2, {float_literal(12582912.0)}",
        f"  %n.f = fsub float %t, {float_literal(12582912.0)}",
        "  %f = fsub float %x2, %n.f",
        "  %t.b = bitcast float %t to i32",
        "  %n = sub i32 %t.b, 1262485504",
    ]
    p = float_literal(_f32(EXP2[-1]))
    for i in range(len(EXP2) - 2, -1, -1):
        c = float_literal(_f32(EXP2[i]))
        if fma:
            lines.append(f"  %p{i} = call float @llvm.fma.f32(float {p}, float %f, float {c})")
        else:
            lines += [f"  %q{i} = fmul float {p}, %f", f"  %p{i} = fadd float %q{i}, {c}"]
        p = f"%p{i}"
    lines += [
        "  %n1 = ashr i32 %n, 1",
        "  %n2 = sub i32 %n, %n1",
        "  %e1 = add i32 %n1, 127",
        "  %e2 = add i32 %n2, 127",
        "  %s1.b = shl i32 %e1, 23",
        "  %s2.b = shl i32 %e2, 23",
        "  %s1 = bitcast i32 %s1.b to float",
        "  %s2 = bitcast i32 %s2.b to float",
        "  %y1 = fmul float %p0, %s1",
        "  %y = fmul float %y1, %s2",
        "  ret float %y",
        "}",
        "",
    ]
    return "\n".join(lines)


def _f32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


_ROUND_TF32 = """\
; nearest number with 10 bits of mantissa (ties away from zero); infinity and NaN stay
define internal float @round_tf32(float %x) alwaysinline nounwind {
  %b = bitcast float %x to i32
  %up = add i32 %b, 4096
  %cut = and i32 %up, -8192
  %exponent = and i32 %b, 2139095040
  %finite = icmp ne i32 %exponent, 2139095040
  %r = select i1 %finite, i32 %cut, i32 %b
  %y = bitcast i32 %r to float
  ret float %y
}
"""


#: functions that a function of the library calls
_NEEDS = {"round_fp16": ("to_fp16", "from_fp16")}


def library(used: set[str], host: Host) -> str:
    """The text of the functions named in ``used``, in a fixed order."""
    fp16 = _FP16_NATIVE if host.fp16 else _FP16_INTEGER
    known = {
        "round_bf16": _ROUND_BF16,
        "from_bf16": _LOAD_BF16,
        "to_bf16": _STORE_BF16,
        "round_tf32": _ROUND_TF32,
        **fp16,
        "exp2_f32": _exp2(host.fma),
    }
    needed = set(used)
    if not host.fp16:
        needed.update(name for user in used for name in _NEEDS.get(user, ()))
    return "\n".join(text for name, text in known.items() if name in needed)
