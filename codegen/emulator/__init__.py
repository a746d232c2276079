"""The PTX emulator: kernels as NVRTC compiles them, run on the CPU and watched. See docs/emulator.md and :func:`emulate`.

Reading goes ``lex`` → ``parse`` → ``ptx`` (data) → ``decode`` → steps of a ``machine``. The machine has ``threads``,
``memory``, ``barriers`` and ``copies`` in flight; ``clocks`` and ``shadow`` know which accesses are ordered, ``findings``
and ``counters`` collect what is seen. ``semantics`` has what single instructions compute.
"""

from .copies import DELIVERIES, Delivery
from .counters import Counters, GlobalAccess, Loop, SharedAccess
from .emulate import Emulated, Uninitialised, emulate
from .findings import Finding
from .parse import parse_ptx

__all__ = [
    "DELIVERIES",
    "Counters",
    "Delivery",
    "Emulated",
    "Finding",
    "GlobalAccess",
    "Loop",
    "SharedAccess",
    "Uninitialised",
    "emulate",
    "parse_ptx",
]
