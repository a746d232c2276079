"""Names for buffers and kernels: what the user wrote, fit for dumps and generated code."""

from __future__ import annotations

import re


class Names:
    """Hands out each name once: letters, digits and underscores, starting with a letter, at most 48 long."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def fresh(self, wanted: str) -> str:
        base = re.sub(r"[^A-Za-z0-9_]+", "_", wanted)[:48].strip("_") or "value"
        base = base if re.match(r"[A-Za-z]", base) else f"v_{base}"
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name
