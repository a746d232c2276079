"""Where an ELF file in memory ends. Needs nothing but Python: a process without tinyc uses it as well."""

from __future__ import annotations

import ctypes


def elf_at(address: int) -> bytes:
    """The ELF file at ``address``: up to the end of the last of its two tables of headers."""
    head = ctypes.string_at(address, 64)
    if not head.startswith(b"\x7fELF"):
        return head
    number = {at: int.from_bytes(head[at : at + size], "little") for at, size in _ELF_FIELDS}
    programs = number[32] + number[54] * number[56]
    sections = number[40] + number[58] * number[60]
    return ctypes.string_at(address, max(programs, sections))


_ELF_FIELDS = ((32, 8), (40, 8), (54, 2), (56, 2), (58, 2), (60, 2))
