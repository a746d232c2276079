"""The words of the e-graph: every sort, constructor, function and relation of ``rules/schema.egg``, in one table.

Python spells these names where it builds terms (``encode.py``) and where it reads them (``graph.py``, and extraction);
rule files spell them where they match. A test compares this table with the schema, and both users with this table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sort:
    """``container``: what the sort is made of where it is a container or a function, as the engine spells it."""

    name: str
    container: tuple[str, ...]
    meaning: str


@dataclass(frozen=True, slots=True)
class Constructor:
    """``args``: argument sorts. ``extracted``: False for a request that rules replace, and for the mark of an output."""

    name: str
    args: tuple[str, ...]
    result: str
    meaning: str
    extracted: bool = True


@dataclass(frozen=True, slots=True)
class Function:
    """A fact that has a value. ``merge``: what becomes of two values for equal arguments, in the engine's words."""

    name: str
    args: tuple[str, ...]
    result: str
    merge: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Relation:
    """A fact that holds or is not known."""

    name: str
    args: tuple[str, ...]
    meaning: str


@dataclass(frozen=True)
class Vocabulary:
    """All words, in the order of the schema."""

    sorts: tuple[Sort, ...]
    constructors: tuple[Constructor, ...]
    functions: tuple[Function, ...]
    relations: tuple[Relation, ...]

    def arity(self) -> dict[str, int]:
        """Number of arguments of every constructor, function and relation."""
        words: tuple[Constructor | Function | Relation, ...] = (
            *self.constructors,
            *self.functions,
            *self.relations,
        )
        return {each.name: len(each.args) for each in words}


_LEAST, _MOST, _BOTH, _ONE = "(min old new)", "(max old new)", "(set-intersect old new)", ":no-merge"

