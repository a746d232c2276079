"""Python's collector of reference circles, out of the way of a search.

A search makes millions of small objects and hardly a circle among them; looking for some in all that is held takes about a
sixth of its time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Within it, circles of references are not looked for, unless the caller looks. Of several at once, in threads, the
    first that ends has them looked for again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
