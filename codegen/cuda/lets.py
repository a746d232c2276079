"""The lets of a Region as C++ in the loops of one thread: each in the outermost loop where its axes are known.

A let that differs within a vector is an array of its elements, computed in an unrolled loop, and so stays in registers.
"""

from __future__ import annotations

from tinyc.ir.dtypes import DType
from tinyc.ir.index import Affine
from tinyc.ir.region import (
    Binary,
    Cast,
    Const,
    Let,
    MemRef,
    Read,
    Reduce,
    Region,
    Select,
    Unary,
    Within,
    axis_sizes,
    free_axes,
    operands,
)

from . import scalar
from .indices import Indices, index_type
from .nest import Frame, Nest, Vector
from .vector import ACCESS, WORD, accessed, element, piece, put, words


class Lets(Nest):
    """The body of one kernel under construction. ``used``: functions of the library that it calls. ``store16``: what stores 16
    bytes."""

    store16 = "store16"

    def __init__(self, region: Region) -> None:
        names = {item.name: f"i{number}" for number, item in enumerate(region.iters)}
        for name in axis_sizes(region):
            names.setdefault(name, f"r{len(names) - len(region.iters)}")
        super().__init__(frozenset(item.name for item in region.iters), index_type(region), names)
        self.region = region
        self.lets = {let.name: let for let in region.lets}
        self.free = free_axes(region)
        self.order = {let.name: number for number, let in enumerate(region.lets)}
        read = {name for let in region.lets for name in operands(let.value)}
        #: lets that nothing reads: to store them rounds them
        self.results = self.lets.keys() - read
        self.inputs = {ref.name: (f"in{number}", ref) for number, ref in enumerate(region.inputs)}
        self.outputs = {ref.name: (f"out{number}", ref) for number, ref in enumerate(region.outputs)}
        self.used: set[str] = set()
        self.indices = Indices(axis_sizes(region), self.names, self.index, self.used)

    # ---- lets -----------------------------------------------------------------------------------------------------

    def value(self, name: str) -> str:
        """A let that has been demanded at the point of the open frames."""
        return self.frames[self.depth(self.free[name])].values[name]

    def known(self, name: str) -> bool:
        return name in self.frames[self.depth(self.free[name])].values

    def recall(self, let: Let) -> bool:
        """Makes a let known that an earlier loop has kept; False where none has."""
        return False

    def computed(self, frame: Frame, let: Let) -> None:
        """A let has been computed in ``frame``."""

    def demand(self, names: list[str]) -> None:
        """Writes the lets ``names``, and all that they need here, in the Region's order."""
        needed: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name in needed or self.known(name) or self.recall(self.lets[name]):
                continue
            needed.add(name)
            value = self.lets[name].value
            pending += () if isinstance(value, Reduce) else operands(value)
        for name in sorted(needed, key=self.order.__getitem__):
            if not self.known(name):
                self._write(self.lets[name])

    def before(self, body: str) -> None:
        """Writes what ``body``, and the sums in it, need of the open frames, so that its loop comes after theirs."""
        open_ = frozenset[str]().union(*(frame.axes for frame in self.frames))
        found: set[str] = set()
        seen, pending = set[str](), [body]
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            if self.free[name] <= open_:
                if self.known(name) or self.recall(self.lets[name]):
                    continue
                found.add(name)
            pending += operands(self.lets[name].value)
        self.demand(sorted(found, key=self.order.__getitem__))

    def _write(self, let: Let) -> None:
        with self.at(self.depth(self.free[let.name])) as frame:
            name = f"v{self.order[let.name]}"
            if isinstance(let.value, Const):
                frame.values[let.name] = scalar.constant(let.value.bits, let.dtype)
                return
            if isinstance(let.value, Reduce):
                self.reduce(frame, name, let, let.value)
            else:
                self._define(frame, name, let)
            frame.values[let.name] = name if self.vector(self.free[let.name]) is None else f"{name}[u]"
            self.computed(frame, let)

    def _define(self, frame: Frame, name: str, let: Let) -> None:
        kind = scalar.REGISTER[let.dtype]
        vector = self.vector(self.free[let.name])
        if vector is None:
            frame.add(f"const {kind} {name} = {self._expression(let)};")
            return
        value = self.loaded(frame, name, let, vector) if isinstance(let.value, Read) else None
        if value is None:
            with self.named(vector):
                value = self._expression(let)
        self.elements(frame, vector, name, let, value)

    def elements(self, frame: Frame, vector: Vector, name: str, let: Let, value: str) -> None:
        """The array ``name`` of the elements of a let, each ``value``."""
        each = frame.each(vector.width)
        each.arrays[name] = scalar.REGISTER[let.dtype]
        each.lines.append(f"{name}[u] = {value};")

    def _expression(self, let: Let) -> str:
        dtype = let.dtype
        match let.value:
            case Read(tensor, index_map):
                buffer, ref = self.inputs[tensor]
                found = f"{buffer}[{self.element(ref, index_map)}]"
                if ref.dtype in scalar.LOAD:
                    return self.call(scalar.LOAD[ref.dtype], found)
                return f"{found} != 0" if ref.dtype.value == "bool" else found
            case Within(index, lo, hi):
                return self._within(self.indices.text(index), lo, hi, index.bounds(self.indices.sizes))
            case Select(cond, then, other):
                return f"{self.value(cond)} ? {self.value(then)} : {self.value(other)}"
            case Cast(x):
                source = self.lets[x].dtype
                found = scalar.cast(source, dtype, self.value(x))
                return found if source is dtype or source.value == "bool" else self.rounded(found, let)
            case Unary(op, x):
                found = self.uses(scalar.unary(op, self.lets[x].dtype, self.value(x)))
                return found if op in scalar.EXACT else self.rounded(found, let)
            case Binary(op, x, y):
                found = self.uses(scalar.binary(op, self.lets[x].dtype, self.value(x), self.value(y)))
                return found if op in scalar.EXACT else self.rounded(found, let)
        raise AssertionError(let.value)

    def _within(self, index: str, lo: int, hi: int, bounds: tuple[int, int]) -> str:
        low, high = bounds
        if high < lo or low >= hi:
            return "false"
        above = [f"{index} >= {lo}"] if low < lo else []
        below = [f"{index} < {hi}"] if high >= hi else []
        return " && ".join([*above, *below]) or "true"

    def call(self, function: str, value: str) -> str:
        self.used.add(function)
        return f"{function}({value})"

    def uses(self, text: str) -> str:
        self.used |= {name for name in ("maximum", "minimum", "round_tf32") if text.startswith(f"{name}(")}
        return text

    def rounded(self, text: str, let: Let) -> str:
        if let.dtype not in scalar.ROUND or let.name in self.results:
            return text
        return self.call(scalar.ROUND[let.dtype], text)

    # ---- vectors in memory ----------------------------------------------------------------------------------------

    def loaded(self, frame: Frame, name: str, let: Let, vector: Vector) -> str | None:
        """Loads a vector, where its elements lie together: element ``u``."""
        assert isinstance(let.value, Read)
        buffer, ref = self.inputs[let.value.tensor]
        count = piece(ref, let.value.map, vector.axis, vector.width, self.indices.sizes)
        if not count:
            return None
        array = self.room(frame, name, let, vector)
        place = f"{buffer} + {self.element(ref, let.value.map)}"
        frame.add(*self.load(array, place, ref.dtype, vector, count))
        return self.unpacked(let, array)

    def element(self, ref: MemRef, index_map: tuple[Affine, ...]) -> str:
        """The position of an element of an input."""
        return self.indices.element(ref, index_map)

    def load(self, array: str, place: str, dtype: DType, vector: Vector, count: int = 0) -> list[str]:
        """Loads the words ``array`` of a vector, ``count`` elements with each access (0: as many as there may be)."""
        access = self._access(dtype, vector, count)
        self.used.add(f"load{access}" if access > 1 else "load_some")
        whole, some = (
            f"load{access}({array}, {place});",
            f"load_some({array}, (const {WORD[dtype.itemsize]}*)({place}), ",
        )
        return self._cut(whole if access > 1 else f"{some}{vector.width});", some, vector)

    def save(self, array: str, place: str, dtype: DType, vector: Vector, count: int = 0) -> list[str]:
        """Stores the words ``array`` of a vector, as :meth:`load` loads them."""
        access = self._access(dtype, vector, count)
        store = self.store16 if access == ACCESS else f"store{access}"
        self.used.add(store if access > 1 else "store_some")
        whole, some = (
            f"{store}({place}, {array});",
            f"store_some(({WORD[dtype.itemsize]}*)({place}), {array}, ",
        )
        return self._cut(whole if access > 1 else f"{some}{vector.width});", some, vector)

    def _access(self, dtype: DType, vector: Vector, count: int) -> int:
        """Bytes of an access of ``count`` elements; 1 where each element has its own."""
        access = min(ACCESS, (count or vector.width) * dtype.itemsize)
        return access if access >= 4 or vector.width * dtype.itemsize == access else 1

    def _cut(self, whole: str, some: str, vector: Vector) -> list[str]:
        """An access of a whole vector, or of some of its elements where it hangs over."""
        if not vector.size:
            return [whole]
        self.used.add(some.split("(")[0])
        return [
            f"if ({vector.base} <= {vector.size - vector.width}) {whole}",
            f"else {some}{vector.size} - {vector.base});",
        ]

    def room(self, frame: Frame, name: str, let: Let, vector: Vector) -> str:
        """An array for the words of a vector that is loaded."""
        frame.add(f"unsigned int {name}_words[{words(let.dtype, vector.width)}];")
        return f"{name}_words"

    def unpacked(self, let: Let, array: str) -> str:
        if let.dtype in scalar.LOAD:
            self.used.add(scalar.LOAD[let.dtype])
        return element(let.dtype, array)

    # ---- results --------------------------------------------------------------------------------------------------

    def store(self, position: str, alone: str = "") -> None:
        """Computes every output at the point of the open frames, and stores it at ``position``. ``alone``: the condition on
        which a thread is the one that does."""
        for item in self.region.yields:
            self.before(item.value)
        vector = next((frame.vector for frame in self.frames if frame.vector), None)
        stores: list[str] = []
        for stored in self.region.yields:
            name, ref = self.outputs[stored.to]
            value = self.value(stored.value)
            if vector is None:
                value = self.call(scalar.STORE[ref.dtype], value) if ref.dtype in scalar.STORE else value
                stores.append(f"{name}[{position}] = {value};")
                continue
            self.used |= {scalar.STORE[ref.dtype]} if ref.dtype in scalar.STORE else set()
            each = self.top.each(vector.width)
            each.declared.append(f"unsigned int {name}_words[{words(ref.dtype, vector.width)}] = {{}};")
            each.lines.append(put(ref.dtype, f"{name}_words", value))
            count = accessed(ref, vector.width, vector.width)
            stores += self.save(f"{name}_words", f"{name} + {position}", ref.dtype, vector, count or 1)
        if alone:
            stores = [f"if ({alone}) {{", *(f"  {line}" for line in stores), "}"]
        self.top.then(*stores)

    # ---- reductions -----------------------------------------------------------------------------------------------

    def reduce(self, frame: Frame, name: str, let: Let, value: Reduce) -> None:
        """Each thread for itself."""
        self.before(value.body)
        self.begin(frame, name, let, value)
        with self.loops(value.axes, self.stride(value)):
            self.accumulate(name, let, value)
        self.end(frame, name, let, value)

    def stride(self, value: Reduce) -> int:
        """The terms that a thread which sums for itself reads at one time: one access of the widest of the buffers in which
        they lie together."""
        if not value.axes or self.vector(self.free[value.body]) is not None:
            return 1
        last = value.axes[-1]
        refs = self.along(last.name, [value.body])
        width = ACCESS // max((ref.dtype.itemsize for ref in refs), default=ACCESS)
        while last.size % width:
            width //= 2
        return width

    def along(self, axis: str, roots: list[str]) -> list[MemRef]:
        """The buffers of which elements that lie together are read along ``axis``, for the lets ``roots``."""
        refs: list[MemRef] = []
        seen, pending = set[str](), list(roots)
        while pending:
            let = self.lets[pending.pop()]
            if let.name in seen or axis not in self.free[let.name]:
                continue
            seen.add(let.name)
            pending += operands(let.value)
            if isinstance(let.value, Read):
                _, ref = self.inputs[let.value.tensor]
                if piece(ref, let.value.map, axis, 2, self.indices.sizes):
                    refs.append(ref)
        return refs

    def begin(self, frame: Frame, name: str, let: Let, value: Reduce) -> None:
        """What a reduction starts from."""
        neutral = scalar.neutral(value.op, let.dtype)
        vector = self.vector(self.free[let.name])
        if vector is None:
            frame.then(f"{scalar.REGISTER[let.dtype]} {name} = {neutral};")
        else:
            self.elements(frame, vector, name, let, neutral)

    def accumulate(self, name: str, let: Let, value: Reduce) -> None:
        """One step, at the innermost frame: of one element, of all in a vector together, or of each by itself."""
        self.demand([value.body])
        whole = self.vector(self.free[let.name])
        vector = self.vector(self.free[let.name] | {item.name for item in value.axes})
        place = name if whole is None else f"{name}[u]"
        line = f"{place} = {self.uses(scalar.binary(value.op, let.dtype, place, self.value(value.body)))};"
        if vector is None:
            self.top.then(line)
        elif whole is None and vector.size:
            self.top.each(vector.width).lines.append(f"if ({vector.base} + u < {vector.size}) {line}")
        else:
            self.top.each(vector.width).lines.append(line)

    def end(self, frame: Frame, name: str, let: Let, value: Reduce) -> None:
        """Rounds the sum."""
        if let.dtype not in scalar.ROUND or let.name in self.results or value.op in scalar.EXACT:
            return
        vector = self.vector(self.free[let.name])
        if vector is None:
            frame.then(f"{name} = {self.rounded(name, let)};")
        else:
            frame.each(vector.width).lines.append(f"{name}[u] = {self.rounded(f'{name}[u]', let)};")