VOCABULARY = Vocabulary(
    sorts=(
        Sort("Ints", ("Vec", "i64"), "integers: a shape, a permutation"),
        Sort("Ix", (), "index expression: affine with floor divisions"),
        Sort("Atom", (), "what an index expression is a sum of"),
        Sort("Ixs", ("Vec", "Ix"), "index of an element; bound axes of a reduction"),
        Sort("Axes", ("Set", "Atom"), "a set of axes"),
        Sort("IntToInt", ("UnstableFn", "(i64)", "i64"), "for mapping over vectors"),
        Sort("IntToIx", ("UnstableFn", "(i64)", "Ix"), "for mapping over vectors"),
        Sort("IxToIx", ("UnstableFn", "(Ix)", "Ix"), "for mapping over vectors"),
        Sort("Tensor", (), "a node of the Tiny IR, movement one axis at a time"),
        Sort("Expr", (), "one element of a tensor, as a function of the axes in scope"),
        Sort("Buf", (), "a buffer in memory"),
        Sort("Problem", (), "what the schedule of a kernel depends on"),
    ),
    constructors=(
        Constructor("Lit", ("i64",), "Ix", "a constant"),
        Constructor("Plus", ("i64", "Atom", "Ix"), "Ix", "coefficient * atom + rest"),
        Constructor("Ax", ("i64", "i64"), "Atom", "an axis: its id and its extent, above 1"),
        Constructor("FloorDiv", ("Ix", "i64"), "Atom", "floor(e / d), d above 1"),
        Constructor("IAdd", ("Ix", "Ix"), "Ix", "a + b", extracted=False),
        Constructor("IScale", ("i64", "Ix"), "Ix", "k * a", extracted=False),
        Constructor("IDiv", ("Ix", "i64"), "Ix", "floor(a / d)", extracted=False),
        Constructor("DivAcc", ("Ix", "Ix", "i64"), "Ix", "floor((kept + todo) / d)", extracted=False),
        Constructor("DivEnd", ("Ix", "i64"), "Ix", "floor(a / d), nothing left to take out", extracted=False),
        Constructor(
            "Subst", ("Ixs", "Ix"), "Ix", "the second, with axis k replaced by element k", extracted=False
        ),
        Constructor(
            "Ravel", ("Ixs", "Ints", "i64"), "Ix", "row-major offset of the first k indices", extracted=False
        ),
        Constructor("Input", ("i64",), "Tensor", "an input of the program, by number"),
        Constructor("Imm", ("String", "i64"), "Tensor", "a constant of any shape: dtype, bits"),
        Constructor("TUnary", ("String", "Tensor"), "Tensor", "an elementwise operator"),
        Constructor("TBinary", ("String", "Tensor", "Tensor"), "Tensor", "arithmetic or comparison"),
        Constructor("TWhere", ("Tensor", "Tensor", "Tensor"), "Tensor", "condition, then, else"),
        Constructor("TCast", ("String", "Tensor"), "Tensor", "a cast to a dtype"),
        Constructor("TReduce", ("String", "i64", "Tensor"), "Tensor", "operator over the last n axes"),
        Constructor("Reshape", ("Tensor", "Ints"), "Tensor", "the same elements in row-major order"),
        Constructor("Permute", ("Tensor", "Ints", "Ints"), "Tensor", "a permutation and its inverse"),
        Constructor("Expand", ("Tensor", "i64", "i64"), "Tensor", "an axis of size 1, its new size"),
        Constructor("Pad", ("Tensor", "i64", "i64", "i64", "Tensor"), "Tensor", "axis, before, after, value"),
        Constructor("Shrink", ("Tensor", "i64", "i64", "i64", "i64"), "Tensor", "axis, lo, hi, step"),
        Constructor("Flip", ("Tensor", "i64"), "Tensor", "an axis backwards"),
        Constructor("View", ("Tensor", "Ints", "Ixs"), "Tensor", "result shape, index of the operand"),
        Constructor("Valid", ("Ints", "i64", "i64", "i64"), "Tensor", "shape, axis: lo <= index < hi"),
        Constructor("At", ("Tensor", "Ixs"), "Expr", "the element of a tensor at an index"),
        Constructor("Read", ("Buf", "Ixs"), "Expr", "the element of a buffer at an index"),
        Constructor("Const", ("String", "i64"), "Expr", "a constant: dtype, bits"),
        Constructor("Within", ("Ix", "i64", "i64"), "Expr", "bool: lo <= index < hi"),
        Constructor("Unary", ("String", "Expr"), "Expr", "an operator of one operand"),
        Constructor("Binary", ("String", "Expr", "Expr"), "Expr", "an operator of two operands"),
        Constructor("Select", ("Expr", "Expr", "Expr"), "Expr", "condition, then, else"),
        Constructor("Cast", ("String", "Expr"), "Expr", "a cast to a dtype"),
        Constructor("Reduce", ("String", "Ixs", "Expr"), "Expr", "operator, bound axes, body"),
        Constructor(
            "Stream", ("Ixs", "Expr", "Expr", "i64"), "Expr", "bound axes, score, weight, scale as fp32 bits"
        ),
        Constructor(
            "RoundedStream",
            ("String", "Ixs", "Expr", "Expr", "i64"),
            "Expr",
            "dtype of the probabilities, the rest as of a Stream",
        ),
        Constructor("Arg", ("i64",), "Buf", "an input of the program"),
        Constructor("Fill", ("String", "Ints", "Expr"), "Buf", "dtype, shape, the expression that fills it"),
        Constructor("Alias", ("Ints", "Buf"), "Buf", "the same memory under another shape"),
        Constructor(
            "Out", ("i64", "Buf"), "Expr", "an output of the program: its number and buffer", extracted=False
        ),
        Constructor(
            "Product",
            ("String", *("i64",) * 7, "String"),
            "Problem",
            "a contraction on a GPU: kind, batch, m, n, k, bytes of both operands, contiguous points, along which axes",
        ),
        Constructor("Packed", ("i64",) * 4, "Problem", "one on the CPU: outer, rows, columns, k"),
        Constructor("Row", ("i64", "i64"), "Problem", "loops: points of the last axis, element bytes"),
        Constructor(
            "Walk",
            ("i64",) * 5,
            "Problem",
            "a Stream on matrix units: rows, scores of a row, points these are sums of, values they weight, element bytes",
        ),
        Constructor(
            "Fold",
            ("i64",) * 3,
            "Problem",
            "loops that sum: points of the last axis, points summed, element bytes",
        ),
    ),
    functions=(
        Function("atom-key", ("Atom",), "i64", _LEAST, "order of the atoms in a normal form"),
        Function("print-of", ("Ix",), "i64", _LEAST, "value modulo a prime at a fixed point"),
        Function("low", ("Ix",), "i64", _MOST, "least value over the ranges of the axes"),
        Function("high", ("Ix",), "i64", _LEAST, "greatest value"),
        Function("atom-low", ("Atom",), "i64", _MOST, "least value of an atom"),
        Function("atom-high", ("Atom",), "i64", _LEAST, "greatest value of an atom"),
        Function("top-axis", ("Ix",), "i64", _MOST, "largest axis id, -1 for none"),
        Function("ix-axes", ("Ix",), "Axes", _BOTH, "the axes of an index expression"),
        Function("top-axis-upto", ("Ixs", "i64"), "i64", _MOST, "largest axis id in the first k indices"),
        Function("ixs-axes", ("Ixs", "i64"), "Axes", _BOTH, "axes of the first k indices"),
        Function("shape", ("Tensor",), "Ints", _ONE, "shape of a tensor; an Imm has none"),
        Function("dtype", ("Tensor",), "String", _ONE, "dtype of a tensor"),
        Function("dtype-of", ("Expr",), "String", _ONE, "dtype of an expression"),
        Function("free", ("Expr",), "Axes", _BOTH, "the axes that a value depends on"),
        Function("axes-upto", ("i64", "Ints", "i64"), "Ixs", _ONE, "first k axes of a shape, from a base"),
        Function("ops-of", ("Ix",), "i64", _LEAST, "operations in an index"),
        Function("ix-points", ("Ix",), "i64", _LEAST, "points of the axes in an index"),
        Function("atom-ops", ("Atom",), "i64", _LEAST, "operations in an atom"),
        Function("ops-upto", ("Ixs", "i64"), "i64", _LEAST, "operations in the first k indices"),
        Function("taps-of", ("Tensor",), "i64", _LEAST, "elements that one element is computed from"),
        Function("buffer-taps", ("Tensor",), "i64", _MOST, "taps of what may be a buffer, 0 of other values"),
        Function("fusible", ("Tensor",), "i64", _LEAST, "0 for a reduction that no other reduction may hold"),
        Function("axes-next", ("i64", "Ints", "i64"), "i64", _ONE, "number of the axis after them"),
    ),
    relations=(
        Relation("phase", ("String", "i64"), "a phase and its place in the order"),
        Relation("in-phase", ("String", "String", "String", "String"), "ruleset, phase, class, default"),
        Relation("need-axes", ("i64", "Ints"), "asks for axes-upto and axes-next of a base and a shape"),
        Relation("computed", ("Tensor",), "arithmetic, not movement: worth a buffer"),
        Relation("program-output", ("i64", "Tensor"), "an output of the program"),
        Relation("max-depth", ("i64",), "how deep reductions may nest in one kernel"),
        Relation("program-size", ("i64",), "how many nodes the program has"),
        Relation("node-number", ("i64", "Tensor"), "number of the program's node"),
    ),
)
