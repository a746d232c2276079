"""The HTML report in a real browser (`pytest -m browser`; it needs the system's package `chromium`)."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from browser import Browser, browser
from report_examples import NASTY, a_kernel, a_report, many

import tinyc
from tinyc.extract.report.report import ExtractionReport

pytestmark = pytest.mark.browser

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"


def compiled(name: str, target: str) -> ExtractionReport:
    program = tinyc.load(EXAMPLES / f"{name}.json")
    return tinyc.optimize_and_compile(program, target, shapes=dict.fromkeys(program.symbols, 512)).report


@pytest.fixture
def chromium(tmp_path: Path) -> Browser:
    path = browser()
    assert path is not None  # conftest.py skips where there is none
    return Browser(path, tmp_path)


@pytest.mark.parametrize(
    ("name", "width"),
    [("gemm", 1000), ("attention", 420), ("block", 1000), ("many", 1000), ("nasty", 420), ("measured", 420)],
)
def test_nothing_is_clipped_covered_or_lost(chromium: Browser, name: str, width: int) -> None:
    report = {
        "gemm": lambda: compiled("gemm_bias_relu", "sm80"),
        "attention": lambda: compiled("attention", "sm90"),
        "block": lambda: compiled("transformer_block", "cpu"),
        "many": many,
        "nasty": lambda: a_report(a_kernel(NASTY, symbol=NASTY, fused=(NASTY,) * 5)),
        "measured": lambda: a_report(
            a_kernel("k_slow", actual_s=8e-5), a_kernel("k_" + "wide" * 20, 1e6, 1e8)
        ),
    }[name]()
    found = chromium.measure(report.to_html(f"{name} {NASTY}"), width)
    assert found["dots"] == len(report.kernels)
    assert found["outside"] == found["covered"] == found["clipped"] == []
    assert found["wider"] <= 0 and found["scripts"] == 0 and found["tables"] >= 4
    assert found["faults"] == found["console"] == []


def channels(color: str) -> list[float]:
    return [float(part) for part in color.removeprefix("rgb(").rstrip(")").split(",")]


def luminance(color: str) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    linear = [
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
        for c in (v / 255 for v in channels(color))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_ink_stands_out_from_paper_in_both_schemes(chromium: Browser) -> None:
    papers = []
    for dark in (False, True):
        found = chromium.measure(a_report().to_html(), dark=dark)
        light, deep = sorted((luminance(found["ink"]), luminance(found["paper"])), reverse=True)
        assert (light + 0.05) / (deep + 0.05) >= 7
        papers.append(luminance(found["paper"]))
    assert papers[0] > 0.9 and papers[1] < 0.1, "light, then dark"


def test_the_picture_shows_dots_and_roofs(chromium: Browser) -> None:
    """Pixels of the dots' and of the roofs' colours are in the picture: the plot was drawn."""
    width, _, rows = read_png(
        chromium.picture(a_report(a_kernel("k_a"), a_kernel("k_b", 1e6, 1e7)).to_html())
    )
    pixels = [row[3 * x : 3 * x + 3] for row in rows for x in range(width)]
    assert pixels.count(bytes((0x0A, 0x58, 0xCA))) > 60, "two dots of 5 pixels"
    assert pixels.count(bytes((0x9A, 0x34, 0x12))) > 200, "the roofs"


def read_png(data: bytes) -> tuple[int, int, list[bytes]]:
    """Width, height and the rows as RGB, of a PNG with 8 bits per channel, as Chromium writes it."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    place, packed, head = 8, b"", (0, 0, 0, 0)
    while place < len(data):
        (size,), kind = struct.unpack(">I", data[place : place + 4]), data[place + 4 : place + 8]
        body = data[place + 8 : place + 8 + size]
        if kind == b"IHDR":
            head = struct.unpack(">IIBB", body[:10])
        if kind == b"IDAT":
            packed += body
        place += size + 12
    width, height, depth, color = head
    assert depth == 8 and color in (2, 6)
    step = 3 if color == 2 else 4
    raw, stride = zlib.decompress(packed), width * step
    above, rows = bytearray(stride), []
    for number in range(height):
        start = number * (stride + 1)
        row = unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + stride]), above, step)
        rows.append(bytes(row) if step == 3 else bytes(b for i, b in enumerate(row) if i % 4 != 3))
        above = row
    return width, height, rows


def unfiltered(kind: int, row: bytearray, above: bytearray, step: int) -> bytearray:
    """One row of a PNG without its filter (PNG specification, section 9)."""
    for i in range(len(row)):
        left = row[i - step] if i >= step else 0
        up, corner = above[i], above[i - step] if i >= step else 0
        if kind == 1:
            row[i] = (row[i] + left) & 255
        elif kind == 2:
            row[i] = (row[i] + up) & 255
        elif kind == 3:
            row[i] = (row[i] + (left + up) // 2) & 255
        elif kind == 4:
            guess = left + up - corner
            near = min((abs(guess - v), n, v) for n, v in enumerate((left, up, corner)))[2]
            row[i] = (row[i] + near) & 255
    return row
