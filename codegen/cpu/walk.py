"""The schedule "stream": softmax and what it weights in one walk over the scores, which are never whole in memory.

One turn of the parallel loop takes ROWS rows of scores and walks their columns in blocks of COLUMNS. A block of scores
is computed into scratch memory (by the micro-kernel where they are sums of products), and row by row its largest
grows the row's maximum: then what has been summed is multiplied by exp2((old - new) * scale). The scores become
exponentials in place, and these weight the next part of the sums, again by the micro-kernel. A row is NaN where
all its scores are -inf, as it is where one is NaN or +inf.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tinyc.ir.dtypes import DType, from_bits
from tinyc.ir.region import Axis, Const, Let, Stream
from tinyc.ir.streams import Walk, walk_of

from .emit import Emitter
from .frames import Block, Frame, Group, Staged, tile_count
from .library import float_literal
from .microkernel import micro_kernel, pack
from .stream import LOWEST, exponential

#: rows and columns of a block of scores
ROWS, COLUMNS = 128, 256
#: fewer rows than this are not worth packing the other operand for
FEW = 4
#: turns of the parallel loop that threads should have to share
TURNS = 8

NAN = float_literal(float("nan"))


def emit_walk(emitter: Emitter) -> int | None:
    """Emits the whole kernel; returns the iterations of its parallel loop. None: its Streams need more than one walk."""
    walk = walk_of(emitter.region)
    return None if walk is None else _Walk(emitter, walk).emit()


class _Walk:
    def __init__(self, emitter: Emitter, walk: Walk) -> None:
        self.emitter, self.walk = emitter, walk
        self.rows, self.columns = Group(walk.rows), Group(walk.axes)
        self.mr, self.nr = emitter.host.rows, 2 * emitter.host.lanes
        self.outer = Group(walk.outer)
        self.mb = min(ROWS, self.rows.size)
        while self.mb > self.mr and self.outer.size * -(-self.rows.size // self.mb) < TURNS:
            self.mb = -(-self.mb // 2)
        self.nb = min(COLUMNS, self.columns.size)
        self.tiled = self.rows.size >= FEW
        self.height, self.width = _up(self.mb, self.mr), _up(self.nb, self.nr)
        self.scores = emitter.reserve(4 * self.height * self.width)
        self.maxima = emitter.reserve(4 * self.mb)
        self.kernels: dict[tuple[int, int], str] = {}

    def emit(self) -> int:
        emitter, walk = self.emitter, self.walk
        blocks = ((self.rows, self.mb),)
        with emitter.tiles(self.outer, blocks) as frame:
            (rows,) = frame.blocks
            largest = Staged(self.maxima, (rows,))
            sums = {let.name: self.sum_of(let, wide, rows) for let, wide in walk.streams}
            self.start(frame, sums)
            if walk.product is not None and self.tiled:
                queries, depth = self.queries(rows)
            with self.blocks() as columns:
                scores = Staged(self.scores, (rows, columns))
                if walk.product is not None and self.tiled:
                    self.products(rows, columns, queries, depth, scores)
                with self.loop(rows):
                    self.row(columns, scores, largest, sums)
                for let, wide in walk.streams:
                    if wide and self.tiled:
                        self.weigh(let, rows, columns, sums[let.name])
            with self.loop(rows):
                self.finish(largest, sums)
            frame.staged |= sums
            self.yield_all(rows)
        for (lda, ldc), name in self.kernels.items():
            host = emitter.host
            emitter.functions.append(micro_kernel(host, name, DType.FP32, host.lanes, lda, ldc))
        return tile_count(self.outer, blocks)

    # ---- parts of the walk ------------------------------------------------------------------------------

    def sum_of(self, let: Let, wide: tuple[Axis, ...], rows: Block) -> Staged:
        """Where a Stream is summed: a row per row of scores, padded to whole panels."""
        if not wide:
            return Staged(self.emitter.reserve(4 * self.height), (rows,))
        group = Group(wide)
        padded = _up(group.size, self.nr)
        place = self.emitter.reserve(4 * self.height * padded)
        return Staged(place, (rows, Block(group, "0", str(group.size), padded)))

    def start(self, frame: Frame, sums: dict[str, Staged]) -> None:
        """No maximum and no sum yet."""
        for staged in sums.values():
            extent = self.height * (staged.blocks[1].extent if len(staged.blocks) > 1 else 1)
            self.clear(frame, staged.offset, extent)
        with self.emitter.loop("0", str(self.mb), self.mb, hint="i", over=self.rows.names) as row:
            here = self.emitter.put(row, f"getelementptr inbounds i8, ptr %scratch, i64 {self.maxima}", "m")
            address = self.emitter.put(row, f"getelementptr inbounds float, ptr {here}, i64 {row.local}", "m")
            row.lines.append(f"  store float {LOWEST}, ptr {address}, align 4")

    def queries(self, rows: Block) -> tuple[int, Block]:
        """The rows' operand of the scores, as it is, row by row."""
        emitter, product = self.emitter, self.walk.product
        assert product is not None
        group = Group(product.axes)
        place = emitter.reserve(4 * self.height * group.size)
        self.clear(emitter.top, place, self.height * group.size)
        depth = Block(group, "0", str(group.size), group.size)
        with self.loop(rows), self.loop(depth):
            emitter.demand([product.lhs])
            self.put_at(Staged(place, (rows, depth)), emitter.value(product.lhs))
        return place, depth

    @contextmanager
    def blocks(self) -> Iterator[Block]:
        """A loop over the blocks of columns."""
        group, size = self.columns, self.nb
        number = -(-group.size // size)
        with self.emitter.loop("0", str(number), number, hint="block", over=group.names) as frame:
            if number == 1:
                yield Block(group, "0", str(group.size), self.width)
                return
            base = self.emitter.put(frame, f"mul nuw nsw i64 {frame.local}, {size}", "base")
            count = str(size)
            if group.size % size:
                left = self.emitter.put(frame, f"sub nuw nsw i64 {group.size}, {base}", "left")
                count = self.emitter.put(frame, f"call i64 @llvm.smin.i64(i64 {left}, i64 {size})", "count")
            yield Block(group, base, count, self.width)

    def products(self, rows: Block, columns: Block, queries: int, depth: Block, scores: Staged) -> None:
        """The scores' sums of products, into the block of scores."""
        emitter, product = self.emitter, self.walk.product
        assert product is not None
        keys = emitter.reserve(4 * self.width * depth.extent)
        self.clear(emitter.top, self.scores, self.height * self.width)
        pack(emitter, product.rhs, columns, depth, keys, self.nr)
        self.multiply(rows, columns, depth, (queries, keys, self.scores), (depth.extent, self.width))
        emitter.top.staged[product.reduce] = scores

    def row(self, columns: Block, scores: Staged, largest: Staged, sums: dict[str, Staged]) -> None:
        """One row of a block: its scores, their maximum, exponentials, and the sums that need no other axis."""
        emitter, walk, frame = self.emitter, self.walk, self.emitter.top
        emitter.demand([walk.scale])
        scale = emitter.value(walk.scale)
        cell = self.cell(LOWEST)
        with self.loop(columns):
            emitter.demand([walk.score])
            score = emitter.value(walk.score)
            self.put_at(scores, score)
            before = emitter.put(emitter.top, f"load float, ptr {cell}", "max")
            after = self.largest(before, score)
            emitter.top.lines.append(f"  store float {after}, ptr {cell}")
        own = emitter.put(frame, f"load float, ptr {cell}", "max")
        old = self.get_at(largest)
        # greater or not a number: then the row's maximum changes
        grows = emitter.put(frame, f"fcmp ugt float {own}, {old}", "grows")
        turns = emitter.put(frame, f"zext i1 {grows} to i64", "turns")
        with emitter.loop("0", turns, 1, hint="grow") as inside:
            new = self.largest(old, own)
            self.put_at(largest, new)
            factor = exponential(emitter, old, new, scale)
            for staged in sums.values():
                self.scale_row(inside, staged, factor)
        new = self.get_at(largest)
        none = emitter.put(frame, f"fcmp oeq float {new}, {LOWEST}", "none")
        shift = emitter.put(frame, f"select i1 {none}, float 0.0, float {new}", "shift")
        narrow = [(let, let.value.weight) for let, wide in walk.streams if not wide]  # type: ignore[union-attr]
        cells = {let.name: self.cell("0.0") for let, _ in narrow}
        with self.loop(columns):
            e = exponential(emitter, self.get_at(scores), shift, scale)
            self.put_at(scores, e)
            for let, weight in narrow:
                self.add(cells[let.name], self.times(e, weight))
        for let, _ in narrow:
            part = emitter.put(frame, f"load float, ptr {cells[let.name]}", "part")
            total = emitter.put(frame, f"fadd float {self.get_at(sums[let.name])}, {part}", "sum")
            self.put_at(sums[let.name], total)
        if not self.tiled:
            for let, wide in walk.streams:
                if wide:
                    self.weigh_row(let, columns, scores, sums[let.name])

    def weigh_row(self, let: Let, columns: Block, scores: Staged, staged: Staged) -> None:
        """Adds the weights of one row's block, without the micro-kernel."""
        emitter = self.emitter
        assert isinstance(let.value, Stream)
        with self.loop(columns):
            e = self.get_at(scores)
            with self.loop(staged.blocks[1]):
                term = self.times(e, let.value.weight)
                total = emitter.put(emitter.top, f"fadd float {self.get_at(staged)}, {term}", "sum")
                self.put_at(staged, total)

    def weigh(self, let: Let, rows: Block, columns: Block, staged: Staged) -> None:
        """Adds exponentials times weights of a block: a product of matrices."""
        assert isinstance(let.value, Stream)
        wide = staged.blocks[1]
        values = self.emitter.reserve(4 * self.nb * wide.extent)
        depth = Block(columns.group, columns.base, columns.count, self.nb)
        pack(self.emitter, let.value.weight, wide, depth, values, self.nr)
        self.multiply(rows, wide, depth, (self.scores, values, staged.offset), (self.width, wide.extent))

    def finish(self, largest: Staged, sums: dict[str, Staged]) -> None:
        """A row without a score above -inf has no maximum to divide by: NaN, as in two passes."""
        emitter, frame = self.emitter, self.emitter.top
        none = emitter.put(frame, f"fcmp oeq float {self.get_at(largest)}, {LOWEST}", "none")
        turns = emitter.put(frame, f"zext i1 {none} to i64", "turns")
        with emitter.loop("0", turns, 1, hint="none") as inside:
            for staged in sums.values():
                self.scale_row(inside, staged, NAN)

    def yield_all(self, rows: Block) -> None:
        """The rest of the Region, which reads the sums as the values of the Streams."""
        emitter = self.emitter
        taken = self.outer.names | self.rows.names
        rest = tuple(item for item in emitter.region.iters if item.name not in taken)
        with ExitStack() as loops:
            loops.enter_context(self.loop(rows))
            for group in emitter.merged(rest):
                loops.enter_context(self.loop(emitter.full(group)))
            emitter.yield_all()

    # ---- small things -----------------------------------------------------------------------------------

    def loop(self, block: Block):  # type: ignore[no-untyped-def]
        return self.emitter.loop("0", block.count, block.extent, hint="i", group=block.group, base=block.base)

    def cell(self, start: str) -> str:
        """A register that loops inside the open frame change."""
        cell = self.emitter.fresh("cell")
        self.emitter.entry.append(f"  {cell} = alloca float")
        self.emitter.top.lines.append(f"  store float {start}, ptr {cell}")
        return cell

    def add(self, cell: str, term: str) -> None:
        frame = self.emitter.top
        before = self.emitter.put(frame, f"load float, ptr {cell}", "acc")
        after = self.emitter.put(frame, f"fadd reassoc float {before}, {term}", "acc")
        frame.lines.append(f"  store float {after}, ptr {cell}")

    def times(self, e: str, weight: str) -> str:
        value = self.emitter.lets[weight].value
        if isinstance(value, Const) and from_bits(value.bits, self.emitter.lets[weight].dtype) == 1:
            return e
        self.emitter.demand([weight])
        return self.emitter.put(self.emitter.top, f"fmul float {e}, {self.emitter.value(weight)}", "term")

    def largest(self, x: str, y: str) -> str:
        return self.emitter.put(
            self.emitter.top, f"call float @llvm.maximum.f32(float {x}, float {y})", "max"
        )

    def clear(self, frame: Frame, offset: int, count: int) -> None:
        start = self.emitter.once(frame, f"getelementptr inbounds i8, ptr %scratch, i64 {offset}", "s")
        frame.lines.append(f"  call void @llvm.memset.p0.i64(ptr {start}, i8 0, i64 {4 * count}, i1 false)")

    def scale_row(self, frame: Frame, staged: Staged, factor: str) -> None:
        """One row of a sum, multiplied."""
        if len(staged.blocks) == 1:
            self.put_at(staged, self.emitter.put(frame, f"fmul float {self.get_at(staged)}, {factor}", "s"))
            return
        with self.loop(staged.blocks[1]) as inner:
            self.put_at(staged, self.emitter.put(inner, f"fmul float {self.get_at(staged)}, {factor}", "s"))

    def get_at(self, staged: Staged) -> str:
        address = self.emitter.staged_address(self.emitter.top, staged, "float")
        return self.emitter.put(self.emitter.top, f"load float, ptr {address}, align 4", "s")

    def put_at(self, staged: Staged, value: str) -> None:
        address = self.emitter.staged_address(self.emitter.top, staged, "float")
        self.emitter.top.lines.append(f"  store float {value}, ptr {address}, align 4")

    def multiply(
        self,
        rows: Block,
        columns: Block,
        depth: Block,
        places: tuple[int, int, int],
        strides: tuple[int, int],
    ) -> None:
        """c += a b: every tile of MR rows and panel of NR columns is one call of the micro-kernel. ``places``: of a,
        of the packed b and of c in scratch memory; ``strides``: between the rows of a and of c."""
        emitter, (lda, ldc) = self.emitter, strides
        name = self.kernels.setdefault(strides, f"tile_kernel_{lda}_{ldc}")
        ends = []
        for part, width in ((rows, self.mr), (columns, self.nr)):
            padded = emitter.put(emitter.top, f"add nuw nsw i64 {part.count}, {width - 1}", "up")
            ends.append(emitter.put(emitter.top, f"udiv i64 {padded}, {width}", "panels"))
        with (
            emitter.loop(
                "0", ends[1], columns.extent // self.nr, hint="jr", over=columns.group.names
            ) as outer,
            emitter.loop("0", ends[0], self.height // self.mr, hint="ir", over=rows.group.names) as inner,
        ):
            a = self.at(inner, places[0], (inner.index, 4 * self.mr * lda))
            b = self.at(inner, places[1], (outer.index, 4 * self.nr * depth.extent))
            c = self.at(inner, places[2], (inner.index, 4 * self.mr * ldc), (outer.index, 4 * self.nr))
            inner.lines.append(f"  call void @{name}(ptr {a}, ptr {b}, i64 {depth.count}, ptr {c})")

    def at(self, frame: Frame, offset: int, *steps: tuple[str, int]) -> str:
        place = self.emitter.once(frame, f"getelementptr inbounds i8, ptr %scratch, i64 {offset}", "s")
        for index, stride in steps:
            step = self.emitter.put(frame, f"mul nuw nsw i64 {index}, {stride}", "o")
            place = self.emitter.put(frame, f"getelementptr inbounds i8, ptr {place}, i64 {step}", "p")
        return place


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
