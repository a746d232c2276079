"""Of problems that are much alike, which cost no less than others: what one of these costs, they cost at least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .dag import Node

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Dearer = NDArray[np.bool_]
    """Whether one (row) costs no less than another (column), whatever is chosen."""


def dearer_costs(costs: Sequence[Sequence[float]]) -> Dearer:
    """Of several costs of the same nodes, which are no less than others in all of them. Infinite: not to be had."""
    import numpy as np

    every = np.array(costs).reshape(len(costs), -1)
    return np.array([(each >= every).all(axis=1) for each in every]).reshape(len(costs), len(costs))


def dearer_nodes(classes: Sequence[Sequence[Node]]) -> Dearer:
    """Of several classes, which are dearer than others: for each node of the one, the other has one that costs no more and needs no
    other class."""
    import numpy as np

    nodes = list(dict.fromkeys(node for each in classes for node in each))
    names = {
        name: place for place, name in enumerate(dict.fromkeys(name for node in nodes for name in node.needs))
    }
    number = {node: place for place, node in enumerate(nodes)}
    cost = np.array([node.cost for node in nodes])
    needs = np.zeros((len(nodes), len(names)), np.float32)
    held = np.zeros((len(classes), len(nodes)), np.float32)
    for node, place in number.items():
        needs[place, [names[name] for name in node.needs]] = 1
    for place, each in enumerate(classes):
        held[place, [number[node] for node in each]] = 1
    # of the row's node, the column's has whatever it needs; and it costs as much
    within = (needs @ (1 - needs).T == 0) & (cost[:, None] <= cost[None, :])
    covered = held @ within.astype(np.float32) > 0  # the nodes for which a class has one that is as good
    return held @ (~covered).T.astype(np.float32) == 0
