"""Streaming softmax on the CPU (document 004 §6.6, R4's bridge; ``Stream`` in ``tinyc/ir/region.py``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyc.ir.region import Stream

from .frames import Block, Group
from .library import float_literal

if TYPE_CHECKING:
    from .emit import Emitter

LOWEST = float_literal(float("-inf"))


def two_passes(emitter: Emitter, value: Stream) -> str:
    """A Stream at the innermost frame, in a register: the maximum first, then the sum. Right wherever it stands."""
    outer = emitter.top
    largest, total = emitter.fresh("max"), emitter.fresh("acc")
    emitter.entry += [f"  {largest} = alloca float", f"  {total} = alloca float"]
    outer.lines += [f"  store float {LOWEST}, ptr {largest}", f"  store float 0.0, ptr {total}"]
    loops: list[tuple[Group, Block | None]] = [(Group((item,)), None) for item in value.axes]
    with emitter.nest(loops, "r"):
        emitter.demand([value.score])
        before = emitter.put(emitter.top, f"load float, ptr {largest}", "max")
        both = f"float {before}, float {emitter.value(value.score)}"
        after = emitter.put(emitter.top, f"call float @llvm.maximum.f32({both})", "max")
        emitter.top.lines.append(f"  store float {after}, ptr {largest}")
    shift = emitter.put(outer, f"load float, ptr {largest}", "max")
    with emitter.nest(loops, "r"):
        emitter.demand([value.score, value.weight, value.scale])
        e = exponential(emitter, emitter.value(value.score), shift, emitter.value(value.scale))
        term = emitter.put(emitter.top, f"fmul float {e}, {emitter.value(value.weight)}", "term")
        before = emitter.put(emitter.top, f"load float, ptr {total}", "acc")
        after = emitter.put(emitter.top, f"fadd reassoc float {before}, {term}", "acc")
        emitter.top.lines.append(f"  store float {after}, ptr {total}")
    return emitter.put(outer, f"load float, ptr {total}", "acc")


def exponential(emitter: Emitter, score: str, shift: str, scale: str) -> str:
    """exp2((score - shift) * scale) at the innermost frame."""
    emitter.used.add("exp2_f32")
    difference = emitter.put(emitter.top, f"fsub float {score}, {shift}", "x")
    scaled = emitter.put(emitter.top, f"fmul float {difference}, {scale}", "x")
    return emitter.put(emitter.top, f"call float @exp2_f32(float {scaled})", "e")
