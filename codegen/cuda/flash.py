"""GPU IR of attention in, CUDA C++ out, statement by statement: queries stay in shared memory, keys and values come tile by tile, and
what a warp knows of its rows (the largest score, the sums) stays in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinyc.ir.dtypes import DType
from tinyc.ir.units import WARP

from ..gpu.attention import Attention
from ..gpu.ir import Barrier, CommitGroup, CpAsync, Epilogue, Ring, StGlobalVec, Tile, Wait
from ..gpu.operand import Group
from ..gpu.walk_ir import (
    FIRST,
    LAST,
    Columns,
    Exponentials,
    Scores,
    Shares,
    Totals,
    WalkKernel,
    WalkStatement,
    Weigh,
)
from . import epilogue, exponentials, scalar
from .copies import Copy, place
from .lets import Lets
from .masked import longest_last, tiles_of_block, whole_tile
from .nest import Frame, text


def flash(found: Attention, kernel: WalkKernel) -> tuple[list[str], set[str], int]:
    """The body of ``kernel``, the functions of the library that it calls, and its shared memory in bytes."""
    return _Flash(found, kernel).text()


class _Scores(Lets):
    """The lets from the product to a score, at one row and column."""

    def __init__(self, found: Attention) -> None:
        super().__init__(found.region)
        groups = (found.batch, found.m, found.n)
        self.frames = [Frame(frozenset().union(*(group.names for group in groups)))]
        self.frames[0].values[found.reduce] = "sum"

    def lines(self, score: str) -> tuple[list[str], str]:
        self.demand([score])
        return text(self.frames[0].lines), self.value(score)


class _Flash:
    def __init__(self, found: Attention, kernel: WalkKernel) -> None:
        self.found, self.kernel = found, kernel
        statements = _flat(kernel.stmts)
        self.width = next(each.width for each in statements if isinstance(each, StGlobalVec))
        bytes = {each.ring: each.bytes for each in statements if isinstance(each, CpAsync)}
        self.scores = _Scores(found)
        self.rest = epilogue.Epilogue(
            found.region, found.weighted, self.width, dict.fromkeys(found.totals, "row_total")
        )
        self.index = self.rest.index
        self.columns = kernel.tile[1]
        q, k, v, *_ = kernel.rings
        operands = (
            (found.q, q, "m", "e", (kernel.tile[0], q.columns)),
            (found.k, k, "e", "n", (k.columns, self.columns)),
            (found.v, v, "d", "n", (v.columns, self.columns)),
        )
        self.copies = [
            Copy(
                replace(source, bytes=bytes.get(ring.name, 0)),
                ring,
                start,
                kernel.threads,
                own,
                tile,
                self.scores.indices,
                deep,
            )
            for (source, ring, own, deep, tile), start in zip(operands, kernel.starts, strict=False)
        ]
        # keys that are walked over alone lie where the others begin, and are copied by the same function
        self.named = {ring.name: ring.name for ring in (q, k, v)}
        self.named |= {ring.name: k.name for ring in kernel.rings[3:]}
        self.dtype = found.q.dtype
        # ptxas would find the places of a swizzled row again for every tile; where registers are short, it has to
        self.keeps = found.rows * (found.wide[1] + self.columns) <= 16 * (256 + 64)
        self.pitch = epilogue.padded(found.wide[1])
        self.slab = 4 * (16 * self.pitch + 16)
        self.shared = max(kernel.ring_bytes, found.warps * self.slab)
        self.used = self.scores.used | self.rest.used | {"maximum", "power_of_two", "copy_groups", "vector"}
        self.used |= {
            *(
                ("ldmatrix_places", "ldmatrix_places_trans")
                if self.keeps
                else ("ldmatrix4", "ldmatrix4_trans")
            ),
            f"multiply_{self.dtype}",
            f"pair_{self.dtype}",
            "opaque",
        }
        parts = max((each.parts for each in statements if isinstance(each, Weigh)), default=1)
        self.used |= {scalar.LOAD[self.dtype]} if parts == 2 else set()

    def text(self) -> tuple[list[str], set[str], int]:
        lines = [*self.head(), *self.all(self.kernel.stmts)]
        for copy in self.copies:
            self.used |= copy.functions()
        self.used |= self.scores.used | self.rest.used
        return lines, self.used, self.shared

    def head(self) -> list[str]:
        found = self.found
        tiles, _ = found.tiles
        lines = [
            f"const int lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};",
            f"const int m0 = {self.block()} * {found.tile[0]}, batch = (int)blockIdx.x / {tiles};",
            "const int e0 = 0, d0 = 0;  // all of e and d are in a tile",
            *self.scores.decoded("batch", found.batch.axes),
        ]
        for copy in self.copies:
            lines += copy.before()
        blocks, wide = found.rows // 16, found.wide[1] // 8
        return [
            *lines,
            f"float o[{blocks}][{wide}][4] = {{}};  // sums of exponentials times v",
            f"float top[{blocks}][2], total[{blocks}][2] = {{}};  // of rows lane / 4 and lane / 4 + 8 of a block",
            "#pragma unroll",
            f"for (int i = 0; i < {blocks}; ++i) top[i][0] = top[i][1] = {scalar.neutral('MAX', DType.FP32)};",
            "// where the rows of a fragment begin of which this lane has the addresses",
            *self.addresses(),
            *tiles_of_block(found),
        ]

    def block(self) -> str:
        """The number of a block along m. Long walks begin first, so that none of them is what all others have to wait for."""
        tiles, _ = self.found.tiles
        number = f"(int)blockIdx.x % {tiles}"
        return f"({tiles - 1} - {number})" if tiles > 1 and longest_last(self.found) else number

    # ---- statements ---------------------------------------------------------------------------------------------

    def all(self, statements: Sequence[WalkStatement]) -> list[str]:
        return [line for statement in statements for line in self.one(statement)]

    def one(self, statement: WalkStatement) -> list[str]:
        blocks, columns = self.found.rows // 16, self.columns // 8
        scale = scalar.constant(self.found.scale, DType.FP32)
        match statement:
            case CpAsync():
                return self.copied(statement)
            case CommitGroup():
                return ["commit_copies();"]
            case Wait(tokens, pending):
                return [f"wait_copies<{pending}>();  // for {' and '.join(str(each) for each in tokens)}"]
            case Barrier():
                return ["__syncthreads();"]
            case Columns(var, body):
                inner = self.all(body)
                alone = any(isinstance(each, Totals) for each in body)
                return [
                    "// the keys alone: of each row the largest score, and what its exponentials are divided by"
                    if alone
                    else "// keys and values",
                    f"for (int {var} = {FIRST}; {var} < {LAST}; ++{var}) {{",
                    *(f"  {line}" for line in inner),
                    "}",
                ]
            case Scores():
                return self.scored(statement)
            case Totals():
                return [
                    "// the sum of exponentials, by the largest score so far; what was added up before fades to it",
                    *exponentials.softened(blocks, columns, 0, scale),
                ]
            case Shares():
                return exponentials.shares(blocks)
            case Exponentials(_, None, _, _):
                return [
                    "// exponentials, by the largest score so far; what was added up before fades to it",
                    *exponentials.softened(blocks, columns, self.found.wide[1] // 8, scale),
                ]
            case Exponentials():
                return [
                    "// probabilities: exponentials as shares of their row",
                    *exponentials.divided(blocks, columns, scale),
                ]
            case Weigh():
                return self.weighed(statement)
            case Epilogue():
                return self.end()
            case StGlobalVec():
                return []  # the last lines of the epilogue

    def copied(self, statement: CpAsync) -> list[str]:
        ring, tile = self.ring(statement.ring), statement.tile
        call = f"copy_{self.named[ring.name]}({tile.expression}, {self.slot(ring, tile) or 0});"
        if tile.var is None:
            return [call]  # of the queries
        inside = tile.var not in (FIRST, LAST) and tile.offset == 0
        return [call] if inside else [f"if ({tile.expression} < {LAST}) {call}"]

    def ring(self, name: str) -> Ring:
        return next(ring for ring in self.kernel.rings if ring.name == name)

    def slot(self, ring: Ring, tile: Tile) -> str:
        """Bytes from the ring's first slot to that of the tile; empty for none."""
        if ring.stages == 1:
            return ""
        return f"{_factor(tile)} % {ring.stages} * {ring.slot_bytes}"

    def scored(self, statement: Scores) -> list[str]:
        blocks = self.found.rows // 16
        lines = [
            "// scores: q times the keys, 16 points of e at a time",
            f"float s[{blocks}][{self.columns // 8}][4] = {{}};",
        ]
        q, k = (self.ring(name) for name in statement.rings)
        slot = self.slot(k, statement.tile)
        at = f"{self.named[k.name]}_at"
        if slot:
            lines += self.placed(k, slot, at)
            at = f"{k.name}_at"
        for step in range(self.found.wide[0] // 16):
            lines += ["{", *(f"  {line}" for line in self.product_of_keys(step, q, k, at)), "}"]
        return lines + self.from_products(statement.tile)

    def weighed(self, statement: Weigh) -> list[str]:
        lines = [
            "// the sums: weights, from the registers that they are in, times the values, 16 columns at a time"
        ]
        v = self.ring(statement.ring)
        for step in range(self.columns // 16):
            inner = self.product_of_values(step, v, statement)
            lines += ["{", *(f"  {line}" for line in inner), "}"]
        return lines

    # ---- the walk over the columns ------------------------------------------------------------------------------

    def addresses(self) -> list[str]:
        """Where a lane's first row of its matrix lies in each ring."""
        found = self.found
        q, k, v, *_ = self.kernel.rings
        near, far = "lane / 8 % 2 * 8", "lane / 16 * 8"
        starts = [
            place(q, f"warp * {found.rows} + {near} + lane % 8", f"({far}) * 2"),
            place(k, f"{far} + lane % 8", f"({near}) * 2"),
            place(v, f"{near} + lane % 8", f"({far}) * 2"),
        ]
        rows = [
            f"shared_address({f'{first} + ' * (first > 0)}{start})"
            for first, start in zip(self.kernel.starts, starts, strict=False)
        ]
        if not self.keeps:
            return [
                f"const unsigned int {ring.name}_at = {row};"
                for ring, row in zip((q, k, v), rows, strict=False)
            ]
        return [
            "unsigned int q_at[4], k_at[4], v_at[4];",
            *(f"row_places({ring.name}_at, {row});" for ring, row in zip((q, k, v), rows, strict=False)),
        ]

    def placed(self, ring: Ring, slot: str, at: str) -> list[str]:
        """The addresses of ``at`` in a slot of their ring."""
        if not self.keeps:
            return [f"const unsigned int {ring.name}_at = {at} + {slot};"]
        moved = ", ".join(f"{at}[{place}] + {slot}" for place in range(4))
        return [f"const unsigned int {ring.name}_at[4] = {{{moved}}};"]

    def product_of_keys(self, step: int, q: Ring, k: Ring, at: str) -> list[str]:
        blocks = self.found.rows // 16
        return [
            f"unsigned int a[{blocks}][4], b[{self.columns // 16}][4];",
            f"ldmatrix_blocks<{blocks}, 0, {16 * q.row_bytes}, {32 * step}, 0>(a, q_at);",
            f"ldmatrix_blocks<{self.columns // 16}, 0, {16 * k.row_bytes}, {32 * step}, 0>(b, {at});",
            f"multiply_{self.dtype}(s, a, b);",
        ]

    def product_of_values(self, step: int, v: Ring, statement: Weigh) -> list[str]:
        dtype = self.dtype
        blocks, wide = self.found.rows // 16, self.found.wide[1] // 8
        lines = [
            f"unsigned int p[{blocks}][4], b[{wide // 2}][4];",
            f"ldmatrix_blocks_trans<{wide // 2}, 32, 0, 0, {16 * step * v.row_bytes}>(b, v_at);",
            "#pragma unroll",
            f"for (int i = 0; i < {blocks}; ++i) {{",
            "  #pragma unroll",
            "  for (int half = 0; half < 4; ++half) {",
            f"    const float* pair = &s[i][{2 * step} + half / 2][half % 2 * 2];",
            f"    p[i][half] = pair_{dtype}(pair[0], pair[1]);",
            "  }",
            "}",
            f"multiply_{dtype}(o, p, b);",
        ]
        if statement.parts == 2:
            load = scalar.LOAD[dtype]
            lines += [
                "#pragma unroll",
                f"for (int i = 0; i < {blocks}; ++i) {{",
                "  #pragma unroll",
                "  for (int half = 0; half < 4; ++half) {  // what the rounding left out",
                f"    const float* pair = &s[i][{2 * step} + half / 2][half % 2 * 2];",
                f"    p[i][half] = pair_{dtype}(pair[0] - {load}(p[i][half] & 0xffff), pair[1] - {load}(p[i][half] >> 16));",
                "  }",
                "}",
                f"multiply_{dtype}(o, p, b);",
            ]
        return lines

    def from_products(self, tile: Tile) -> list[str]:
        """To scores."""
        found = self.found
        blocks, columns = found.rows // 16, self.columns // 8
        lets, score = self.scores.lines(found.score)
        inner = [
            f"const int m = m0 + warp * {found.rows} + i * 16 + lane / 4 + part / 2 * 8;",
            f"const int n = {_factor(tile)} * {self.columns} + j * 8 + lane % 4 * 2 + part % 2;",
            "const float sum = s[i][j][part];",
        ]
        inner += self.inside(found.m, "m", found.m.size % found.tile[0] != 0)
        inner += self.inside(found.n, "n", found.n.size % self.columns != 0)
        inner += lets
        if found.n.size % self.columns:
            score = f"n < {found.n.size} ? {score} : {scalar.neutral('MAX', DType.FP32)}"
        inner += [f"s[i][j][part] = {score};"]
        whole = whole_tile(found, _factor(tile))
        lines = [
            "#pragma unroll",
            f"for (int i = 0; i < {blocks}; ++i) {{",
            "  #pragma unroll",
            f"  for (int j = 0; j < {columns}; ++j) {{",
            "    #pragma unroll",
            "    for (int part = 0; part < 4; ++part) {",
            *(f"      {line}" for line in inner),
            "    }",
            "  }",
            "}",
        ]
        if whole is None:
            return ["// from products to scores", *lines]
        return [
            f"if (!({whole})) {{  // some scores are left out",
            *(f"  {line}" for line in lines),
            "}",
        ]

    def inside(self, group: Group, name: str, over: bool) -> list[str]:
        """The axes of a group at number ``name``, or at the last where a tile hangs over: what is read there is not used."""
        if not group.axes:
            return []
        return self.scores.decoded(f"min({name}, {group.size - 1})" if over else name, group.axes)

    # ---- the end ------------------------------------------------------------------------------------------------

    def end(self) -> list[str]:
        found, width, pitch = self.found, self.width, self.pitch
        blocks, wide = found.rows // 16, found.wide[1] // 8
        d, m = found.d.size, found.m.size
        pieces = -(-d // width)
        tests = [f"m < {m}"] if m % found.tile[0] else []
        inner = [
            *self.rest.decoded("m", found.m.axes),
            *self.rest.decoded("d", found.d.axes),
            f"const {self.index} at = {self.rest.position()};",
            *self.rest.body(),
        ]
        body = [
            f"const int row = e / {pieces}, d = e % {pieces} * {width};",
            f"const int m = m0 + warp * {found.rows} + i * 16 + row;",
            f"const Vector<float, {width}> sums = {self.rest.row('float', f'slab + row * {pitch} + d')};",
            f"const float row_total = slab[{16 * pitch} + row];",
            *([f"if ({' && '.join(tests)}) {{", *(f"  {line}" for line in inner), "}"] if tests else inner),
        ]
        return [
            "// the sums of this warp, 16 rows at a time, as runs of a row",
            f"float* const slab = (float*)(shared + warp * {self.slab});",
            "#pragma unroll",
            f"for (int i = 0; i < {blocks}; ++i) {{",
            "  __syncwarp();",
            "  #pragma unroll",
            "  for (int half = 0; half < 2; ++half) {",
            "    float sum = total[i][half];",
            "    sum += __shfl_xor_sync(~0u, sum, 1);",
            "    sum += __shfl_xor_sync(~0u, sum, 2);",
            "    // a row without any score is no number",
            f"    const float whole = top[i][half] == {scalar.neutral('MAX', DType.FP32)} ? __int_as_float(0x7fffffff) : 1.0f;",
            "    const int row = lane / 4 + half * 8;",
            f"    if (lane % 4 == 0) slab[{16 * pitch} + row] = sum * whole;",
            "    #pragma unroll",
            f"    for (int j = 0; j < {wide}; ++j) {{",
            f"      *(float2*)(slab + row * {pitch} + j * 8 + lane % 4 * 2) =",
            "          make_float2(o[i][j][2 * half] * whole, o[i][j][2 * half + 1] * whole);",
            "    }",
            "  }",
            "  __syncwarp();",
            f"  for (int e = lane; e < {16 * pieces}; e += {WARP}) {{",
            *(f"    {line}" for line in body),
            "  }",
            "}",
        ]


def _factor(tile: Tile) -> str:
    return f"({tile.expression})" if tile.var and tile.offset else tile.expression


def _flat(statements: Sequence[WalkStatement]) -> list[WalkStatement]:
    found: list[WalkStatement] = []
    for each in statements:
        found += _flat(each.body) if isinstance(each, Columns) else [each]
    return found
