"""Programs from the cache: the same as optimised anew, found by all that they follow from, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyc
import tinyc.remembered as remembered
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.cost.model import Roofline
from tinyc.pipeline import Built, Options

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
GREEDY = tinyc.Budget(extract_seconds=0)
RULE = """(ruleset doubled)
(joins doubled "algebra" "EXACT")
"""


@pytest.fixture
def optimised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The targets of the programs that were optimised, with a cache of their own."""
    monkeypatch.setenv("TINYC_CACHE", "all")
    monkeypatch.setenv("TINYC_CACHE_DIR", str(tmp_path / "cache"))
    asked: list[str] = []
    compile_program = remembered.compile_program

    def counted(program: Any, options: Options, code: bool = True) -> Built:
        asked.append(options.target)
        return compile_program(program, options, code)

    monkeypatch.setattr(remembered, "compile_program", counted)
    return asked


def compiled(
    name: str = "gemm_bias_relu", target: str = "sm80", size: int = 24, **options: Any
) -> tinyc.Compiled:
    program = tinyc.load(EXAMPLES / f"{name}.json")
    return tinyc.optimize_and_compile(
        program, target, dict.fromkeys(program.symbols, size), budget=options.pop("budget", GREEDY), **options
    )


@pytest.mark.parametrize(
    ("name", "target"),
    [("gemm_bias_relu", "sm80"), ("attention", "sm90"), ("conv3x3_silu", "cpu"), ("three_consumers", "cpu")],
)
def test_what_is_remembered_is_what_was_made(name: str, target: str, optimised: list[str]) -> None:
    first, second = compiled(name, target), compiled(name, target)
    assert optimised == [target]
    for stage in ("region", "plan", "exec", "analysis"):
        assert second.dump(stage) == first.dump(stage)
    assert second.plan == first.plan and second.signature == first.signature
    assert [each.source for each in second.kernels] == [each.source for each in first.kernels]
    assert [each.region for each in second.kernels] == [each.region for each in first.kernels]
    made, kept = first.report.quick(), second.report.quick()
    assert replace(kept, seconds={}) == replace(made, seconds={}) and set(kept.seconds) == {"cache"}
    assert optimised == [target], "nothing that takes the e-graph was asked for"


def test_what_takes_the_e_graph_is_made_again(optimised: list[str]) -> None:
    first, second = compiled(), compiled()
    assert second.report.decisions == first.report.decisions
    assert [each.survives for each in second.report.rules] == [each.survives for each in first.report.rules]
    assert second.draw("classes") == first.draw("classes")
    assert optimised == ["sm80"] * 2, "once for all of them"
    assert second.report.usage == first.report.usage != ()
    assert str(second.explain()) == str(first.explain())


def test_a_remembered_program_computes_the_same(optimised: list[str]) -> None:
    a = np.arange(576, dtype=np.float16).reshape(24, 24) % 5
    bias = np.arange(24, dtype=np.float16)
    for target in ("cpu", "cpu", "sm80", "sm80"):
        call = compiled(target=target)
        got = call(a, a, bias) if target == "cpu" else call.emulate(a, a, bias).outputs[0]
        assert np.array_equal(got, np.maximum(a.astype(np.float32) @ a + bias, 0).astype(np.float16))
    assert optimised == ["cpu", "sm80"]


def test_each_binding_of_the_symbols_is_remembered(optimised: list[str]) -> None:
    for _ in range(2):
        call = tinyc.optimize_and_compile(tinyc.trace(lambda a: a + 1.0, tinyc.spec("fp32", ("N",))))
        for size in (3, 4):
            assert np.array_equal(call(np.zeros(size, np.float32)), np.ones(size))
    assert len(optimised) == 2


def test_whatever_a_program_follows_from_is_in_its_key(
    optimised: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = tmp_path / "more.egg"
    rules.write_text("; one\n")
    changes: list[Callable[[], object]] = [
        compiled,
        lambda: compiled(size=25),
        lambda: compiled(target="sm90"),
        lambda: compiled("matmul_a_bt"),
        lambda: compiled(without=("strength",)),
        lambda: compiled(also=("streaming-unrounded",)),
        lambda: compiled(budget=replace(GREEDY, enodes=100_000)),
        lambda: compiled(rules=(rules,)),
        lambda: (rules.write_text("; two\n"), compiled(rules=(rules,))),
    ]
    for number, change in enumerate(changes, 1):
        change()
        assert len(optimised) == number
        compiled()
        assert len(optimised) == number
    for name in ("_ourselves", "_compiler"):
        with monkeypatch.context() as patch:
            patch.setattr(remembered, name, lambda *_: "another version")
            compiled()
    assert len(optimised) == len(changes) + 2


def test_tinyc_itself_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    ourselves = remembered._ourselves.__wrapped__
    before, read = ourselves(), Path.read_bytes
    assert ourselves() == before

    for wanted in ("rank.py", "kernel.py", "verify.py", "remembered.py"):

        def edited(path: Path, wanted: str = wanted) -> bytes:
            return read(path) + (b"#" if path.name == wanted else b"")

        monkeypatch.setattr(Path, "read_bytes", edited)
        assert ourselves() != before, "of all three folders"


def test_a_damaged_program_is_optimised_again(optimised: list[str], tmp_path: Path) -> None:
    first = compiled()
    (entry,) = (path for path in tmp_path.glob("cache/compiled/??/*") if b'"regions"' in path.read_bytes())
    whole, key = entry.read_bytes(), entry.parent.name + entry.name
    cache = remembered.read_settings().program_cache
    assert cache is not None
    for number, content in enumerate((whole[:-1], whole.replace(b"gmem", b"smem", 1) + b" ", b""), 2):
        entry.write_bytes(content)
        assert compiled().dump("region") == first.dump("region")
        assert len(optimised) == number and cache.get(key), "healed"
    for content in (b"", b"{}", b"[]", b'{"regions": [{}], "plans": []}', b"\xff"):
        cache.put(key, content)
        assert compiled().dump("region") == first.dump("region")


def test_what_a_limit_of_time_ended_is_not_kept(optimised: list[str]) -> None:
    for _ in range(2):
        compiled(budget=replace(GREEDY, iterations=1))
    assert len(optimised) == 2
    for _ in range(2):
        compiled(cost_model=Roofline(hardware("sm80")))
        compiled(profile=True)
    assert len(optimised) == 6, "nor what a cost model of a user's chose, nor a profile"


def test_programs_are_not_remembered_where_that_is_switched_off(
    optimised: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, value in enumerate(("code", "off"), 1):
        monkeypatch.setenv("TINYC_CACHE", value)
        compiled(size=20 + number)
        compiled(size=20 + number)
        assert len(optimised) == 2 * number
