"""Streams as the reductions that they are: the largest score of a row, and sums of exponentials of what remains.

A GPU keeps the scores of a row on chip, so that the maximum is known before the sums begin; what both need is found and kept
as in any other kernel (``codegen/cuda/kept.py``). The reductions of one Stream, and of Streams that share their axes, bind the
same axes: here each has a loop of its own over them.
"""

from __future__ import annotations

from dataclasses import replace

from tinyc.ir.dtypes import DType
from tinyc.ir.region import Binary, Cast, Let, Reduce, Region, Stream, Unary, Value


def without_streams(region: Region, rounded: bool = False) -> Region:
    """The same Region with every Stream written out: SUM of EXP2((score - MAX of score) * scale) * weight, where it rounds
    with the quotient of the exponential and its SUM instead, rounded. ``rounded``: only those that round."""
    lets: list[Let] = []
    names = {let.name for let in region.lets}
    made: dict[tuple[DType, Value], str] = {}

    def let(value: Value, dtype: DType = DType.FP32) -> str:
        if (dtype, value) not in made:
            number = len(names)
            while f"s{number}" in names:
                number += 1
            names.add(f"s{number}")
            made[dtype, value] = f"s{number}"
            lets.append(Let(f"s{number}", dtype, value))
        return made[dtype, value]

    for each in region.lets:
        if not isinstance(each.value, Stream) or (rounded and each.value.rounded is None):
            lets.append(each)
            continue
        stream = each.value
        less = let(Binary("SUB", stream.score, let(Reduce("MAX", stream.axes, stream.score))))
        power = let(Unary("EXP2", let(Binary("MUL", less, stream.scale))))
        if stream.rounded is not None:
            whole = let(Binary("FDIV", power, let(Reduce("SUM", stream.axes, power))))
            power = let(Cast(let(Cast(whole), stream.rounded)))
        term = let(Binary("MUL", power, stream.weight))
        lets.append(replace(each, value=Reduce("SUM", stream.axes, term)))
    return replace(region, lets=tuple(lets))
