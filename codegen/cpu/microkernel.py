"""The micro-kernel of products of matrices, and the packing of what it reads.

It adds k products to a tile of MR x NR results, all held in vector registers: MR is the rows of the host, NR two
vectors. What it multiplies by rows of NR is packed into panels of NR columns; the other factor may be packed into
panels of MR rows, or lie in memory row by row.
"""

from __future__ import annotations

from tinyc.ir.dtypes import DType

from .emit import Emitter
from .frames import Block
from .host import Host


def micro_kernel(host: Host, name: str, dtype: DType, lanes: int, lda: int | None, ldc: int) -> str:
    """The function ``name(a, b, k, c)``: c[MR, NR] += a * b, with b[k, NR] packed and k at least 1.

    ``dtype``: of all three, I32 or FP32. ``lanes``: of a vector, half of NR. ``lda``: elements between the rows of
    a[MR, k]; None: it is packed, a[k, MR]. ``ldc``: elements between the rows of c.
    """
    mr, nr = host.rows, 2 * lanes
    kind, f = ("i32", "") if dtype is DType.I32 else ("float", "f")
    vector = f"<{lanes} x {kind}>"
    cells = [(i, j) for i in range(mr) for j in range(nr // lanes)]
    shape = f"k, {mr}" if lda is None else f"{mr}, k"
    out = [
        f"; c[{mr}, {nr}] += a[{shape}] * b[k, {nr}]",
        f"define internal void @{name}(ptr noalias %a, ptr noalias %b, i64 %k, ptr noalias %c) noinline nounwind {{",
        "entry:",
    ]
    for i, j in cells:
        out.append(f"  %c{i}.{j}.p = getelementptr inbounds {kind}, ptr %c, i64 {i * ldc + j * lanes}")
        out.append(f"  %c{i}.{j} = load {vector}, ptr %c{i}.{j}.p, align 4")
    out += ["  br label %sum", "sum:", "  %p = phi i64 [ 0, %entry ], [ %p.next, %sum ]"]
    for i, j in cells:
        out.append(f"  %s{i}.{j} = phi {vector} [ %c{i}.{j}, %entry ], [ %t{i}.{j}, %sum ]")
    out.append(f"  %b.at = mul nuw nsw i64 %p, {nr}")
    out.append(f"  %b.row = getelementptr inbounds {kind}, ptr %b, i64 %b.at")
    if lda is None:
        out.append(f"  %a.at = mul nuw nsw i64 %p, {mr}")
    column, below = ("%a.at", 1) if lda is None else ("%p", lda)
    out.append(f"  %a.row = getelementptr inbounds {kind}, ptr %a, i64 {column}")
    for j in range(nr // lanes):
        out.append(f"  %b{j}.p = getelementptr inbounds {kind}, ptr %b.row, i64 {j * lanes}")
        out.append(f"  %b{j} = load {vector}, ptr %b{j}.p, align 4")
    for i in range(mr):
        out.append(f"  %a{i}.p = getelementptr inbounds {kind}, ptr %a.row, i64 {i * below}")
        out.append(f"  %a{i}.s = load {kind}, ptr %a{i}.p, align 4")
        out.append(f"  %a{i}.i = insertelement {vector} poison, {kind} %a{i}.s, i32 0")
        splat = f"shufflevector {vector} %a{i}.i, {vector} poison, <{lanes} x i32> zeroinitializer"
        out.append(f"  %a{i} = {splat}")
        for j in range(nr // lanes):
            if f and host.fma:
                factors = f"{vector} %a{i}, {vector} %b{j}, {vector} %s{i}.{j}"
                out.append(f"  %t{i}.{j} = call {vector} @llvm.fma.v{lanes}f32({factors})")
                continue
            out.append(f"  %m{i}.{j} = {f}mul {vector} %a{i}, %b{j}")
            out.append(f"  %t{i}.{j} = {f}add {vector} %s{i}.{j}, %m{i}.{j}")
    out += [
        "  %p.next = add nuw nsw i64 %p, 1",
        "  %more = icmp slt i64 %p.next, %k",
        "  br i1 %more, label %sum, label %done",
        "done:",
    ]
    out += [f"  store {vector} %t{i}.{j}, ptr %c{i}.{j}.p, align 4" for i, j in cells]
    return "\n".join([*out, "  ret void", "}", ""])


def pack(emitter: Emitter, operand: str, part: Block, depth: Block, offset: int, width: int) -> None:
    """Writes an operand, whatever expression it is, into scratch memory at byte ``offset``, as i32 or fp32.

    Panels of ``width`` points of ``part``, each depth-major; a last narrower one where the size asks for it.
    """
    frame = emitter.top
    full = emitter.put(frame, f"udiv i64 {part.count}, {width}", "panels")
    _panels(emitter, operand, part, depth, offset, width, ("0", full, part.extent // width), width)
    if tail := part.group.size % width:
        rest = emitter.put(frame, f"urem i64 {part.count}, {width}", "rest")
        some = emitter.put(frame, f"icmp ne i64 {rest}, 0", "some")
        more = emitter.put(frame, f"zext i1 {some} to i64", "more")
        end = emitter.put(frame, f"add nuw nsw i64 {full}, {more}", "end")
        # what the panel does not fill is multiplied as well: 0, since whatever lay there may be denormal, and slow
        size = 4 * width * depth.extent
        first = emitter.put(frame, f"mul nuw nsw i64 {full}, {size}", "first")
        first = emitter.put(frame, f"add nuw nsw i64 {first}, {offset}", "first")
        place = emitter.put(frame, f"getelementptr inbounds i8, ptr %scratch, i64 {first}", "s")
        size_now = emitter.put(frame, f"mul nuw nsw i64 {more}, {size}", "size")
        frame.lines.append(f"  call void @llvm.memset.p0.i64(ptr {place}, i8 0, i64 {size_now}, i1 false)")
        _panels(emitter, operand, part, depth, offset, width, (full, end, 1), tail)


def _panels(
    emitter: Emitter,
    operand: str,
    part: Block,
    depth: Block,
    offset: int,
    width: int,
    bounds: tuple[str, str, int],
    inside: int,
) -> None:
    begin, end, trip = bounds
    dtype = emitter.lets[operand].dtype
    kind = "i32" if dtype is DType.I32 else "float"
    store = DType.I32 if kind == "i32" else DType.FP32
    with emitter.loop(begin, end, trip, hint="panel", over=part.group.names) as panel:
        first = emitter.put(panel, f"mul nuw nsw i64 {panel.index}, {width}", "first")
        base = emitter.put(panel, f"add nuw nsw i64 {part.base}, {first}", "base")
        start = emitter.put(panel, f"mul nuw nsw i64 {panel.index}, {width * depth.extent}", "start")
        with emitter.loop(
            "0", depth.count, depth.extent, hint="k", group=depth.group, base=depth.base
        ) as row:
            line = emitter.put(row, f"mul nuw nsw i64 {row.local}, {width}", "line")
            line = emitter.put(row, f"add nuw nsw i64 {start}, {line}", "line")
            with emitter.loop("0", str(inside), inside, hint="x", group=part.group, base=base) as point:
                emitter.demand([operand])
                position = emitter.put(point, f"add nuw nsw i64 {line}, {point.local}", "at")
                place = f"getelementptr inbounds i8, ptr %scratch, i64 {offset}"
                panels = emitter.once(emitter.frames[0], place, "s")
                address = emitter.put(
                    point, f"getelementptr inbounds {kind}, ptr {panels}, i64 {position}", "p"
                )
                emitter.store(point, emitter.value(operand), address, store)
