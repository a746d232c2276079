"""Regions as JSON and back, byte for byte (document 004 §6.8).

``{"name", "iters": [{"name", "size"}], "reduce_axes": [{"name", "size"}], "inputs": [{"name", "memref"}], "outputs":
[{"name", "memref", "materialize"}], "lets": [{"let", "dtype", "expr"}], "yield": [{"from", "to", "cast"?}]}``.

The text shows the explicit form; what is read is the point form. A let that is called after its place in the list
(``v3`` is the fourth), that is used once, right after it stands, and that is a Read behind casts and guards, a constant
or the body of a Reduce, is written where it is used; reading numbers it again. So ``region_from_json(region_to_json(r))
== point(r)``, names of lets and all.

Reading also takes the spellings of the document: iters without sizes, reduce axes without ``reduce_axes``, symbolic
sizes that ``shapes`` binds, lets without dtype, nested index expressions, ``exp``, ``div``, ``-INF``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from . import dims
from .check_region import LAYOUTS, fault, is_axis_name, is_name
from .diagnostics import show, show_shape
from .dtypes import DType
from .jsonc import check_nesting
from .region import Axis, Cast, Layout, MemRef, Region, Yield
from .region_expr import ExprReader
from .region_fields import check_keys, read_dtype, refused
from .region_fresh import fresh_axes
from .region_index import MAX_NUMBER
from .region_meet import check_stored
from .region_write import region_to_json

__all__ = ["region_from_json", "region_to_json"]

MATERIALIZE = ("gmem", "deferred")


def region_from_json(data: object, shapes: Mapping[str, int] | None = None, path: str = "region") -> Region:
    """The Region, in point form, of its JSON value ``data``, which may stand inside ``{"region": …}``.

    ``shapes`` binds symbols. ``path``: where ``data`` stands, for the errors, which name the place in ``at["value"]``.

    Raises TinycError: MalformedDocument, UnknownReference, DuplicateId, UnboundSymbol, InvalidShape, InvalidPermutation,
    BroadcastMismatch, DTypeMismatch, AxisAlignmentMismatch, AxisSizeMismatch, AccDtypeMissing, NeutralInvalid,
    NonAssociativeTransform; and nothing else, whatever ``data`` is.
    """
    check_nesting(data)
    if isinstance(data, dict) and data.keys() == {"region"}:
        data = data["region"]
    return _RegionReader(data, dict(shapes or {}), path).read()


class _RegionReader:
    def __init__(self, data: object, symbols: dict[str, int], path: str) -> None:
        required = ("name", "iters", "inputs", "outputs", "lets", "yield")
        self.data = check_keys(data, path, required, ("reduce_axes",))
        self.symbols, self.path = symbols, path

    def read(self) -> Region:
        data, path = self.data, self.path
        name = self.name(data["name"], f"{path}.name")
        inputs = [self.buffer(*each) for each in self.listed("inputs")]
        outputs = [self.buffer(*each) for each in self.listed("outputs")]
        refs = {ref.name: ref for ref, _ in (*inputs, *outputs)}
        if len(refs) < len(inputs) + len(outputs):
            raise refused(path, "two buffers have one name", "give each buffer its own name", "DuplicateId")
        iters = self.iters([ref.shape for ref, _ in outputs])
        sizes = {axis.name: axis.size for axis in iters} | self.reduce_axes(iters, refs)
        lets = [(self.entry(each, where), where) for each, where in self.listed("lets")]
        yields = [
            (check_keys(each, where, ("from", "to"), ("cast",)), where)
            for each, where in self.listed("yield")
        ]
        reader = ExprReader(
            {ref.name: ref for ref, _ in inputs},
            tuple(axis.name for axis in iters),
            sizes,
            self.symbols,
            frozenset(each["let"] for each, _ in lets),
        )
        for each, where in lets:
            declared = read_dtype(each["dtype"], f"{where}.dtype") if "dtype" in each else None
            reader.let(each["let"], each["expr"], f"{where}.expr", declared)
        stored = tuple(self.stored(reader, each, where, iters, refs) for each, where in yields)
        region = Region(
            name,
            iters,
            tuple(ref for ref, _ in inputs),
            tuple(ref for ref, _ in outputs),
            tuple(reader.lets),
            stored,
            tuple(ref.name for ref, materialize in outputs if materialize == "deferred"),
        )
        if reader.shared:
            region = fresh_axes(region, reader.given)
        wrong = fault(region)
        if wrong is not None:
            raise refused(path, wrong, "write the Region as a dump shows it")
        return region

    def listed(self, key: str) -> Iterator[tuple[Any, str]]:
        value = self.data[key]
        if not isinstance(value, list):
            raise refused(f"{self.path}.{key}", f"{key} is {show(value)}", f"give {key} as a list")
        for number, each in enumerate(value):
            yield each, f"{self.path}.{key}[{number}]"

    def name(self, value: object, path: str) -> str:
        if not is_name(value):
            why = f"{show(value)} is no name"
            raise refused(path, why, "use letters, digits and _.:- after a letter or _, at most 200 in all")
        return str(value)

    def entry(self, value: object, path: str) -> dict[str, Any]:
        entry = check_keys(value, path, ("let", "expr"), ("dtype",))
        if self.name(entry["let"], f"{path}.let").lower() in ("inf", "nan"):
            raise refused(f"{path}.let", f"{entry['let']} is a number", "call the let something else")
        return entry

    # ---- buffers and axes ----

    def buffer(self, value: object, path: str) -> tuple[MemRef, str]:
        """A buffer, and where an output goes."""
        entry = check_keys(value, path, ("name", "memref"), ("materialize",))
        name = self.name(entry["name"], f"{path}.name")
        output = path.startswith(f"{self.path}.outputs")
        materialize = entry.get("materialize", "gmem")
        if materialize not in MATERIALIZE or (not output and "materialize" in entry):
            why = f"materialize is {show(materialize)}"
            raise refused(f"{path}.materialize", why, 'an output has "gmem" or "deferred"')
        where = f"{path}.memref"
        memref = check_keys(entry["memref"], where, ("shape",), ("dtype", "alignment", "noalias", "layout"))
        dtype = self.buffer_dtype(memref, name, where, output)
        shape = memref["shape"]
        if not isinstance(shape, list):
            raise refused(f"{where}.shape", f"shape is {show(shape)}", "give a list of sizes")
        sizes = tuple(self.size(each, f"{where}.shape[{number}]") for number, each in enumerate(shape))
        alignment, noalias = memref.get("alignment", 64), memref.get("noalias", True)
        if type(alignment) is not int or not 1 <= alignment <= 1 << 16 or alignment & (alignment - 1):
            why = f"alignment is {show(alignment)}"
            raise refused(f"{where}.alignment", why, "use a power of two of bytes, such as 64")
        if not isinstance(noalias, bool):
            raise refused(f"{where}.noalias", f"noalias is {show(noalias)}", "use true or false")
        layout = self.layout(memref.get("layout", {"kind": "row_major"}), f"{where}.layout")
        ref = MemRef(name, dtype, sizes, alignment, noalias, layout)
        if ref.bytes >= 2**63:
            raise refused(
                f"{where}.shape", f"{show_shape(sizes)} is too large", "use smaller sizes", "InvalidShape"
            )
        return ref, materialize

    def buffer_dtype(self, memref: Mapping[str, Any], name: str, path: str, output: bool) -> DType:
        """The dtype of a buffer; that of an output may be said by the cast of its yield alone."""
        if "dtype" in memref:
            return read_dtype(memref["dtype"], f"{path}.dtype")
        if output:
            for each, where in self.listed("yield"):
                if isinstance(each, dict) and each.get("to") == name and "cast" in each:
                    return read_dtype(each["cast"], f"{where}.cast")
        raise refused(path, "dtype is missing", "say what the elements of the buffer are")

    def layout(self, value: object, path: str) -> Layout:
        layout = check_keys(value, path, ("kind",), ("params",))
        kind, params = layout["kind"], layout.get("params", {})
        if kind not in LAYOUTS:
            raise refused(
                f"{path}.kind", f"there is no layout {show(kind)}", f"use one of {', '.join(LAYOUTS)}"
            )
        plain = isinstance(params, dict) and all(
            is_name(key) and ((type(each) is int and abs(each) <= MAX_NUMBER) or is_name(each))
            for key, each in params.items()
        )
        if not plain:
            raise refused(f"{path}.params", f"params are {show(params)}", "give names and integers by name")
        return Layout(kind, tuple(sorted(params.items())))

    def size(self, value: object, path: str) -> int:
        """A size: a number, or an expression over bound symbols."""
        size: object = value
        if isinstance(value, str):
            try:
                size = dims.substitute(dims.parse(value), self.symbols)
            except dims.DimError as error:
                raise refused(path, str(error), 'use a number, a symbol or such as "2*M+1"') from error
            if isinstance(size, str):
                why = f"the size {size} has a symbol that nothing binds"
                raise refused(path, why, "bind it: --shape M=64, or shapes={'M': 64}", "UnboundSymbol")
        if type(size) is not int or not 1 <= size <= MAX_NUMBER:
            raise refused(path, f"a size is {show(value)}", "use integers from 1 on", "InvalidShape")
        return size

    def iters(self, outputs: list[tuple[int, ...]]) -> tuple[Axis, ...]:
        """The iters; a size that is not given is that of the outputs."""
        axes: list[Axis] = []
        listed = list(self.listed("iters"))
        where = f"{self.path}.iters"
        for shape in outputs:
            if len(shape) != len(listed):
                why = f"there are {len(listed)} iters and an output of shape {show_shape(shape)}"
                raise refused(
                    where, why, "give an iter for each axis of the outputs", "AxisAlignmentMismatch"
                )
        for number, (each, path) in enumerate(listed):
            entry = check_keys(each, path, ("name",), ("size",))
            sizes = {shape[number] for shape in outputs}
            if "size" in entry:
                sizes.add(self.size(entry["size"], f"{path}.size"))
            if len(sizes) != 1:
                why = f"the sizes of {show(entry['name'])} here and in the outputs are {sorted(sizes)}"
                raise refused(path, why, "give every output the sizes of the iters", "AxisAlignmentMismatch")
            axes.append(Axis(self.axis(entry["name"], f"{path}.name", axes), sizes.pop()))
        return tuple(axes)

    def axis(self, name: object, path: str, others: list[Axis]) -> str:
        if not is_axis_name(name):
            raise refused(
                path, f"{show(name)} is no name of an axis", "use letters, digits and _ after a letter"
            )
        if any(axis.name == name for axis in others):
            raise refused(path, f"two axes are called {name}", "give each axis its own name", "DuplicateId")
        return str(name)

    def reduce_axes(self, iters: tuple[Axis, ...], refs: Mapping[str, MemRef]) -> dict[str, int]:
        """The sizes of the axes that reductions bind: given, or those of the buffers that they address alone."""
        axes = list(iters)
        path = f"{self.path}.reduce_axes"
        if "reduce_axes" in self.data:
            for each, where in self.listed("reduce_axes"):
                entry = check_keys(each, where, ("name", "size"))
                name = self.axis(entry["name"], f"{where}.name", axes)
                axes.append(Axis(name, self.size(entry["size"], f"{where}.size")))
        sizes = {axis.name: axis.size for axis in axes[len(iters) :]}
        declared = {axis.name for axis in axes}
        bound: list[str] = []
        for reduction in _named(self.data["lets"], ("reduce", "stream")):
            listed = reduction.get("axes")
            for each in listed if isinstance(listed, list) else []:
                entry = each if isinstance(each, dict) else {"name": each}
                if not is_axis_name(entry.get("name")):
                    why = f"{show(entry.get('name'))} is no name of an axis"
                    raise refused(path, why, "use letters, digits and _ after a letter")
                name = str(entry["name"])
                bound.append(name)
                if "size" in entry:
                    size = self.size(entry["size"], f"{path}.{name}")
                    if sizes.setdefault(name, size) != size:
                        why = f"{name} has the sizes {sizes[name]} and {size}"
                        raise refused(path, why, "give each axis one size", "AxisSizeMismatch")
        unused = [axis.name for axis in axes[len(iters) :] if axis.name not in bound]
        if unused:
            raise refused(path, f"no reduction binds {unused[0]}", "leave out what is not reduced")
        inferred = [name for name in bound if name not in declared | sizes.keys()]
        return sizes | self.inferred(dict.fromkeys(inferred), refs)

    def inferred(self, names: Mapping[str, None], refs: Mapping[str, MemRef]) -> dict[str, int]:
        found: dict[str, set[int]] = {name: set() for name in names}
        for read in _named(self.data["lets"], ("read",)) if names else ():
            tensor, index_map = read.get("tensor"), read.get("map")
            ref = refs.get(tensor) if isinstance(tensor, str) else None
            if ref is not None and isinstance(index_map, list) and len(index_map) == len(ref.shape):
                for index, size in zip(index_map, ref.shape, strict=True):
                    if isinstance(index, str) and index in found:
                        found[index].add(size)
        for name, sizes in found.items():
            if len(sizes) != 1:
                why = f"the reduce axis {name} has " + (f"the sizes {sorted(sizes)}" if sizes else "no size")
                suggestion = 'give it: "reduce_axes": [{"name": …, "size": …}]'
                kind = "AxisSizeMismatch" if sizes else "MalformedDocument"
                raise refused(f"{self.path}.lets", why, suggestion, kind)
        return {name: sizes.pop() for name, sizes in found.items()}

    # ---- outputs ----

    def stored(
        self,
        reader: ExprReader,
        entry: dict[str, Any],
        path: str,
        iters: tuple[Axis, ...],
        refs: Mapping[str, MemRef],
    ) -> Yield:
        to = entry["to"]
        outputs = [each["name"] for each, _ in self.listed("outputs")]
        if to not in outputs:
            raise refused(
                f"{path}.to", f"there is no output {show(to)}", "name an output", "UnknownReference"
            )
        if not isinstance(entry["from"], str) or entry["from"] not in reader.known:
            why = f"there is no let {show(entry['from'])}"
            raise refused(f"{path}.from", why, "name a let", "UnknownReference")
        value = reader.known[entry["from"]]
        check_stored(value, [(axis.name, axis.size) for axis in iters], f"{path}.from")
        let, dtype = value.let, value.dtype
        if "cast" in entry:
            target = read_dtype(entry["cast"], f"{path}.cast")
            if target is not dtype:
                let, dtype = reader.emit(target, Cast(let), value.axes).let, target
        if refs[to].dtype is not dtype:
            why = f"{to} is {refs[to].dtype} and filled with {dtype}"
            raise refused(path, why, f'cast: "cast": "{refs[to].dtype}"', "DTypeMismatch")
        return Yield(let, to)


def _named(value: object, keys: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The objects under ``keys`` anywhere in ``value``, in the order of the text."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key in keys and isinstance(each, dict):
                yield each
            yield from _named(each, keys)
    elif isinstance(value, list):
        for each in value:
            yield from _named(each, keys)
