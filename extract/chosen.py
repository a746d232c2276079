"""Which e-class each value of a kernel was chosen from, and among how many (for drawings and for people)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tinyc.ir.region import Region
from tinyc.ir.tiny import Program

from .choice import Choice, Key, children_of
from .view import Item, View


@dataclass(frozen=True)
class ChosenClass:
    """An expression class that a kernel evaluates.

    Attributes:
        kernel: the Region's name. A class that two kernels evaluate is chosen in each.
        cls: the class; " as loaded" is added where it must be read from memory, which leaves it fewer ways.
        op: the e-node that was chosen, in words.
        operands: classes of this kernel, in operand order.
        reads: the buffer that a Read reads, else "".
        node: id of the document's node whose value it is, else "".
        alternatives: how many other e-nodes of the class a kernel could have evaluated.
        stores: the buffer that the kernel fills with it, else "".
    """

    kernel: str
    cls: str
    op: str
    operands: tuple[str, ...]
    reads: str
    node: str
    alternatives: int
    stores: str


def chosen_classes(
    program: Program, view: View, choice: Choice, regions: Sequence[Region]
) -> tuple[ChosenClass, ...]:
    """The classes of every kernel, operands before their users. ``regions``: those of the choice's kernels, in
    order."""
    buffers = {
        kernel.buffer.cls: region.outputs[0].name
        for kernel, region in zip(choice.kernels, regions, strict=True)
    }
    for cls, buffer in view.buffers.items():
        if buffer.arg is not None:
            buffers[cls] = program.inputs[buffer.arg].name
    found = []
    for kernel, region in zip(choice.kernels, regions, strict=True):
        for key in _in_order(kernel.root, kernel.items):
            item = kernel.items[key]
            number = view.graph.names.get(key[0])
            found.append(
                ChosenClass(
                    region.name,
                    _spell(key),
                    item.head if item.head == item.op else f"{item.head} {item.op}",
                    tuple(_spell(child) for child in children_of(key, item)),
                    buffers.get(str(item.payload[0]), "") if item.head == "Read" else "",
                    "" if number is None else program.nodes[number].id,
                    len(view.items[key[0]]) - 1,
                    region.outputs[0].name if key == kernel.root else "",
                )
            )
    return tuple(found)


def _in_order(root: Key, items: Mapping[Key, Item]) -> list[Key]:
    """What the root needs, each after its operands; iterative, since chains may be thousands long."""
    done: dict[Key, None] = {}
    stack = [(root, False)]
    while stack:
        key, ready = stack.pop()
        if ready:
            done.setdefault(key)
        elif key not in done:
            stack.append((key, True))
            stack += [(child, False) for child in reversed(children_of(key, items[key])) if child not in done]
    return list(done)


def _spell(key: Key) -> str:
    return f"{key[0]} as loaded" if key[1] else key[0]
