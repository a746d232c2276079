"""What single PTX instructions compute: pure functions on arrays of bits, with no machine and no memory.

:func:`operation` gives everything that a lane does alone; :mod:`tensor` has mma and the fragments' way to and from memory, and
:mod:`warp` what lanes of a warp do together.
"""

from .table import operation
from .types import Array, Operation, bits_dtype

__all__ = ["Array", "Operation", "bits_dtype", "operation"]
