"""GPU IR in, CUDA C++ out: the kernel of a tiled contraction, statement by statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tinyc.ir.region import Axis
from tinyc.ir.rows import slab_bytes
from tinyc.ir.units import UNITS, WARP

from ..gpu.contraction import TiledProduct
from ..gpu.ir import (
    Barrier,
    CommitGroup,
    CpAsync,
    Epilogue,
    KeepRows,
    LoadFragments,
    Loop,
    Mma,
    ReduceRows,
    Ring,
    Statement,
    StGlobalVec,
    Tile,
    Wait,
    Walk,
)
from . import epilogue, fragments, scalar, simt
from .block_rows import KEPT, block_rows
from .copies import Copy, swizzle

GROUP = 8
"""Tiles of m that blocks with neighbouring numbers walk before the next tile of n, so that they share what is in L2."""


@dataclass(frozen=True)
class Text:
    """A kernel's body, the functions of the library that it calls, and its shared memory in bytes."""

    lines: list[str]
    used: set[str]
    shared_bytes: int


def tiled(product: TiledProduct) -> Text:
    """The text of ``product``'s kernel."""
    return _Tiled(product).text()


class _Tiled:
    def __init__(self, product: TiledProduct) -> None:
        product = _as_said(product)
        self.product, self.kernel = product, product.kernel
        kept = KEPT if self.kernel.kept else ""
        self.rest = epilogue.Epilogue(product.tile, self.kernel.roles.reduce, product.width, kept=kept)
        self.used = self.rest.used
        self.unit = fragments if UNITS[self.kernel.unit].matrix else simt
        self.sums = simt.kind(product.dtype)
        self.index = self.rest.index
        bm, bn, bk = self.kernel.tile
        threads = self.kernel.threads
        pairs = zip("mn", (product.lhs, product.rhs), self.kernel.rings, (bm, bn), strict=True)
        self.copies = {
            ring.name: Copy(
                source, ring, self.kernel.start(ring), threads, name, (own, bk), self.rest.indices
            )
            for name, source, ring, own in pairs
        }
        self.ring_bytes = sum(ring.stages * ring.slot_bytes for ring in self.kernel.rings)
        self.pitch = epilogue.padded(self.kernel.warp_tile[1])
        self.slab_bytes = slab_bytes(self.kernel.warp_tile[1])
        statements = _flat(self.kernel.stmts)
        self.buffers = 1 + max(each.buffer for each in statements if isinstance(each, LoadFragments))
        slabs = self.slab_bytes * self.kernel.warps[0] * self.kernel.warps[1]
        overlap = next(each.overlap for each in statements if isinstance(each, Epilogue))
        before = self.ring_bytes + slabs if overlap else max(self.ring_bytes, slabs)
        self.kept_at = -(-before // 16) * 16

    def text(self) -> Text:
        lines = [*self.head(), *self.all(self.kernel.stmts)]
        kept = self.kernel.kept
        shared = self.kept_at + (kept.bytes if kept else 0)
        for copy in self.copies.values():
            self.used |= copy.functions()
        for ring in self.kernel.rings:
            self.used |= {swizzle(ring)} if ring.swizzle else set()
        return Text(lines, self.used | {"vector", "shared_address"}, shared)

    # ---- before the products ------------------------------------------------------------------------------------

    def head(self) -> list[str]:
        kernel = self.kernel
        bm, bn, _ = kernel.tile
        _, wn = kernel.warps
        kept = kernel.kept
        lines = [
            f"const int lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};",
            f"const int warp_m = {f'warp / {wn}' if wn > 1 else 'warp'}, warp_n = {f'warp % {wn}' if wn > 1 else '0'};",
            *self.block(),
            f"const int m0 = tile_m * {bm}{'' if kept else f', n0 = tile_n * {bn}'};",
        ]
        lines += self.decoded(self.product.batch.axes, "batch")
        self.used |= self.unit.functions(kernel, self.product.dtype) | {"copy_groups"}
        if kept is None:
            return [*lines, *self.copies["a"].before(), *self.copies["b"].before(), *self.declared()]
        kind = scalar.MEMORY[kept.dtype]
        return [
            *lines,
            f"// {kept.rows} rows of {kept.columns}, which are reduced when all of their tiles are there",
            f"{kind}* const {KEPT} = ({kind}*)(shared + {self.kept_at});",
            *self.copies["a"].before(),
        ]

    def declared(self) -> list[str]:
        """The registers of a tile of the result."""
        kernel = self.kernel
        operands = "operands of a step" if self.buffers == 1 else f"operands of {self.buffers} steps"
        return [
            f"// the sums of this warp, {kernel.warp_tile[0]} x {kernel.warp_tile[1]}, and {operands} of {kernel.depth} points of k",
            *self.unit.declarations(kernel, self.buffers, self.product.dtype),
            f"// {kernel.tiles} tiles of k, in {kernel.rings[0].stages} slots of shared memory",
        ]

    def block(self) -> list[str]:
        """Which tile of which batch this block computes."""
        kernel = self.kernel
        counts = kernel.counts
        left_out = {*(() if counts["b"] > 1 else ("b",)), *(("n.o",) if kernel.kept else ())}
        places = [each for each in kernel.places if each[0] not in left_out]
        lines: list[str] = []
        rest: dict[str, str] = {}
        names = {"b": "batch", "m.o": "tile_m", "n.o": "tile_n"}
        for part, way in reversed(places):
            at = rest.get(way, f"(int)blockIdx.{way}")
            shared = [other for other, where in places if where == way]
            first = shared[0] == part
            lines.append(f"const int {names[part]} = {at}{'' if first else f' % {counts[part]}'};")
            rest[way] = f"{at} / {counts[part]}"
        if counts["m.o"] > GROUP and counts["n.o"] > 1:
            lines = [line.replace("tile_m", "row").replace("tile_n", "column") for line in lines]
            lines += self.raster(counts["m.o"], counts["n.o"])
        return lines

    def raster(self, rows: int, columns: int) -> list[str]:
        """Blocks that run together compute tiles that lie together."""
        return [
            f"// {GROUP} tiles of m are walked together along n",
            f"const int number = row * {columns} + column, band = number / {GROUP * columns};",
            f"const int high = min({rows} - band * {GROUP}, {GROUP}), within = number - band * {GROUP * columns};",
            f"const int tile_m = band * {GROUP} + within % high, tile_n = within / high;",
        ]

    def decoded(self, axes: Sequence[Axis], flat: str) -> list[str]:
        return self.rest.decoded(flat, tuple(axes))

    # ---- statements ---------------------------------------------------------------------------------------------

    def all(self, statements: Sequence[Statement]) -> list[str]:
        lines: list[str] = []
        number = 0
        while number < len(statements):
            statement = statements[number]
            if isinstance(statement, CpAsync):
                group = [statement]
                for other in statements[number + 1 :]:
                    if not isinstance(other, CpAsync) or other.tile != statement.tile:
                        break
                    group.append(other)
                number += len(group) - 1
                lines += self.copied(group)
            else:
                lines += self.one(statement)
            number += 1
        return lines

    def one(self, statement: Statement) -> list[str]:
        match statement:
            case CommitGroup():
                return ["commit_copies();"]
            case Wait(_, pending):
                return [f"wait_copies<{pending}>();"]
            case Barrier():
                return ["__syncthreads();"]
            case LoadFragments(rings, tile, step, buffer):
                found = [ring for ring in self.kernel.rings if ring.name in rings]
                calls = []
                for ring in found:
                    calls += self.unit.load(self.kernel, ring, step, buffer, self.slot(ring, tile))
                return self.where_there(tile, calls)
            case Mma(_, _, buffer, _):
                return [self.unit.multiply(self.kernel, buffer, self.product.dtype)]
            case Loop():
                return self.loop(statement)
            case Walk():
                return self.walk(statement)
            case Epilogue():
                return self.epilogue(statement)
            case ReduceRows():
                return self.reduced(statement)
            case KeepRows() | StGlobalVec():
                return []  # the last lines of the epilogue, or of what is reduced
        raise AssertionError(statement)

    def copied(self, group: Sequence[CpAsync]) -> list[str]:
        tile = group[0].tile
        number = tile.expression
        rings = {ring.name: ring for ring in self.kernel.rings}
        return self.where_there(
            tile, [f"copy_{each.ring}({number}, {self.slot(rings[each.ring], tile)});" for each in group]
        )

    def where_there(self, tile: Tile, calls: list[str]) -> list[str]:
        """``calls`` where there is such a tile."""
        if tile.var is None:
            return calls if tile.offset < self.kernel.tiles else []
        if tile.offset == 0:
            return calls
        return [f"if ({tile.expression} < {self.kernel.tiles}) {{", *(f"  {line}" for line in calls), "}"]

    def slot(self, ring: Ring, tile: Tile) -> str:
        """Bytes from the ring's first slot to that of the tile."""
        if tile.var is None:
            return str(tile.offset % ring.stages * ring.slot_bytes)
        return f"slot{tile.offset} * {ring.slot_bytes}"

    def loop(self, loop: Loop) -> list[str]:
        stages = self.kernel.rings[0].stages
        tiles = {each.tile for each in loop.body if isinstance(each, CpAsync | LoadFragments)}
        offsets = sorted({tile.offset for tile in tiles if tile.var == loop.var})
        lines = [
            f"int {', '.join(f'slot{offset} = {offset % stages}' for offset in offsets)};"
            f"  // of tiles {', '.join(Tile(offset, loop.var).expression for offset in offsets)}",
        ]
        lines += ["#pragma unroll 1", f"for (int {loop.var} = 0; {loop.var} < {loop.count}; ++{loop.var}) {{"]
        lines += [f"  {line}" for line in self.all(loop.body)]
        lines += [
            f"  slot{offset} = slot{offset} == {stages - 1} ? 0 : slot{offset} + 1;" for offset in offsets
        ]
        return [*lines, "}"]

    def walk(self, walk: Walk) -> list[str]:
        bn = self.kernel.tile[1]
        body = [
            f"const int n0 = tile_n * {bn};",
            *self.copies["b"].before(),
            *self.declared(),
            *self.all(walk.body),
        ]
        head = f"for (int tile_n = 0; tile_n < {walk.count}; ++tile_n) {{"
        if walk.count == 1:
            head, body[0] = "{", "const int n0 = 0;"
        return [head, *(f"  {line}" for line in body), "}"]

    def reduced(self, statement: ReduceRows) -> list[str]:
        store = next(each for each in self.kernel.stmts if isinstance(each, StGlobalVec))
        rows = block_rows(self.product, statement, store)
        lines = rows.body()
        self.used |= rows.used
        return [f"// each row by {statement.team} threads", *lines]

    def epilogue(self, statement: Epilogue) -> list[str]:
        kernel, product = self.kernel, self.product
        wm, wn = kernel.warp_tile
        width, pitch = product.width, self.pitch
        _, m, n, _ = kernel.extents
        bm, bn, _ = kernel.tile
        start = f"{self.ring_bytes} + " if statement.overlap else ""
        tests = [f"m < {m}"] if m % bm else []
        tests += [f"n < {n}"] if n % bn else []
        body = [
            f"const int m = m0 + warp_m * {wm} + i * 16 + e / {wn // width};",
            f"const int n = n0 + warp_n * {wn} + e % {wn // width}{f' * {width}' if width > 1 else ''};",
            f"const Vector<{self.sums}, {width}> sums = {self.rest.row(self.sums, f'slab + e / {wn // width} * {pitch} + e % {wn // width} * {width}')};",
        ]
        inner = [*self.decoded(product.m.axes, "m"), *self.decoded(product.n.axes, "n")]
        place, kept = f"const {self.index} at = {self.rest.position()};", kernel.kept
        if kept is not None:
            place = f"const int at = (m - m0) * {kept.pitch // kept.dtype.itemsize} + n;"
        inner += [place, *self.rest.body()]
        if tests:
            body += [f"if ({' && '.join(tests)}) {{", *(f"  {line}" for line in inner), "}"]
        else:
            body += inner
        pieces = 16 * wn // width
        return [
            "// the sums of this warp, 16 rows at a time, as runs of a row",
            f"{self.sums}* const slab = ({self.sums}*)(shared + {start}warp * {self.slab_bytes});",
            "#pragma unroll",
            f"for (int i = 0; i < {wm // 16}; ++i) {{",
            *(["  __syncwarp();"] if wm > 16 or kernel.kept else []),
            *(f"  {line}" for line in self.unit.stage(kernel, pitch)),
            "  __syncwarp();",
            "  #pragma unroll",
            f"  for (int e = lane; e < {pieces}; e += {WARP}) {{",
            *(f"    {line}" for line in body),
            "  }",
            "}",
        ]


def _as_said(product: TiledProduct) -> TiledProduct:
    """With the widths of the accesses that the statements have."""
    statements = _flat(product.kernel.stmts)
    bytes = {each.ring: each.bytes for each in statements if isinstance(each, CpAsync)}
    lhs, rhs = (
        replace(source, bytes=bytes[ring.name])
        for source, ring in zip((product.lhs, product.rhs), product.kernel.rings, strict=True)
    )
    kind = StGlobalVec if product.parts is None else KeepRows
    width = next(each.width for each in statements if isinstance(each, kind))
    return replace(product, lhs=lhs, rhs=rhs, width=width)


def _flat(statements: Sequence[Statement]) -> list[Statement]:
    found: list[Statement] = []
    for each in statements:
        found += _flat(each.body) if isinstance(each, Loop | Walk) else [each]
    return found
