"""The constructors whose value :mod:`tinyc.rulecheck.denote` knows."""

BUILTIN = frozenset(
    ["Lit", "Plus", "Ax", "FloorDiv", "IAdd", "IScale", "IDiv", "DivAcc", "DivEnd", "Subst", "Ravel",
     "Input", "Imm", "TUnary", "TBinary", "TWhere", "TCast", "TReduce", "Reshape", "Permute", "Expand", "Pad", "Shrink",
     "Flip", "View", "Valid",
     "At", "Read", "Const", "Within", "Unary", "Binary", "Select", "Cast", "Reduce", "Stream", "RoundedStream", "Arg", "Fill", "Alias",
     "Out"]
)  # fmt: skip
