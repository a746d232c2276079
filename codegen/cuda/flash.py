"""Attention on matrix units, its rows walked once: queries stay in shared memory, keys and values come tile by tile, and what a warp
knows of its rows (the largest score, the sums) stays in registers (Dao, FlashAttention-2, arXiv 2307.08691).

While the scores of a tile are multiplied its values are on their way, and the next keys while its exponentials are.

Where the program rounds the probabilities, what they are divided by has to be known before: a walk over the keys alone comes first.
"""

from __future__ import annotations

from tinyc.ir.dtypes import DType
from tinyc.ir.index import Affine
from tinyc.ir.units import WARP

from ..gpu.attention import Attention
from ..gpu.ir import Ring
from ..gpu.operand import Group
from . import epilogue, scalar
from .copies import Copy, place
from .lets import Lets
from .nest import Frame, text


def flash(found: Attention, width: int) -> tuple[list[str], set[str], int]:
    """The body of the kernel, the functions of the library that it calls, and its shared memory in bytes. ``width``: elements of a row
    of the result that are stored together."""
    return _Flash(found, width).text()


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
    def __init__(self, found: Attention, width: int) -> None:
        self.found, self.width = found, width
        self.scores = _Scores(found)
        self.rest = epilogue.Epilogue(
            found.region, found.weighted, width, dict.fromkeys(found.totals, "row_total")
        )
        self.index = self.rest.index
        self.columns = found.tile[1]
        threads = found.warps * WARP
        q, k, v = found.rings
        e, d = found.rings[1].columns, found.rings[2].columns
        parts = (
            (found.q, q, "m", "e", (found.tile[0], e)),
            (found.k, k, "e", "n", (e, self.columns)),
            (found.v, v, "d", "n", (d, self.columns)),
        )
        self.copies = [
            Copy(source, ring, found.start(number), threads, own, tile, self.scores.indices, deep)
            for number, (source, ring, own, deep, tile) in enumerate(parts)
        ]
        self.dtype = found.q.dtype
        self.pitch = epilogue.padded(found.wide[1])
        self.slab = 4 * (16 * self.pitch + 16)
        self.shared = max(found.start(2) + v.slot_bytes, found.warps * self.slab)
        self.used = self.scores.used | self.rest.used | {"maximum", "power_of_two", "copy_groups", "vector"}
        self.used |= {"ldmatrix4", "ldmatrix4_trans", f"multiply_{self.dtype}", f"pair_{self.dtype}"}
        self.used |= {scalar.LOAD[self.dtype]} if found.exact else set()

    def text(self) -> tuple[list[str], set[str], int]:
        lines = [*self.head(), *self.walk(), *self.end()]
        for copy in self.copies:
            self.used |= copy.functions()
        self.used |= self.scores.used | self.rest.used
        return lines, self.used, self.shared

    def head(self) -> list[str]:
        found = self.found
        tiles, _ = found.tiles
        lines = [
            f"const int lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};",
            f"const int m0 = (int)blockIdx.x % {tiles} * {found.tile[0]}, batch = (int)blockIdx.x / {tiles};",
            "const int e0 = 0, d0 = 0;  // all of e and d are in a tile",
            *self.scores.decoded("batch", found.batch.axes),
        ]
        for copy in self.copies:
            lines += copy.before()
        return lines

    # ---- the walk over the columns ------------------------------------------------------------------------------

    def walk(self) -> list[str]:
        found = self.found
        blocks, columns, wide = found.rows // 16, self.columns // 8, found.wide[1] // 8
        scale = scalar.constant(found.scale, DType.FP32)
        lines = [
            f"float o[{blocks}][{wide}][4] = {{}};  // sums of exponentials times v",
            f"float top[{blocks}][2], total[{blocks}][2] = {{}};  // of rows lane / 4 and lane / 4 + 8 of a block",
            "#pragma unroll",
            f"for (int i = 0; i < {blocks}; ++i) top[i][0] = top[i][1] = {scalar.neutral('MAX', DType.FP32)};",
            "// where the rows of a fragment begin of which this lane has the addresses",
            *self.addresses(),
            *self.range(),
            "copy_q(0, 0);",
            *FIRST_KEYS,
        ]
        if found.rounded:
            lines += [*self.totals(blocks, columns, scale), "// the same keys again", *FIRST_KEYS]
        body = [
            "// the keys are here, and nobody reads the last values any more: their place is filled meanwhile",
            "wait_copies<0>();",
            "__syncthreads();",
            "copy_v(tile, 0);",
            "commit_copies();",
            *self.scores_of_tile(blocks, columns),
            "// the values are here, and nobody reads these keys any more: the next ones take their place",
            "wait_copies<0>();",
            "__syncthreads();",
            *NEXT_KEYS,
        ]
        if found.rounded:
            body += [
                "// probabilities: exponentials as shares of their row",
                *self.divided(blocks, columns, scale),
            ]
        else:
            body += [
                "// exponentials, by the largest score so far; what was added up before fades to it",
                *self.softened(blocks, columns, wide, scale),
            ]
        body += [
            "// the sums: weights, from the registers that they are in, times the values, 16 columns at a time"
        ]
        for step in range(self.columns // 16):
            inner = self.product_of_values(step, blocks, wide, found.rings[2])
            body += ["{", *(f"  {line}" for line in inner), "}"]
        return [*lines, *over_tiles(body)]

    def totals(self, blocks: int, columns: int, scale: str) -> list[str]:
        """A walk over the keys alone: the largest score of each row, and the sum of its exponentials."""
        body = [
            "wait_copies<0>();",
            "__syncthreads();",
            *self.scores_of_tile(blocks, columns),
            "// nobody reads these keys any more: the next ones take their place",
            "__syncthreads();",
            *NEXT_KEYS,
            "// their sum, by the largest score so far; what was added up before fades to it",
            *self.softened(blocks, columns, 0, scale),
        ]
        return [
            "// what the exponentials of a row are divided by",
            *over_tiles(body),
            f"float share[{blocks}][2];  // of the whole row, for an exponential of one",
            "#pragma unroll",
            f"for (int i = 0; i < {blocks}; ++i) {{",
            "  #pragma unroll",
            "  for (int half = 0; half < 2; ++half) {",
            "    float sum = total[i][half];",
            "    sum += __shfl_xor_sync(~0u, sum, 1);",
            "    sum += __shfl_xor_sync(~0u, sum, 2);",
            "    share[i][half] = 1.0f / sum;",
            "  }",
            "}",
        ]

    def scores_of_tile(self, blocks: int, columns: int) -> list[str]:
        lines = [
            "// scores: q times the keys, 16 points of e at a time",
            f"float s[{blocks}][{columns}][4] = {{}};",
        ]
        q, k, _ = self.found.rings
        for step in range(self.found.wide[0] // 16):
            lines += ["{", *(f"  {line}" for line in self.product_of_keys(step, blocks, q, k)), "}"]
        return lines + self.scored(blocks, columns)

    def addresses(self) -> list[str]:
        """Where a lane's first row of its matrix lies in each ring."""
        found = self.found
        q, k, v = found.rings
        near, far = "lane / 8 % 2 * 8", "lane / 16 * 8"
        starts = [
            place(q, f"warp * {found.rows} + {near} + lane % 8", f"({far}) * 2"),
            place(k, f"{far} + lane % 8", f"({near}) * 2"),
            place(v, f"{near} + lane % 8", f"({far}) * 2"),
        ]
        return [
            f"const unsigned int {ring.name}_at = shared_address({f'{found.start(number)} + ' * (number > 0)}{start});"
            for number, (ring, start) in enumerate(zip(found.rings, starts, strict=True))
        ]

    def range(self) -> list[str]:
        """The tiles that have a score which is not -inf for some row of the block, as far as conditions on m and n alone say."""
        found = self.found
        rows, columns = found.tiles
        furthest = (rows - 1) * found.tile[0]
        first, last = "0", str(columns)
        for limit in found.limits:
            for lowest, down, const in self.bounds(limit.index - limit.lo, limit.hi - limit.lo):
                least, most = sorted((const, down * furthest + const))
                if most <= 0 if lowest else least >= found.n.size:
                    continue  # no block has a row that it says anything of
                number = _line(down, const if lowest else const + self.columns - 1)
                number = f"max({number}, 0)" if least < 0 else f"({number})"
                if lowest:
                    first = (
                        f"max({first}, {number} / {self.columns})"
                        if first != "0"
                        else f"{number} / {self.columns}"
                    )
                else:
                    last = f"min({last}, {number} / {self.columns})"
        self.used.add("opaque")
        return [f"const int first = {first}, last = opaque({last});  // tiles of n"]

    def bounds(self, index: Affine, size: int) -> list[tuple[bool, int, int]]:
        """Of n, for ``0 <= index < size`` at some row of the block: whether it is the lowest, or one more than the last; and it as
        a multiple of m0 and a constant."""
        found = self.found
        if index.axes() - found.m.names - found.n.names:
            return []
        rows = Affine(0, tuple(term for term in index.terms if term[1] in found.m.names))
        columns = Affine(0, tuple(term for term in index.terms if term[1] in found.n.names))
        if len(rows.terms) + len(columns.terms) != len(index.terms):
            return []
        down, along = found.m.stride(rows), found.n.stride(columns)
        if down is None or along not in (1, -1):
            return []
        # the least and the most that the rows of the block add, the constant included
        least, most = sorted((index.const, index.const + down * (found.tile[0] - 1)))
        if along == -1:
            # n <= rows + const, n > rows + const - size
            return [(False, down, most + 1), (True, down, least - size + 1)]
        # n >= -(rows + const), n < size - (rows + const)
        return [(True, -down, -most), (False, -down, size - least)]

    def product_of_keys(self, step: int, blocks: int, q: Ring, k: Ring) -> list[str]:
        return [
            f"unsigned int a[{blocks}][4], b[{self.columns // 16}][4];",
            f"ldmatrix_blocks<{blocks}, 0, {16 * q.row_bytes}, {32 * step}, 0>(a, q_at);",
            f"ldmatrix_blocks<{self.columns // 16}, 0, {16 * k.row_bytes}, {32 * step}, 0>(b, k_at);",
            f"multiply_{self.dtype}(s, a, b);",
        ]

    def product_of_values(self, step: int, blocks: int, wide: int, v: Ring) -> list[str]:
        dtype = self.dtype
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
        if self.found.exact:
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

    def scored(self, blocks: int, columns: int) -> list[str]:
        """From products to scores."""
        found = self.found
        lets, score = self.scores.lines(found.score)
        inner = [
            f"const int m = m0 + warp * {found.rows} + i * 16 + lane / 4 + part / 2 * 8;",
            f"const int n = tile * {self.columns} + j * 8 + lane % 4 * 2 + part % 2;",
            "const float sum = s[i][j][part];",
        ]
        inner += self.inside(found.m, "m", found.m.size % found.tile[0] != 0)
        inner += self.inside(found.n, "n", found.n.size % self.columns != 0)
        inner += lets
        if found.n.size % self.columns:
            score = f"n < {found.n.size} ? {score} : {scalar.neutral('MAX', DType.FP32)}"
        inner += [f"s[i][j][part] = {score};"]
        return [
            "// from products to scores",
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

    def inside(self, group: Group, name: str, over: bool) -> list[str]:
        """The axes of a group at number ``name``, or at the last where a tile hangs over: what is read there is not used."""
        if not group.axes:
            return []
        return self.scores.decoded(f"min({name}, {group.size - 1})" if over else name, group.axes)

    def softened(self, blocks: int, columns: int, wide: int, scale: str) -> list[str]:
        """From scores to exponentials; what the sums so far were multiplied with is exchanged for the new maximum. ``wide``: of
        the sums of values, 0 where there are none yet."""
        faded = [
            "    #pragma unroll",
            f"    for (int j = 0; j < {wide}; ++j) {{",
            "      o[i][j][2 * half] *= fade;",
            "      o[i][j][2 * half + 1] *= fade;",
            "    }",
        ]
        return [
            "#pragma unroll",
            f"for (int i = 0; i < {blocks}; ++i) {{",
            "  #pragma unroll",
            "  for (int half = 0; half < 2; ++half) {",
            "    float most = top[i][half];",
            "    #pragma unroll",
            f"    for (int j = 0; j < {columns}; ++j) {{",
            "      most = maximum(most, maximum(s[i][j][2 * half], s[i][j][2 * half + 1]));",
            "    }",
            "    most = maximum(most, __shfl_xor_sync(~0u, most, 1));",
            "    most = maximum(most, __shfl_xor_sync(~0u, most, 2));",
            f"    const float base = most == {scalar.neutral('MAX', DType.FP32)} ? 0.0f : most;  // no score yet",
            f"    const float fade = power_of_two((top[i][half] - base) * {scale});",
            "    top[i][half] = most;",
            "    total[i][half] *= fade;",
            *(faded if wide else ()),
            "    #pragma unroll",
            f"    for (int j = 0; j < {columns}; ++j) {{",
            "      #pragma unroll",
            "      for (int part = 2 * half; part < 2 * half + 2; ++part) {",
            f"        s[i][j][part] = power_of_two((s[i][j][part] - base) * {scale});",
            "        total[i][half] += s[i][j][part];",
            "      }",
            "    }",
            "  }",
            "}",
        ]

    def divided(self, blocks: int, columns: int, scale: str) -> list[str]:
        """From scores to the probabilities that they are."""
        return [
            "#pragma unroll",
            f"for (int i = 0; i < {blocks}; ++i) {{",
            "  #pragma unroll",
            "  for (int half = 0; half < 2; ++half) {",
            f"    const float base = top[i][half] == {scalar.neutral('MAX', DType.FP32)} ? 0.0f : top[i][half];",
            "    #pragma unroll",
            f"    for (int j = 0; j < {columns}; ++j) {{",
            "      #pragma unroll",
            "      for (int k = 2 * half; k < 2 * half + 2; ++k) {",
            f"        s[i][j][k] = power_of_two((s[i][j][k] - base) * {scale}) * share[i][half];",
            "      }",
            "    }",
            "  }",
            "}",
        ]

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
            "wait_copies<0>();",
            "__syncthreads();",
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


FIRST_KEYS = ("if (first < last) copy_k(first, 0);", "commit_copies();")

NEXT_KEYS = ("if (tile + 1 < last) copy_k(tile + 1, 0);", "commit_copies();")


def over_tiles(body: list[str]) -> list[str]:
    """A walk over the tiles of n."""
    return ["for (int tile = first; tile < last; ++tile) {", *(f"  {line}" for line in body), "}"]


def _line(factor: int, const: int) -> str:
    """``factor`` * m0 + ``const``."""
    if factor == 0:
        return str(const)
    times = {1: "m0", -1: "-m0"}.get(factor, f"{factor} * m0")
    return times + (f" {'+-'[const < 0]} {abs(const)}" if const else "")
