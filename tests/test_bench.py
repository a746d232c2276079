"""Benchmarks: what they print, and that their figures fit together. How fast anything is, is no test."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tinyc.bench import BENCHMARKS, explanations, extraction, gemm, models, scaling
from tinyc.bench.measure import Benchmark, median_ratio
from tinyc.bench.programs import MODELS, Model
from tinyc.bench.transformers import norm_first
from tinyc.cli import main


def show(
    benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *argv: str
) -> str:
    """What ``tinyc bench small`` prints, where ``small`` is the benchmark given."""
    monkeypatch.setattr("tinyc.commands.bench.BENCHMARKS", {"small": benchmark})
    assert main(["bench", "small", *argv]) == 0
    return capsys.readouterr().out


def test_unknown_names_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "unheard-of"]) == 2
    assert "cpu-gemm" in capsys.readouterr().err
    assert main(["bench", "cpu-gemm", "--peer", "torch"]) == 2
    assert "no peer torch" in capsys.readouterr().err
    assert main(["bench", "cpu-gemm", "--repeat", "0"]) == 2


def test_a_peer_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    assert main(["bench", "cpu-models", "--peer", "torch"]) == 2
    assert "torch is not installed" in capsys.readouterr().err


def test_a_product_beside_numpy(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = replace(gemm.BENCHMARK, run=lambda repeats, peers: gemm.run(repeats, peers, size=32))
    found = json.loads(show(small, monkeypatch, capsys, "--json", "--repeat", "2"))
    assert found["repeat"] == 2
    assert {"cpu", "cores", "python", "egglog", "llvmlite"} <= set(found["machine"])
    (figures,) = found["cases"].values()
    assert set(figures) == set(gemm.MEANINGS)
    assert figures["ratio"] == pytest.approx(figures["time_s"] / figures["numpy_time_s"])
    assert figures["peak_bytes"] == figures["arena_bytes"] + figures["scratch_bytes"]


def test_how_near_the_best_deep_transformers_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = {"small": extraction.Case(norm_first, (1, 8, 16, 2), "fp32", "cpu")}
    run = partial(extraction.run, cases=one, blocks=3)
    small = replace(extraction.BENCHMARK, run=lambda repeats, peers: run(repeats, peers))
    found = json.loads(show(small, monkeypatch, capsys, "--json", "--repeat", "1"))
    (figures,) = found["cases"].values()
    assert set(figures) == set(extraction.MEANINGS)
    assert 0.0 <= figures["gap"] <= 1.0 and 0.0 < figures["search_s"] < figures["extract_s"]
    assert figures["kernels"] >= 3 and figures["estimate_s"] > 0.0
    assert {case.target for case in extraction.CASES.values()} == {"sm80", "sm90", "cpu"}


def test_what_explanations_cost(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    one = {"small": Model({"a": (3, 4), "b": (4, 5)}, lambda a, b: a @ b, lambda a, b: a @ b)}
    small = replace(explanations.BENCHMARK, run=lambda repeats, peers: explanations.run(repeats, peers, one))
    found = json.loads(show(small, monkeypatch, capsys, "--json", "--repeat", "2"))
    (figures,) = found["cases"].values()
    assert set(figures) == set(explanations.MEANINGS)
    assert figures["steps"] > 5 and figures["unchecked"] == 0 and figures["records"] > 0


@pytest.mark.slow
def test_a_large_product_is_fast_enough_and_needs_little_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "cpu-gemm", "--json"]) == 0
    (figures,) = json.loads(capsys.readouterr().out)["cases"].values()
    assert figures["peak_bytes"] < 64 << 20
    assert figures["ratio"] < 8


def test_stacks_of_blocks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = replace(scaling.BENCHMARK, run=lambda repeats, peers: scaling.run(repeats, peers, blocks=(1, 2)))
    one, two = json.loads(show(small, monkeypatch, capsys, "--json", "--repeat", "1"))["cases"].values()
    assert two["enodes_per_added_block"] == two["enodes"] - one["enodes"] > 0
    assert "enodes_per_added_block" not in one
    for figures in (one, two):
        assert figures["unique_kernels"] <= figures["kernels"]
        assert figures["engine_s"] <= figures["saturate_s"] <= figures["ready_s"]


def test_text_has_a_row_per_figure_and_says_what_it_is_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(repeats: int, peers: Any) -> dict[str, dict[str, float]]:
        return {"a": {"time_s": 0.25, "kernels": 2}, "b": {"time_s": 0.5}}

    text = show(Benchmark("small", "", run, 3, {"time_s": "one call"}), monkeypatch, capsys)
    assert "3 turns each" in text.splitlines()[0]
    rows = [line.split() for line in text.splitlines()[2:]]
    assert rows[0] == ["figure", "a", "b", "of"]
    assert rows[2:] == [["time_s", "0.25", "0.5", "one", "call"], ["kernels", "2"]]


def test_a_ratio_below_one_is_faster() -> None:
    assert median_ratio([1.0, 2.0, 9.0], [2.0, 4.0, 3.0]) == 0.5


@pytest.mark.parametrize("name", MODELS)
def test_naive_and_numpy_models_agree(name: str) -> None:
    """``run`` holds the result against numpy's; a model that computes something else fails here."""
    (figures,) = models.run(1, (), {name: MODELS[name]}).values()
    assert figures["numpy_ratio"] == pytest.approx(figures["time_s"] / figures["numpy_time_s"])


def test_every_benchmark_says_what_it_is_about() -> None:
    assert set(BENCHMARKS) == {
        "cpu-gemm",
        "cpu-models",
        "cpu-estimates",
        "compile-scaling",
        "explanations",
        "extraction",
        "sass",
    }
    for name, benchmark in BENCHMARKS.items():
        assert benchmark.name == name
        assert benchmark.about
        # a time is measured several times, a count once
        assert benchmark.repeats >= 3 or not any(figure.endswith("_s") for figure in benchmark.meanings)
