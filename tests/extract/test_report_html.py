"""The report as one HTML page: whole, escaped, needing nothing from elsewhere; and the geometry of its plot."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from report_examples import A100, NASTY, a_kernel, a_report, many

from tinyc.extract.report.html import Html, element
from tinyc.extract.report.report import ExtractionReport, MachineReport
from tinyc.extract.report.roofline import HEIGHT, PLOT, WIDTH, Scale, roofs, scales

VOID = {"meta", "br"}
ALONE = {"circle", "line", "path", "rect"}


class Page(HTMLParser):
    """The elements of a page, with their attributes and text; the nesting is checked."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID | ALONE
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str, kind: str = "") -> list[dict[str, str | None]]:
        return (
            [
                given
                for name, given in self.elements
                if name == tag and kind in (given.get("class") or "").split(" ")
            ]
            if kind
            else [given for name, given in self.elements if name == tag]
        )


REPORTS = {
    "one": a_report(),
    "many": many(),
    "nasty": a_report(
        a_kernel(NASTY, symbol=NASTY, dtype=NASTY, fused=(NASTY,)), target=NASTY, without=(NASTY,)
    ),
    "measured": a_report(a_kernel(actual_s=3e-5), a_kernel("k_other", 1e3, 1e9)),
    "nothing": replace(a_report(), kernels=(), matched=(), phases=(), ablation=(), warnings=()),
    "free": a_report(a_kernel(time_s=0.0, flops=0.0, size=0.0), machine=MachineReport("toy", 0, 0, 0, 0, 0)),
}


@pytest.mark.parametrize("name", REPORTS)
def test_the_page_is_whole_and_needs_nothing_else(name: str) -> None:
    report = REPORTS[name]
    text = report.to_html(NASTY)
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "audio", "video"}
    for _, given in page.elements:
        assert not {key for key in given if key.startswith("on") or key in ("href", "src", "action", "style")}
    style = "".join(said for tag, said in page.texts if tag == "style")
    assert "url(" not in style and "@import" not in style and "http" not in text
    assert len(page.all("h1")) == 1 and {"lang": "en"} in page.all("html")
    assert len(page.all("circle", "kernel")) == len(report.kernels)
    assert all("\x07" not in said for _, said in page.texts)


def test_whatever_a_user_named_is_text() -> None:
    page = Page(REPORTS["nasty"].to_html(NASTY))
    shown = NASTY.replace("\x07", "\N{REPLACEMENT CHARACTER}")
    for tag in ("title", "h1", "th", "td", "li"):
        assert any(shown in said for name, said in page.texts if name == tag), tag
    assert element("p", NASTY) == element("p", str(NASTY)) and "<script" not in element("p", NASTY)
    assert element("p", Html("<b>x</b>")) == "<p><b>x</b></p>"
    assert element("p", "x", title='"><script>') == '<p title="&quot;&gt;&lt;script&gt;">x</p>'


def test_a_notebook_gets_a_piece_whose_style_touches_nothing_else() -> None:
    text = a_report()._repr_html_()
    page = Page(text)
    assert page.elements[0] == ("div", {"class": "tinyc-report"})
    assert not {"html", "head", "body", "main", "script"} & {tag for tag, _ in page.elements}
    style = re.sub(r"@media\([^)]*\)\{", "", "".join(said for tag, said in page.texts if tag == "style"))
    for selectors in re.findall(r"([^{}]+)\{", style):
        assert all(each.strip().startswith(".tinyc-report") for each in selectors.split(",")), selectors


def test_every_table_says_what_it_is() -> None:
    page = Page(a_report().to_html())
    assert len(page.all("caption")) == len(page.all("table")) >= 6
    assert all(given.get("scope") in ("col", "row") for given in page.all("th"))
    (plot,) = page.all("svg")
    assert plot["role"] == "img" and "1 kernels" in str(plot["aria-label"])


def number(given: dict[str, str | None], key: str) -> float:
    value = float(str(given[key]))
    assert math.isfinite(value)
    return value


@pytest.mark.parametrize("name", [name for name in REPORTS if name != "nothing"])
def test_the_plot_lies_within_its_frame(name: str) -> None:
    page = Page(REPORTS[name].to_html())
    for given in page.all("circle"):
        assert PLOT.left - 0.1 <= number(given, "cx") <= PLOT.right + 0.1
        assert PLOT.top - 0.1 <= number(given, "cy") <= PLOT.bottom + 0.1
    for given in page.all("line"):
        assert all(0 <= number(given, key) <= WIDTH for key in ("x1", "x2"))
        assert all(0 <= number(given, key) <= HEIGHT for key in ("y1", "y2"))


def placed(report: ExtractionReport) -> list[tuple[float, float]]:
    return [
        (number(given, "cx"), number(given, "cy")) for given in Page(report.to_html()).all("circle", "kernel")
    ]


def test_a_dot_lies_where_its_kernel_is() -> None:
    """Ten times the FLOPs at the same bytes and time: one decade to the right and one up."""
    first = a_report(a_kernel("k_a", 1e9, 1e8), a_kernel("k_b", 1e10, 1e8))
    x, y = scales(first)
    (ax, ay), (bx, by) = placed(first)
    assert bx - ax == pytest.approx((x.stop - x.start) / (x.high - x.low), abs=0.2)
    assert ay - by == pytest.approx((y.start - y.stop) / (y.high - y.low), abs=0.2)
    assert (ax, ay) == (pytest.approx(x(10.0), abs=0.06), pytest.approx(y(1e14), abs=0.06))


def test_no_dot_of_a_possible_time_lies_above_the_roof() -> None:
    report = many()
    x, y = scales(report)
    assert y(A100.flops_per_s) < y(A100.flops_per_s / 10)
    ridge = A100.flops_per_s / A100.bytes_per_s
    assert x(ridge / 100) >= PLOT.left and x(ridge) <= PLOT.right
    assert [rate for _, rate in roofs(A100)] == [312e12, 19.5e12, 9.75e12]
    assert Scale(0, 3, 0.0, 30.0)(0.0) == 0.0 and Scale(0, 3, 0.0, 30.0)(10.0) == pytest.approx(10.0)


def test_names_do_not_cover_each_other() -> None:
    report = many()
    names = [given for given in Page(report.to_html()).all("text", "name")]
    assert 3 <= len(names) <= 10


def test_measured_times_are_rings() -> None:
    page = Page(REPORTS["measured"].to_html())
    (ring,) = page.all("circle", "actual")
    (estimate, _) = page.all("circle", "kernel")
    assert ring["cx"] == estimate["cx"] and number(ring, "cy") > number(estimate, "cy"), "slower is lower"
