"""Random programs in which most values are sums of products, of operands of every make: shifted, padded, cast, masked,
broadcast from less, computed."""

from __future__ import annotations

from random_programs import Maker


class Products(Maker):
    def step(self) -> None:
        way = self.pick(8)
        x = self.some(lambda shape, dtype: dtype != "bool") or self.input(self.shape(), "fp32")
        if way < 2:
            self.movement(x)
        elif way == 2:
            self.elementwise(x)
        elif way == 3:
            self.masked(x)
        elif way == 4:
            self.contraction()
        else:
            self.product(x)

    def masked(self, x: str) -> None:
        """``x`` within a range of one axis, else 0."""
        shape, dtype = self.kinds[x]
        if not shape:
            return
        axis = self.pick(len(shape))
        low = [0] * len(shape)
        high = list(shape)
        low[axis] = self.pick(shape[axis])
        high[axis] = low[axis] + 1 + self.pick(shape[axis] - low[axis])
        mask = self.node("VALID", [], {"result_shape": list(shape), "lo": low, "hi": high}, shape, "bool")
        self.node("WHERE", [mask, x, 0], {}, shape, dtype)

    def product(self, x: str) -> None:
        """The sum of ``x`` times something of its shape, over some of its axes."""
        shape, dtype = self.kinds[x]
        if dtype in ("fp16", "bf16") and self.pick(4):
            x, dtype = self.node("CAST", [x], {"to": "fp32"}, shape, "fp32"), "fp32"
        y = self.partner(x)
        product = self.node("MUL", [x, y] if self.pick(2) else [y, x], {}, shape, dtype)
        if self.pick(4) == 0:
            self.movement(product)
            product = f"n{len(self.uops) - 1}"
        if self.kinds[product][1] in ("fp32", "i32") and self.kinds[product][0]:
            self.reduce(product)

    def partner(self, x: str) -> str:
        """A value of the shape and dtype of ``x``, broadcast from less, or from another dtype, or with a border of zeros."""
        shape, dtype = self.kinds[x]
        other = self.like(x)
        y = other if isinstance(other, str) else self.input(shape, dtype)
        way = self.pick(5)
        if way == 0 and dtype == "fp32":
            narrow = self.input(shape, self.of(("fp16", "bf16", "bool", "i32")))
            y = self.node("CAST", [narrow], {"to": "fp32"}, shape, "fp32")
        if way == 1 and shape:
            axis = self.pick(len(shape))
            inner = [max(1, size - 1) if number == axis else size for number, size in enumerate(shape)]
            pad = [[size - kept, 0] for size, kept in zip(shape, inner, strict=True)]
            value = self.of((0, 0, 0, 1))
            y = self.node(
                "PAD", [self.input(tuple(inner), dtype)], {"pad": pad, "value": value}, shape, dtype
            )
        return y
