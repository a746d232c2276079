"""In which order the parts of a term are chosen."""

from __future__ import annotations

from collections.abc import Mapping

PREREQUISITES: Mapping[tuple[str, int], tuple[int, ...]] = {
    ("At", 1): (0,), ("Read", 1): (0,), ("Reduce", 2): (1,), ("Stream", 1): (0,), ("Stream", 2): (0, 1),
    ("RoundedStream", 2): (1,), ("RoundedStream", 3): (1, 2),
    ("Permute", 1): (0,), ("Permute", 2): (1,), ("Reshape", 1): (0,), ("Expand", 1): (0,), ("Expand", 2): (0, 1),
    ("Pad", 1): (0,), ("Pad", 2): (0, 1), ("Pad", 3): (0, 1, 2), ("Pad", 4): (0,),
    ("Shrink", 1): (0,), ("Shrink", 2): (0, 1), ("Shrink", 3): (0, 1, 2), ("Shrink", 4): (0, 1, 2, 3),
    ("Flip", 1): (0,), ("View", 1): (0,), ("View", 2): (0, 1), ("TReduce", 1): (2,), ("Subst", 0): (1,),
    ("IDiv", 0): (1,), ("Ravel", 1): (0,), ("Ravel", 2): (0, 1), ("Fill", 2): (1,), ("Alias", 0): (1,), ("Valid", 1): (0,), ("Valid", 2): (1,),
    ("Valid", 3): (2,),
    ("Within", 1): (0,), ("Within", 2): (1,), ("Plus", 2): (1,),
    ("top-axis-upto", 1): (0,), ("ixs-axes", 1): (0,), ("ops-upto", 1): (0,), ("axes-upto", 2): (1,), ("axes-next", 2): (1,),
    ("vec-get", 1): (0,), ("vec-set", 1): (0,), ("unit-of", 2): (0, 1),
}  # fmt: skip
"""Word and place -> the places of what that argument is chosen by."""
