"""Random problems of DAG extraction, and two ways to solve them that have nothing in common with tinyc's."""

from __future__ import annotations

import itertools
import random

from tinyc.extract.exact.dag import Dag, Node, cost_of, valid


def random_dag(seed: int, largest: int) -> Dag:
    """Up to ``largest`` classes of up to 5 nodes, costs among them that are equal, 0 or large. By ``seed`` there are
    circles or none, buffer edges, groups, many roots, and needs that nothing can fill."""
    choose = random.Random(seed)
    names = [f"c{number}" for number in range(choose.randint(1, largest))]
    circles, kinds = choose.random() < 0.7, choose.choice(["none", "few", "many"])
    leaves, buffers = choose.choice([0.05, 0.2, 0.5]), choose.choice([0.0, 0.5])
    groups = [f"g{number}" for number in range({"none": 0, "few": 1, "many": 4}[kinds])]

    def node(number: int) -> Node:
        before = names if circles else names[:number]
        needs: list[str] = []
        if before and choose.random() > leaves:
            needs = choose.choices(before, k=choose.randint(1, 3))
        cost = choose.choice([0.0, 1.0, float(choose.randint(1, 9)), choose.uniform(0.1, 100)])
        reads = tuple(need for need in needs if choose.random() < buffers)
        group = choose.choice([None, *groups])
        return Node(cost, tuple(need for need in needs if need not in reads), reads, group)

    classes = {name: [node(number) for _ in range(choose.randint(1, 5))] for number, name in enumerate(names)}
    roots = tuple(dict.fromkeys(choose.choices(names, k=choose.randint(1, 3))))
    return Dag(classes, roots, {group: float(choose.randint(0, 20)) for group in groups})


def brute_force(dag: Dag) -> float | None:
    """The least cost of all valid solutions, each looked at; None where there is none.

    Nodes are chosen class by class, for those alone that are needed: so the number stays small."""
    best: float | None = None
    stack: list[dict[str, int]] = [{}]
    while stack:
        chosen = stack.pop()
        needed = [*dag.roots]
        for name, number in chosen.items():
            node = dag.classes[name][number]
            needed += (*node.children, *node.buffers)
        open_ = next((name for name in needed if name not in chosen), None)
        if open_ is not None:
            for number in range(len(dag.classes[open_])):
                larger = {**chosen, open_: number}
                if best is None or _paid(dag, larger) < best:  # costs are not negative
                    stack.append(larger)
        elif valid(dag, chosen):
            cost = cost_of(dag, chosen)
            best = cost if best is None else min(best, cost)
    return best


def _paid(dag: Dag, chosen: dict[str, int]) -> float:
    nodes = [dag.classes[name][number] for name, number in chosen.items()]
    groups = {node.group for node in nodes if node.group is not None}
    return sum(node.cost for node in nodes) + sum(dag.groups[group] for group in groups)


def by_order(dag: Dag) -> float | None:
    """The same by CBC, without cuts: each class has a place in an order (Miller, Tucker, Zemlin) that is after the places
    of what its node needs. Only what cannot be had at all is left out, since CBC takes minutes to see that."""
    import pulp

    able: set[str] = set()
    while fresh := {
        name
        for name, nodes in dag.classes.items()
        if name not in able and any({*node.children, *node.buffers} <= able for node in nodes)
    }:
        able |= fresh
    if not able.issuperset(dag.roots):
        return None
    classes = {
        name: [node for node in nodes if {*node.children, *node.buffers} <= able]
        for name, nodes in dag.classes.items()
        if name in able
    }
    dag = Dag(classes, dag.roots, dag.groups)

    model = pulp.LpProblem("extraction", pulp.LpMinimize)
    size = len(dag.classes)
    place = {
        name: pulp.LpVariable(f"t_{name}", lowBound=0, upBound=size, cat="Continuous") for name in dag.classes
    }
    takes = {
        (name, number): pulp.LpVariable(f"x_{name}_{number}", cat="Binary")
        for name, nodes in dag.classes.items()
        for number in range(len(nodes))
    }
    paid = {group: pulp.LpVariable(f"p_{group}", cat="Binary") for group in dag.groups}
    had = {
        name: pulp.lpSum(takes[name, number] for number in range(len(nodes)))
        for name, nodes in dag.classes.items()
    }
    model += pulp.lpSum(
        [dag.classes[name][number].cost * variable for (name, number), variable in takes.items()]
        + [dag.groups[group] * variable for group, variable in paid.items()]
    )
    for root in dag.roots:
        model += had[root] >= 1
    for name in dag.classes:
        model += had[name] <= 1
    for (name, number), variable in takes.items():
        node = dag.classes[name][number]
        if node.group is not None:
            model += variable <= paid[node.group]
        for need in {*node.children, *node.buffers}:
            model += variable <= had[need]
            model += place[name] >= place[need] + 1 - (size + 1) * (1 - variable)
    status = model.solve(pulp.PULP_CBC_CMD(msg=False, threads=1, gapRel=0.0, gapAbs=1e-9))
    if pulp.LpStatus[status] != "Optimal":
        return None
    return float(pulp.value(model.objective) or 0.0)


def chain(length: int) -> Dag:
    """A problem whose optimum no local choice finds: each step may read one of two shared buffers, and there are circles
    between the two."""
    classes: dict[str, list[Node]] = {"in": [Node(0.0)]}
    for number in range(length):
        last = "in" if number == 0 else f"s{number - 1}"
        classes[f"a{number}"] = [Node(5.0, (last,)), Node(1.0, (), (f"b{number}",))]
        classes[f"b{number}"] = [Node(5.0 + number % 3, (last,)), Node(1.0, (), (f"a{number}",))]
        classes[f"s{number}"] = [
            Node(float(2 * a + b), (f"{x}{number}",))
            for a, (b, x) in itertools.product((0, 1), enumerate("ab"))
        ]
    return Dag(classes, (f"s{length - 1}", f"a{length // 2}", f"b{length // 3}"))
