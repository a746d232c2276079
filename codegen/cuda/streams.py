"""Streams as the reductions that they are: the largest score of a row, and sums of exponentials of what remains.

A GPU keeps the scores of a row on chip, so that the maximum is known before the sums begin; what both need is found and kept
as in any other kernel (:mod:`.kept`). The reductions of one Stream, and of Streams that share their axes, bind the same axes:
here each has a loop of its own over them.
"""

from __future__ import annotations

from dataclasses import replace

from tinyc.ir.dtypes import DType
from tinyc.ir.region import Binary, Let, Reduce, Region, Stream, Unary, Value


def without_streams(region: Region) -> Region:
    """The same Region with every Stream written out: SUM of EXP2((score - MAX of score) * scale) * weight."""
    lets: list[Let] = []
    names = {let.name for let in region.lets}
    made: dict[Value, str] = {}

    def let(value: Value) -> str:
        if value not in made:
            number = len(names)
            while f"s{number}" in names:
                number += 1
            names.add(f"s{number}")
            made[value] = f"s{number}"
            lets.append(Let(f"s{number}", DType.FP32, value))
        return made[value]

    for each in region.lets:
        if not isinstance(each.value, Stream):
            lets.append(each)
            continue
        stream = each.value
        less = let(Binary("SUB", stream.score, let(Reduce("MAX", stream.axes, stream.score))))
        power = let(Unary("EXP2", let(Binary("MUL", less, stream.scale))))
        term = let(Binary("MUL", power, stream.weight))
        lets.append(replace(each, value=Reduce("SUM", stream.axes, term)))
    return replace(region, lets=tuple(lets))
