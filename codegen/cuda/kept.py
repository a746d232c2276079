"""What a walk along a row computes that a later one needs again: kept in registers by the thread that has it, as every walk
over as many points gives a thread the same places; or in shared memory, where other threads need it, or registers do not suffice.

A draft keeps everything and so shows what is needed again; :func:`fitting` says where that is kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tinyc.ir.dtypes import DType
from tinyc.ir.region import Let, Read, Reduce, Region, operands
from tinyc.ir.rows import KEPT

from . import scalar
from .forms import Forms
from .lets import Lets
from .nest import Frame, Vector, Walk
from .vector import ACCESS, put, words

FILE = 1 << 16
"""Registers of a multiprocessor, which the threads of a block share."""

REGISTERS = 64
"""Of a thread, for what it keeps, and never more than half of those that it has."""

Key = tuple[int, tuple[int, ...], int, int]
"""A form, and of the walk that computes it the sizes, the vector and the lanes."""

Keep = Mapping[Key, str]
"""What is kept: in "registers", in "shared" memory."""


@dataclass(frozen=True)
class Stored:
    """``array``: in registers, by step and element; ``packed``: of words as they lie in memory. ``row``: in shared memory."""

    let: Let
    walk: Walk
    array: str = ""
    packed: bool = False
    row: str = ""


class Keeping(Lets):
    """Lets of which walks keep some. ``keep``: which, and where; None: a draft, which keeps everything but ``banned``, and has
    in ``asked_for`` what was needed again. ``teams``: rows of a block, each with arrays of its own in shared memory."""

    teams = 1

    def __init__(self, region: Region, keep: Keep | None, banned: frozenset[Key]) -> None:
        super().__init__(region)
        self.keep, self.banned = keep, banned
        self.forms = Forms(self.lets, self.free)
        self.stored: dict[Key, Stored] = {}
        self.open: list[Walk] = []
        self.asked_for: dict[Key, frozenset[str]] = {}

    def unrolls(self, walk: Walk) -> bool:
        """Whether registers that are kept, which have no addresses, are numbered by the steps of ``walk``."""
        keep = {} if self.keep is None else self.keep
        like = tuple(item.size for item in walk.axes), walk.width, walk.lanes
        return any(key[1:] == like and where == "registers" for key, where in keep.items())

    def shows(self, walk: Walk) -> bool:
        """Whether ``walk`` stores what other threads read."""
        return any(each.walk is walk and each.row for each in self.stored.values())

    def _key(self, let: Let, walk: Walk) -> Key:
        names = tuple(item.name for item in walk.axes)
        sizes = tuple(item.size for item in walk.axes)
        return self.forms.form(let.name, names), sizes, walk.width, walk.lanes

    def recall(self, let: Let) -> bool:
        with self.at(self.depth(self.free[let.name])) as frame:
            if frame.walk is not None:
                return self._own(frame, frame.walk, let)
            if len(self.frames) > 1 and len(frame.axes) == 1:
                return self._from_shared(frame, let)
        return False

    def _own(self, frame: Frame, walk: Walk, let: Let) -> bool:
        """In a walk: what this thread has computed at the same step of an earlier one, in registers or shared memory; of a sum, what any
        thread has at this place: threads that share it otherwise would add up in another order, and have another sum."""
        key = self._key(let, walk)
        found = self.stored.get(key)
        where = "registers"
        if found is None and isinstance(let.value, Reduce):
            key = next((known for known in self.stored if known[:2] == key[:2]), key)
            found, where = self.stored.get(key), "shared"
        if found is None or found.walk in self.open or (where == "shared" and not found.row):
            return False
        self._ask(key, where)
        name = f"v{self.order[let.name]}"
        array = found.array if where == "registers" else ""
        if frame.vector is None:
            value = f"{array}[{walk.step}]" if array else self._at(found.row, walk, let, walk.place)
        elif array and not found.packed:
            value = f"{array}[{walk.step}][u]"
        else:
            words_ = f"{array}[{walk.step}]"
            if not array:
                words_ = super().room(frame, name, let, frame.vector)
                frame.add(*self.load(words_, self._place(found.row, walk), let.dtype, frame.vector))
            self.elements(frame, frame.vector, name, let, self.unpacked(let, words_))
            value = f"{name}[u]"
        frame.values[let.name] = value
        return True

    def _at(self, row: str, walk: Walk, let: Let, place: str) -> str:
        """The value of a let at a place of a row in shared memory."""
        size = math.prod(item.size for item in walk.axes)
        value = f"{row}[{place}]" if self.teams == 1 else f"{row}[team * {size} + {place}]"
        if let.dtype in scalar.LOAD:
            return self.call(scalar.LOAD[let.dtype], value)
        return f"({value} != 0)" if let.dtype is DType.BOOL else value

    def _place(self, row: str, walk: Walk) -> str:
        """Where a thread's vector lies in a row in shared memory."""
        size = math.prod(item.size for item in walk.axes)
        return f"{row} + e" if self.teams == 1 else f"{row} + team * {size} + e"

    def _from_shared(self, frame: Frame, let: Let) -> bool:
        """In a loop of one thread: what a walk over as many points has computed. (What is read is read again.)"""
        (name,) = frame.axes
        size = self.indices.sizes[name]
        form = self.forms.form(let.name, (name,))
        found = next((key for key in self.stored if key[:2] == (form, (size,))), None)
        if found is None or isinstance(let.value, Read) or self.stored[found].walk in self.open:
            return False
        row = self.stored[found].row
        if not row:
            return False
        self._ask(found, "shared")
        with self.named(frame.vector):
            frame.values[let.name] = self._at(row, self.stored[found].walk, let, self.names[name])
        return True

    def _ask(self, key: Key, where: str) -> None:
        self.asked_for[key] = self.asked_for.get(key, frozenset()) | {where}

    def room(self, frame: Frame, name: str, let: Let, vector: Vector) -> str:
        if frame.walk is not None:
            key = self._key(let, frame.walk)
            # a walk that is begun for a value of an open one has no room of that one's
            if self._keeps(key, "registers") and key not in self.stored:
                count = words(let.dtype, vector.width)
                self.frames[0].then(f"unsigned int {name}_words[{frame.walk.steps}][{count}];")
                self.stored[key] = Stored(let, frame.walk, f"{name}_words", True)
                return f"{name}_words[{frame.walk.step}]"
        return super().room(frame, name, let, vector)

    def _keeps(self, key: Key, where: str) -> bool:
        return key not in self.banned if self.keep is None else where == self.keep.get(key)

    def computed(self, frame: Frame, let: Let) -> None:
        walk = frame.walk
        if walk is None or frame.axes.isdisjoint(self.free[let.name]):
            return
        key = self._key(let, walk)
        if key in self.stored:
            return
        in_registers, in_shared = self._keeps(key, "registers"), self._keeps(key, "shared")
        if not in_registers and not in_shared:
            return
        kind, name, value = scalar.REGISTER[let.dtype], f"v{self.order[let.name]}", frame.values[let.name]
        array = row = ""
        wide = walk.width > 1
        if wide and not value.endswith("[u]"):
            return  # it differs along other axes of the walk than the last: one value for a vector
        if in_registers:
            array = f"{name}_kept"
            size = f"[{walk.steps}]" + (f"[{walk.width}]" if wide else "")
            self.frames[0].then(f"{kind} {array}{size};")
            if wide:
                frame.each(walk.width).lines.append(f"{array}[{walk.step}][u] = {value};")
            else:
                frame.then(f"{array}[{walk.step}] = {value};")
        if in_shared:
            row = self._to_shared(frame, walk, name, let, value)
        self.stored[key] = Stored(let, walk, array, False, row)

    def _to_shared(self, frame: Frame, walk: Walk, name: str, let: Let, value: str) -> str:
        """Stores a let for all threads of the row, a vector with one access. The name of the array.

        It is aligned as far as its size goes: of one that ends amid an access the compiler reads what lies beyond it."""
        row = f"{name}_row"
        size = self.teams * math.prod(item.size for item in walk.axes)
        align = math.gcd(ACCESS, size * let.dtype.itemsize)
        self.frames[0].then(f"__shared__ alignas({align}) {scalar.MEMORY[let.dtype]} {row}[{size}];")
        place = self._place(row, walk)
        if let.dtype in scalar.STORE:
            self.used.add(scalar.STORE[let.dtype])
        if frame.vector is None:
            stored = f"{scalar.STORE[let.dtype]}({value})" if let.dtype in scalar.STORE else value
            frame.then(f"*({place}) = {stored};")
            return row
        each = frame.each(walk.width)
        each.declared.append(f"unsigned int {row}_words[{words(let.dtype, walk.width)}] = {{}};")
        each.lines.append(put(let.dtype, f"{row}_words", value))
        frame.then(*self.save(f"{row}_words", place, let.dtype, frame.vector))
        return row


