"""Kernels with what they compute, and the buffers between them (document 004 §6)."""

from __future__ import annotations

from tinyc.ir.buffer import BufferInfo
from tinyc.ir.dtypes import from_bits
from tinyc.ir.plan import Extracted
from tinyc.ir.region import (
    Binary,
    BroadcastInDim,
    Cast,
    Const,
    Let,
    Read,
    Reduce,
    Region,
    Stream,
    Transpose,
    Unary,
    Within,
    operands,
)

from .drawing import LIMIT, Drawing, Edge, Group, Node, render, shape_text


def draw_regions(extracted: Extracted, form: str = "dot", limit: int = LIMIT) -> str:
    """One frame per kernel with its lets, buffers as nodes beside them, as "dot" or "mermaid" text.

    Where that is more than ``limit`` nodes, a kernel is one node; where that is too many still, the drawing is cut.
    Raises TinycError InvalidArgument.
    """
    execution = extracted.execution
    regions = [extracted.regions[instruction.kernel] for instruction in execution.instructions]
    inside = sum(len(region.lets) for region in regions) + len(execution.buffers) <= limit
    inputs, outputs = set(execution.input_buffers), set(execution.output_buffers)
    buffers = {
        buffer.name: Node(
            f"buffer {buffer.name}",
            _buffer(
                buffer, "input" if buffer.id in inputs else "output" if buffer.id in outputs else "buffer"
            ),
            "result" if buffer.id in outputs else "data",
        )
        for buffer in execution.buffers
    }
    shapes = {each.name: shape_text(each.dtype.value, each.shape) for each in execution.buffers}
    groups = [Group("", tuple(buffers[execution.buffers[id].name] for id in execution.input_buffers))]
    edges: list[Edge] = []
    for number, region in enumerate(regions):
        drawn = _whole if inside else _single
        nodes, more = drawn(number, region, shapes)
        made = tuple(buffers[ref.name] for ref in region.outputs)
        groups += [Group(_title(region) if inside else "", nodes), Group("", made)]
        edges += more
    return render(Drawing(tuple(groups), tuple(edges)), form, limit)


def _whole(number: int, region: Region, shapes: dict[str, str]) -> tuple[tuple[Node, ...], list[Edge]]:
    """A node per let, an edge per operand."""
    nodes = tuple(
        Node(_key(number, let.name), (f"{let.name}: {let.dtype.value}", _spell(let))) for let in region.lets
    )
    edges: list[Edge] = []
    for let in region.lets:
        if isinstance(let.value, Read):
            edges.append(Edge(f"buffer {let.value.tensor}", _key(number, let.name), shapes[let.value.tensor]))
        used = operands(let.value)
        edges += [
            Edge(_key(number, name), _key(number, let.name), str(at) if len(used) > 1 else "")
            for at, name in enumerate(used)
        ]
    edges += [Edge(_key(number, item.value), f"buffer {item.to}", shapes[item.to]) for item in region.yields]
    return nodes, edges


def _single(number: int, region: Region, shapes: dict[str, str]) -> tuple[tuple[Node, ...], list[Edge]]:
    """One node for the kernel."""
    key = f"kernel {number}"
    edges = [Edge(f"buffer {ref.name}", key, shapes[ref.name]) for ref in region.inputs]
    edges += [Edge(key, f"buffer {ref.name}", shapes[ref.name]) for ref in region.outputs]
    return (Node(key, (_title(region), f"{len(region.lets)} values")),), edges


def _key(number: int, let: str) -> str:
    return f"let {number} {let}"


def _title(region: Region) -> str:
    over = ", ".join(f"{axis.name}<{axis.size}" for axis in region.iters)
    return f"{region.name} over {over}" if over else region.name


def _buffer(buffer: BufferInfo, role: str) -> tuple[str, ...]:
    lines = (f"{role} {buffer.name}", shape_text(buffer.dtype.value, buffer.shape))
    return lines if buffer.offset is None else (*lines, f"at {buffer.offset}, {buffer.allocated_size} bytes")


def _spell(let: Let) -> str:
    match let.value:
        case Read(tensor, index):
            return f"{tensor}[{', '.join(map(str, index))}]"
        case Const(bits):
            return str(from_bits(bits, let.dtype))
        case Within(index, low, high):
            return f"{low} <= {index} < {high}"
        case Unary(op, _) | Binary(op, _, _):
            return op
        case Cast(_):
            return "CAST"
        case Reduce(op, axes, _):
            return f"{op} over {', '.join(f'{axis.name}<{axis.size}' for axis in axes)}"
        case Stream(axes):
            rounded = "" if let.value.rounded is None else f" in {let.value.rounded}"
            return f"softmax sum{rounded} over {', '.join(f'{axis.name}<{axis.size}' for axis in axes)}"
        case BroadcastInDim(_, axes, _):
            return f"broadcast to {', '.join(axes)}"
        case Transpose(_, permutation):
            return f"transpose {', '.join(map(str, permutation))}"
        case _:
            return "SELECT"
