"""Integer points that satisfy a condition, for callers without named sets (:mod:`tinyc.index.sets` has those)."""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl

from .sets import MAX_OPERATIONS, TooComplex


def sample(
    names: Sequence[str], condition: str, max_operations: int = MAX_OPERATIONS
) -> tuple[int, ...] | None:
    """Integers for ``names``, in order, at which ``condition`` holds; None where it holds nowhere.

    ``condition``: isl's own syntax (``and or not = != < <=``, ``floor(x/2)``) over ``names``, which are letters and digits
    and no words of isl. It is looked at over all integers, in a context of its own.
    Raises TooComplex where isl takes more than ``max_operations`` steps.
    """
    context = isl.Context()
    context.set_max_operations(max_operations)
    try:
        points = isl.Set(f"{{ [{', '.join(names)}] : {condition} }}", context=context)
        if points.is_empty():
            return None
        point = points.sample_point()
        found = (point.get_coordinate_val(isl.dim_type.set, place).to_python() for place in range(len(names)))
        return tuple(int(value) for value in found)
    except isl.Error as error:
        # as in sets._limited: a text that is well-formed, and that isl cannot read, ran out of steps
        if "maximal number of operations" in str(error) or "syntax error" in str(error):
            raise TooComplex(str(error)) from None
        raise