def fitting(draft: Keeping, threads: int, shared: int = KEPT) -> Keep:
    """Where what is needed again is kept, the dearest first: for other threads in shared memory; for the thread itself in
    registers, or in shared memory where they do not suffice. ``shared``: bytes of it that a block has for this."""
    registers = min(REGISTERS, FILE // 2 // threads)
    keep: dict[Key, str] = {}
    dearest = sorted(draft.asked_for, key=lambda key: (-_effort(draft, draft.stored[key].let), key))
    for key in sorted(dearest, key=lambda key: "shared" not in draft.asked_for[key]):
        found = draft.stored[key]
        packed = words(found.let.dtype, found.walk.width)
        own = found.walk.steps * (packed if found.packed else found.walk.width)
        row = found.let.dtype.itemsize * draft.teams * math.prod(key[1])
        if "shared" not in draft.asked_for[key] and own <= registers:
            keep[key] = "registers"
            registers -= own
        elif row <= shared:
            keep[key] = "shared"
            shared -= row
    return keep


EXPENSIVE = frozenset({"EXP2", "LOG2", "SIN", "SQRT", "RSQRT", "POW", "RECIP", "FDIV"})
"""Operations of many instructions."""


def _effort(draft: Keeping, let: Let) -> int:
    """How dear a let is: 3 with a sum in it, 2 if it is read from memory, 1 with an expensive operation in it, else 0."""
    seen, pending, most = set[str](), [let.name], 0
    along = frozenset(
        item.name for each in draft.stored.values() if each.let is let for item in each.walk.axes
    )
    while pending:
        name = pending.pop()
        if name in seen or along.isdisjoint(draft.free[name]):
            continue
        seen.add(name)
        value = draft.lets[name].value
        pending += operands(value)
        if isinstance(value, Reduce):
            most = 3
        elif getattr(value, "op", "") in EXPENSIVE:
            most = max(most, 1)
    return max(most, 2 if isinstance(let.value, Read) else 0)
