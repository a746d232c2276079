"""Whether a Plan fits its Region and a machine (document 004 §6.12, §8, §11, §12)."""

from __future__ import annotations

from typing import Any

from .check_machine import Claim, check_cpu, check_gpu, swizzles
from .diagnostics import show
from .folds import fold_of
from .region import Reduce, Region, Stream
from .resources import Limits, Resources, resources
from .rows import kept_rows
from .schedule import BARRIER_MODELS, Contraction, Plan, rings
from .schedule_names import nearest
from .streams import STEP, extents_of, walk_on

__all__ = ["check_plan", "swizzles"]


def check_plan(plan: Plan, region: Region, limits: Limits, path: str = "plan") -> Resources:
    """What ``plan`` takes of the machine ``limits`` for ``region``.

    ``path``: how errors call the place (``plan.tile[1]: …``).

    Raises:
        TinycError: PlanMismatch where names, axes, layouts or the architecture do not fit; SharedMemoryExceeded,
            RegistersExceeded, VectorTooWide, TooManyThreads where the machine has less; PlanInvalid for sizes that no
            machine has.
    """
    return _Check(plan, region, limits, path).run()


class _Check(Claim):
    def run(self) -> Resources:
        if self.plan == Plan():
            return resources(self.plan, self.region, self.limits)
        self.architecture()
        self.sizes()
        self.contraction()
        self.names()
        self.choices()
        return check_cpu(self) if self.limits.arch == "cpu" else check_gpu(self)

    # ---- the Plan against itself and the architecture ---------------------------------------------------

    def architecture(self) -> None:
        arch, plan = self.limits.arch, self.plan
        if plan.arch is not None and plan.arch != arch:
            raise self.refuse(
                "arch", f"the Plan is for {plan.arch}, the target is {arch}", f'compile for "{plan.arch}"'
            )
        if arch == "cpu":
            said = {
                "stages": plan.stages,
                "bind": plan.bind,
                "warp_tile": plan.warp_tile,
                "cache": plan.cache,
                "layout_hints": plan.layout_hints,
                "local_edges": [edge for edge in plan.local_edges if edge.buffer != "reg"],
                "async": plan.async_,
                "barrier_model": plan.barrier_model,
            }
            for key, value in said.items():
                if value:
                    raise self.refuse(key, "the CPU has none", f"leave {key} out for the CPU")
        elif plan.barrier_model not in (None, BARRIER_MODELS[arch]):
            meant = BARRIER_MODELS[arch]
            raise self.refuse(
                "barrier_model", f"{arch} does not wait with {plan.barrier_model}", f'give "{meant}"'
            )

    def sizes(self) -> None:
        """Numbers that must fit each other."""
        plan = self.plan
        if plan.algo == "loops" and plan.tile is not None:
            self.shared(plan.tile)
        if plan.algo == "stream":
            self.walked()
        for number, size in enumerate(plan.tile or ()):
            if size < 1:
                raise self.refuse(f"tile[{number}]", f"{size} is below 1", "give at least 1", "PlanInvalid")
        if plan.warp_tile is not None:
            if plan.tile is None or plan.algo == "loops":
                raise self.refuse(
                    "warp_tile", "there is no tile to cut", "give a tile, or leave warp_tile out"
                )
            for number, (part, whole) in enumerate(zip(plan.warp_tile, plan.tile, strict=False)):
                if part < 1 or whole % part:
                    raise self.refuse(
                        "warp_tile",
                        f"{part} does not divide tile[{number}] = {whole}",
                        f"give a divisor of {whole}, or another tile",
                    )
        if plan.vectorize is not None and (plan.vectorize.width < 1 or plan.vectorize.width.bit_count() > 1):
            raise self.refuse(
                "vectorize.width",
                f"{plan.vectorize.width} is no power of two",
                "give a power of two",
                "PlanInvalid",
            )
        known = rings(self.limits.arch)
        if plan.stages not in (None, *known):
            raise self.refuse(
                "stages",
                f"{self.limits.arch} has no rings of {plan.stages} tiles",
                f"give {known[0]} to {known[-1]}",
            )
        ring = plan.stages or 2
        if plan.async_ is not None and plan.async_.enable and plan.async_.prefetch_depth > ring:
            raise self.refuse(
                "async.prefetch_depth",
                f"{plan.async_.prefetch_depth} tiles in flight, a ring of {ring}",
                f"give at most {ring}, or more stages",
            )
        for number, edge in enumerate(plan.local_edges):
            if edge.buffer == "smem_ring" and edge.depth not in (None, ring):
                raise self.refuse(
                    f"local_edges[{number}].depth",
                    f"a ring of {edge.depth} tiles, and {ring} stages",
                    f"give {ring}, or leave depth out",
                )

    def walked(self) -> None:
        """Whole instructions of rows that a warp has for itself, and of scores; what scores are summed over is not cut."""
        plan, region = self.plan, self.region
        walk = None if self.limits.arch == "cpu" else walk_on(region, self.limits.arch)
        if walk is None:
            what = "attention on matrix units"
            raise self.refuse("algo", f"Region {region.name} is no {what}", 'give algo "loops"')
        if plan.tile is None or plan.warp_tile is None:
            raise self.refuse("tile", "a stream has none", "give tile and warp_tile, or algo loops")
        (_, columns, depth), (own, scores) = plan.tile, plan.warp_tile
        deep = extents_of(region, walk).deep
        wrong = (
            ("tile[2]", f"scores are summed over {deep} points at once", f"give {deep}")
            if depth != deep
            else ("warp_tile", "a warp has all scores of its rows", f"give {own}x{columns}")
            if scores != columns
            else ("warp_tile", f"{own} rows are no whole instructions", f"give a multiple of {STEP}")
            if own < STEP or own % STEP
            else ("tile[1]", f"{columns} scores are no whole instructions", f"give a multiple of {STEP}")
            if columns < STEP or columns % STEP
            else None
        )
        if wrong is not None:
            raise self.refuse(*wrong)

    def shared(self, tile: tuple[int, int, int]) -> None:
        """Loops, and the threads that share their sums."""
        rows, _, threads = tile
        if rows != 1:
            raise self.refuse(
                "tile", "loops have no rows", "give [1, points, threads of a sum], or plan a contraction"
            )
        if threads == 1:
            return
        fold = fold_of(self.region)
        wrong = (
            "a CPU has one thread for each"
            if self.limits.arch == "cpu"
            else f"{self.region.name} has none at the points of its row"
            if fold is None
            else f"the shortest has {fold.points} points"
            if threads > fold.points
            else "their number is no power of two"
            if threads.bit_count() != 1
            else None
        )
        if wrong is not None:
            raise self.refuse("tile[2]", f"{threads} threads cannot share a sum: {wrong}", "give 1")

    # ---- the Plan against the Region --------------------------------------------------------------------

    def contraction(self) -> None:
        plan, region, roles = self.plan, self.region, self.scope.contraction
        if plan.algo != "contraction":
            return
        if roles is None:
            raise self.refuse(
                "algo",
                f"Region {region.name} has not exactly one sum of products",
                "name it and its axes under contraction, or use loops",
            )
        wrong = self._wrong_roles(roles)
        if wrong is not None:
            key, why = wrong
            raise self.refuse(f"contraction.{key}", why, "take the roles from the Plan that tinyc dumps")
        if self.limits.arch != "cpu":
            self.rows(roles)

    def rows(self, roles: Contraction) -> None:
        """What reductions need along a row of the contraction must be in one block: no other one can be asked for it."""
        kept = kept_rows(self.region, roles)
        if not kept:
            return
        whole = {*roles.batch, *roles.m} - {name for name, item in self.scope.sizes.items() if item.size == 1}
        if any(whole - self.scope.free[name] for name in kept):
            raise self.refuse(
                "algo",
                f"a reduction of {kept[0]} needs rows of other blocks",
                "use loops, or store the product",
            )
        tile, places = self.plan.tile, dict(self.plan.bind)
        if (
            tile is not None
            and tile[1] < self.scope.extent("n")
            and places.get("n.o", "").startswith("block")
        ):
            raise self.refuse(
                "bind['n.o']",
                f"a block has {tile[1]} columns of a row of {self.scope.extent('n')}, which {kept[0]} reduces as a whole",
                f"leave n.o out, or give tile[1] at least {self.scope.extent('n')}",
            )

    def _wrong_roles(self, roles: Contraction) -> tuple[str, str] | None:
        lets, free = self.scope.lets, self.scope.free
        for key in ("reduce", "lhs", "rhs"):
            name = getattr(roles, key)
            if name not in lets:
                return (
                    key,
                    f"Region {self.region.name} has no let {show(name)}{self._meant(name, list(lets))}",
                )
        value = lets[roles.reduce].value
        if not isinstance(value, Reduce) or value.op != "SUM":
            return "reduce", f"{roles.reduce} is no sum"
        body = lets[value.body].value
        factors = {getattr(body, "x", None), getattr(body, "y", None)}
        if getattr(body, "op", None) != "MUL" or factors != {roles.lhs, roles.rhs}:
            return "reduce", f"{roles.reduce} does not sum {roles.lhs} * {roles.rhs}"
        iters, summed = {item.name for item in self.region.iters}, {item.name for item in value.axes}
        single = {name for name, item in self.scope.sizes.items() if item.size == 1}
        taken: set[str] = set()
        for key in ("batch", "m", "n", "k"):
            for name in getattr(roles, key):
                if name not in (summed if key == "k" else iters):
                    kind = f"summed by {roles.reduce}" if key == "k" else "an axis of the result"
                    return key, f"{name} is not {kind}"
                if name in taken:
                    return key, f"{name} has two roles"
                taken.add(name)
        if forgotten := summed - {*roles.k} - single:
            return "k", f"{roles.reduce} sums {', '.join(sorted(forgotten))} as well"
        for key, own in (("lhs", roles.m), ("rhs", roles.n)):
            beyond = free[getattr(roles, key)] - {*roles.batch, *own, *roles.k} - single
            if beyond:
                return key, f"{getattr(roles, key)} depends on {', '.join(sorted(beyond))} as well"
        return None

    def _meant(self, name: str, known: list[str]) -> str:
        meant = nearest(name, known)
        return f"; {meant!r} may be meant" if meant else ""

    def names(self) -> None:
        plan, scope = self.plan, self.scope
        parts = [(f"bind[{show(part)}]", part) for part, _ in plan.bind]
        parts += [(f"cache[{number}].at", entry.at) for number, entry in enumerate(plan.cache)]
        parts += [("vectorize.axis", plan.vectorize.axis)] if plan.vectorize else []
        parts += [(f"predicate_tail[{number}]", part) for number, part in enumerate(plan.predicate_tail)]
        for key, part in parts:
            name = part.split(".")[0]
            if name not in scope.groups:
                raise self.refuse(
                    key,
                    f"Region {self.region.name} has no axis {show(name)}{self._meant(name, list(scope.groups))}",
                    f"its axes are {', '.join(scope.groups) or 'none'}",
                )
        for part, where in plan.bind:
            self.place(part, where)
        inputs = [ref.name for ref in self.region.inputs]
        for number, entry in enumerate(plan.cache):
            if entry.tensor not in inputs:
                raise self.refuse(
                    f"cache[{number}].tensor",
                    f"Region {self.region.name} reads no {show(entry.tensor)}{self._meant(entry.tensor, inputs)}",
                    f"it reads {', '.join(inputs) or 'nothing'}",
                )
            if entry.tensor in [other.tensor for other in plan.cache[:number]]:
                raise self.refuse(
                    f"cache[{number}].tensor", f"{entry.tensor} is there already", "give it once"
                )
        self.epilogue()
        for number, edge in enumerate(plan.local_edges):
            sources = self.called(f"local_edges[{number}].from", edge.source, None, buffers=True)
            targets = self.called(f"local_edges[{number}].to", edge.target, None)
            if not any(target in scope.after(source) for source in sources for target in targets):
                raise self.refuse(
                    f"local_edges[{number}]",
                    f"{edge.target} is not computed from {edge.source}",
                    "let an edge lead from a value to one that uses it",
                )

    def place(self, part: str, where: str) -> None:
        """A tile is a block's, its first split a warp's, its second a lane's; what is summed is nobody's alone."""
        unit, levels = where.split(".")[0], part.split(".")[1:]
        allowed = {0: "block warp lane", 1: "block" if levels == ["o"] else "warp lane"}.get(
            len(levels), "warp" if levels[-1:] == ["o"] else "lane"
        )
        key = f"bind[{show(part)}]"
        if unit not in allowed.split():
            raise self.refuse(
                key, f"{part} cannot be bound to {where}", f"bind it to {allowed.replace(' ', ' or ')}"
            )
        splits = any(name.startswith("splitk_") for _, name in self.plan.algo_choice)
        summed = {item.name for item in self.scope.axes(part)} - {item.name for item in self.region.iters}
        splits = splits or (
            unit != "block" and self.plan.algo == "loops" and (self.plan.tile or (1, 1, 1))[2] > 1
        )
        if summed and not splits:
            raise self.refuse(key, f"{part} is summed", 'choose "splitk_<parts>", or leave it out')

    def epilogue(self) -> None:
        if not self.plan.epilogue:
            return
        roles = self.scope.contraction
        reductions = [let.name for let in self.region.lets if isinstance(let.value, Reduce | Stream)]
        starts = [roles.reduce] if roles else reductions
        if not starts:
            raise self.refuse(
                "epilogue", "there is no accumulator", "leave epilogue out where nothing is summed"
            )
        after = frozenset().union(*(self.scope.after(name) for name in starts))
        order = {let.name: number for number, let in enumerate(self.region.lets)}
        last = -1
        for number, name in enumerate(self.plan.epilogue):
            found = self.called(f"epilogue[{number}]", name, after)
            if not set(found) <= after:
                raise self.refuse(
                    f"epilogue[{number}]",
                    f"{name} is not computed from the sum",
                    f"name one of {_some(after)}",
                )
            later = [order[each] for each in found if order[each] > last]
            if not later:
                raise self.refuse(
                    f"epilogue[{number}]",
                    f"{name} comes before {self.plan.epilogue[number - 1]}",
                    "keep the order of the Region",
                )
            last = min(later)

    def called(
        self, key: str, name: str, among: frozenset[str] | None, buffers: bool = False
    ) -> tuple[str, ...]:
        """The lets that a name may mean; a buffer's Reads where ``buffers``."""
        found = self.scope.called(name, among)
        if buffers and name in self.scope.buffers and name not in self.scope.lets:
            reads = [let.name for let in self.region.lets if getattr(let.value, "tensor", None) == name]
            found = (*found, *reads)
        if not found:
            known = [*self.scope.lets, *self.scope.buffers]
            raise self.refuse(
                key,
                f"Region {self.region.name} has no let, operation or buffer {show(name)} there{self._meant(name, known)}",
                f"name one of {_some(among if among is not None else self.scope.lets)}, or an operation such as relu",
            )
        return found

    def choices(self) -> None:
        """A kernel can only be implemented as what it is."""
        for kind, name in self.plan.algo_choice:
            key = f"algo_choice.{kind}"
            if kind == "attention":
                ops = {getattr(let.value, "op", type(let.value).__name__) for let in self.region.lets}
                if "Stream" not in ops and not {"EXP2", "MAX", "SUM"} <= ops:
                    raise self.refuse(key, "there is no softmax in the Region", f"leave {kind} out")
            elif self.scope.contraction is None:
                raise self.refuse(key, "there is no contraction in the Region", f"leave {kind} out")
            if self.limits.arch == "cpu" and kind != "attention" and name != "implicit_gemm":
                raise self.refuse(key, f"the CPU has no {name}", 'give "implicit_gemm"')


def _some(names: Any) -> str:
    listed = sorted(names, key=lambda name: (len(name), name))
    return ", ".join(listed[:8]) + (", …" if len(listed) > 8 else "")
