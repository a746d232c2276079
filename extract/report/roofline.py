"""The roofline plot of a report as SVG: FLOP/s over FLOP per byte, both logarithmic, one dot per kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .html import Html, element
from .report import ExtractionReport, KernelReport, MachineReport
from .units import amount, seconds

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 78, 18, 18, 48
"""Of the box that the axes enclose: margins in pixels."""

LETTER = 6.7
"""Pixels of a letter of 11 pixels, on the safe side."""

LABELLED = 10
"""Dots that have their name beside them: of the slowest kernels. All have it as a tooltip and in the table."""

LONGEST = 28
"""Letters of a label."""


MOST_TENS = 307
"""Of which 10 to its power, either way, is a number still."""


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis: powers of ten from ``low`` to ``high`` lie between ``start`` and ``stop`` pixels."""

    low: int
    high: int
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """Pixels of a value, within the axis; 0 and less at its start."""
        exponent = math.log10(value) if value > 0 else float(self.low)
        share = (min(max(exponent, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)


@dataclass(frozen=True)
class Box:
    """Pixels that something takes."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def within(self, other: Box) -> bool:
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.top <= self.top
            and self.bottom <= other.bottom
        )


PLOT = Box(LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM)


def roofs(machine: MachineReport) -> list[tuple[str, float]]:
    """The machine's rates of arithmetic in FLOP/s, the highest first; equal ones once."""
    rates = (
        ("tiled contractions", machine.flops_per_s),
        ("contractions of fp32", machine.vector_flops_per_s),
        ("simple operations", machine.ops_per_s),
    )
    found: dict[float, str] = {}
    for name, rate in rates:
        if rate > 0:
            found.setdefault(rate, name)
    return [(name, rate) for rate, name in sorted(found.items(), reverse=True)]


def scales(report: ExtractionReport) -> tuple[Scale, Scale]:
    """The axes: FLOP per byte, and FLOP/s. They hold all kernels that compute anything, and the ridge."""
    machine = report.machine
    rates = [rate for _, rate in roofs(machine)]
    ridge = max(rates, default=1.0) / machine.bytes_per_s if machine.bytes_per_s > 0 else 1.0
    across = [ridge, ridge / 100, *(intensity(kernel) for kernel in report.kernels)]
    up = [*rates, *(pace for kernel in report.kernels for pace in _paces(kernel))]
    return _scale(across, PLOT.left, PLOT.right), _scale(up, PLOT.bottom, PLOT.top)


def intensity(kernel: KernelReport) -> float:
    """FLOP per byte."""
    return kernel.flops / kernel.bytes if kernel.bytes else 0.0


def _paces(kernel: KernelReport) -> list[float]:
    """FLOP/s as estimated, and as measured where it was."""
    times = [time for time in (kernel.time_s, kernel.actual_s) if time is not None]
    return [kernel.flops / time if time > 0 else 0.0 for time in times]


def _scale(values: Sequence[float], start: float, stop: float) -> Scale:
    known = [math.log10(value) for value in values if value > 0 and math.isfinite(value)] or [0.0]
    # a little room, so that no dot lies on the frame
    low, high = math.floor(min(known) - 0.05), math.ceil(max(known) + 0.15)
    low, high = max(low, -MOST_TENS), min(high, MOST_TENS)
    return Scale(min(low, high - 1), high, start, stop)


def roofline(report: ExtractionReport) -> Html:
    """The plot. Kernels that compute nothing lie on the left edge."""
    x, y = scales(report)
    lines, taken = _roof_lines(report.machine, x, y)
    dots = [(x(intensity(kernel)), y(_paces(kernel)[0])) for kernel in report.kernels]
    taken += [Box(px - 6, py - 6, px + 6, py + 6) for px, py in dots]
    labels = list(_labels(report.kernels, dots, taken))
    said = "; ".join(_words(kernel) for kernel in report.kernels[:20])
    return element(
        "svg",
        element("title", f"Roofline of {report.machine.name}"),
        element("desc", f"Kernels by FLOP per byte and FLOP/s. {said}"),
        *_axes(x, y),
        *lines,
        *_measured(report.kernels, dots, y),
        *(_dot(kernel, dot) for kernel, dot in zip(report.kernels, dots, strict=True)),
        *labels,
        class_="roofline",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"Roofline of {report.machine.name} with {len(report.kernels)} kernels",
    )


def _words(kernel: KernelReport) -> str:
    pace = amount(_paces(kernel)[0])
    return f"{kernel.region}: {amount(intensity(kernel))} FLOP/B, {pace}FLOP/s, {seconds(kernel.time_s)}"


def _axes(x: Scale, y: Scale) -> Iterator[Html]:
    yield element(
        "rect",
        x=LEFT,
        y=TOP,
        width=PLOT.right - PLOT.left,
        height=PLOT.bottom - PLOT.top,
        class_="frame",
    )
    for power in _ticks(x):
        px = _pixel(x(10.0**power))
        yield element("line", x1=px, x2=px, y1=_pixel(PLOT.top), y2=_pixel(PLOT.bottom), class_="grid")
        yield element("text", _power(power), x=px, y=_pixel(PLOT.bottom + 16), text_anchor="middle")
    for power in _ticks(y):
        py = _pixel(y(10.0**power))
        yield element("line", x1=LEFT, x2=_pixel(PLOT.right), y1=py, y2=py, class_="grid")
        yield element("text", _power(power), x=LEFT - 8, y=_pixel(y(10.0**power) + 4), text_anchor="end")
    middle = _pixel((PLOT.left + PLOT.right) / 2)
    yield element("text", "FLOP per byte moved", x=middle, y=HEIGHT - 10, text_anchor="middle")
    turned = f"translate(16 {_pixel((PLOT.top + PLOT.bottom) / 2)}) rotate(-90)"
    yield element("text", "FLOP/s", transform=turned, text_anchor="middle")


def _ticks(scale: Scale) -> range:
    """Powers of ten, at most nine of them."""
    return range(scale.low, scale.high + 1, -(-(scale.high - scale.low + 1) // 9))


def _power(power: int) -> str:
    """``1 k`` or ``0.01``; far out ``1e-9``."""
    if power < -3 or power > 17:
        return f"1e{power}"
    return f"{10.0**power:g}" if power < 3 else amount(10.0**power).replace(".00", "")


def _roof_lines(machine: MachineReport, x: Scale, y: Scale) -> tuple[list[Html], list[Box]]:
    """The roofs with their names, and the boxes that these take."""
    lines: list[Html] = []
    taken: list[Box] = []
    for number, (name, rate) in enumerate(roofs(machine)):
        ridge = rate / machine.bytes_per_s if machine.bytes_per_s > 0 else 10.0**x.low
        py, kind = y(rate), "roof" if number == 0 else "roof lower"
        lines.append(
            element(
                "line",
                x1=_pixel(x(ridge)),
                x2=_pixel(PLOT.right),
                y1=_pixel(py),
                y2=_pixel(py),
                class_=kind,
            )
        )
        said = f"{name} {amount(rate)}FLOP/s"
        box = Box(PLOT.right - 6 - LETTER * len(said), py - 17, PLOT.right - 6, py - 4)
        if any(box.meets(other) for other in taken):
            box = Box(box.left, py + 3, box.right, py + 16)
        taken.append(box)
        lines.append(
            element(
                "text", said, x=_pixel(box.right), y=_pixel(box.bottom - 3), text_anchor="end", class_="on"
            )
        )
    if machine.bytes_per_s > 0:
        # from where it enters the plot to the highest roof
        top = max((rate for _, rate in roofs(machine)), default=10.0**y.high)
        first = max(10.0**x.low, 10.0**y.low / machine.bytes_per_s)
        last = top / machine.bytes_per_s
        ends = {
            "x1": _pixel(x(first)),
            "y1": _pixel(y(first * machine.bytes_per_s)),
            "x2": _pixel(x(last)),
            "y2": _pixel(y(top)),
        }
        lines.append(element("line", **ends, class_="roof"))
        said = f"memory {amount(machine.bytes_per_s)}B/s"
        lowest = min(rate for _, rate in roofs(machine)) / machine.bytes_per_s if roofs(machine) else last
        at = math.sqrt(first * min(max(lowest, first), last))  # where no other roof lies below the line
        left, middle = x(at) + 12, y(at * machine.bytes_per_s) + 8
        taken.append(Box(left, middle - 2, left + LETTER * len(said), middle + 14))
        lines.append(element("text", said, x=_pixel(left), y=_pixel(middle + 10), class_="on"))
    return lines, taken


def _dot(kernel: KernelReport, dot: tuple[float, float]) -> Html:
    return element(
        "circle",
        element("title", _words(kernel)),
        cx=_pixel(dot[0]),
        cy=_pixel(dot[1]),
        r="5",
        class_="kernel",
    )


def _measured(
    kernels: Sequence[KernelReport], dots: Sequence[tuple[float, float]], y: Scale
) -> Iterator[Html]:
    """Rings where the measured times put the kernels, joined to their dots."""
    for kernel, (px, py) in zip(kernels, dots, strict=True):
        if kernel.actual_s is not None:
            actual = y(_paces(kernel)[1])
            ends = {"x1": _pixel(px), "x2": _pixel(px), "y1": _pixel(py), "y2": _pixel(actual)}
            yield element("line", **ends, class_="to-actual")
            said = f"{kernel.region}, measured: {seconds(kernel.actual_s)}"
            yield element(
                "circle", element("title", said), cx=_pixel(px), cy=_pixel(actual), r="5", class_="actual"
            )


def _labels(
    kernels: Sequence[KernelReport], dots: Sequence[tuple[float, float]], taken: list[Box]
) -> Iterator[Html]:
    """Names beside the dots of the slowest kernels, where there is room. Dots in one place share a label."""
    places: dict[tuple[int, int], list[int]] = {}
    for number in sorted(range(len(kernels)), key=lambda number: (-kernels[number].time_s, number)):
        places.setdefault((round(dots[number][0]), round(dots[number][1])), []).append(number)
    for (px, py), numbers in list(places.items())[:LABELLED]:
        name = kernels[numbers[0]].region
        name = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
        name += f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        for box, anchor in _around(px, py, LETTER * len(name)):
            if box.within(PLOT) and not any(box.meets(other) for other in taken):
                taken.append(box)
                side = {"start": box.left, "end": box.right, "middle": (box.left + box.right) / 2}[anchor]
                yield element(
                    "text",
                    name,
                    x=_pixel(side),
                    y=_pixel(box.bottom - 3),
                    text_anchor=anchor,
                    class_="name",
                )
                break


def _around(px: float, py: float, width: float) -> Iterator[tuple[Box, str]]:
    """Places for a label, the nearest first."""
    for shift in (0, -14, 14, -28, 28, -42, 42):
        yield Box(px + 9, py - 7 + shift, px + 9 + width, py + 6 + shift), "start"
        yield Box(px - 9 - width, py - 7 + shift, px - 9, py + 6 + shift), "end"
    for shift in (-14, 14, -28, 28):
        yield Box(px - width / 2, py - 7 + shift, px + width / 2, py + 6 + shift), "middle"


def _pixel(value: float) -> str:
    return f"{value:.1f}"
