"""The formulas as functions of numbers: what they may be written in, and what is worked in once."""

from __future__ import annotations

import ast
import os
import pickle
import random
import subprocess
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tinyc.extract.cost.expressions import constant, folded, function, names_in
from tinyc.extract.cost.formulas import WORK
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.cost.model import AMOUNTS as MODEL_AMOUNTS
from tinyc.extract.cost.model import Roofline, Work, amounts_of, estimates_by_formulas, timer, timer_of_many
from tinyc.extract.cost.schedule import Schedule

A100, H100, CPU = Roofline(hardware("sm80")), Roofline(hardware("sm90")), Roofline(hardware("cpu"))
AMOUNTS = tuple(WORK)


@dataclass(frozen=True)
class Doubled(Roofline):
    """A user's own: a kernel takes twice as long as the formulas say."""

    def kernel(self, work: Work) -> float:
        return 2 * super().kernel(work)


def test_formulas_are_arithmetic_and_nothing_else() -> None:
    """Arithmetic and the functions that are given; what is known is worked in."""
    known = {"x": ast.Name("x", ast.Load()), "y": ast.Name("y", ast.Load()), "c": constant(4.0)}
    for text, values, wanted in (
        ("x + 2 * y", (1.0, 3.0), 7.0),
        ("x - 0", (4.0, 0.0), 4.0),
        ("1 / c * x * 1", (8.0, 0.0), 2.0),
        ("top(x, y, 5)", (1.0, 9.0), 9.0),
        ("x / y >= c", (8.0, 2.0), True),
    ):
        evaluate = function(("x", "y"), (), (folded(text, known, {"top": max}),), {"top": max})
        assert evaluate(*values) == (wanted,)
    for text in ("c * 0.5 + 2", "x * 0 + c"):
        value = folded(text, known, {})
        assert isinstance(value, ast.Constant) and value.value == 4.0
    assert names_in("top(x, c) + 1") == {"x", "c"}
    for text in ("z", "f(x)"):
        with pytest.raises(KeyError):
            folded(text, known, {})
    for text in (
        "x.real",
        "x[0]",
        "x if y else 1",
        "x ** 2",
        "'a'",
        "lambda: x",
        "top(x, *y)",
        "1 <= x >= y",
    ):
        with pytest.raises(TypeError):
            folded(text, known, {"top": max})


def _any_work(choose: random.Random) -> Work:
    amounts = {name: choose.choice([0.0, 10 ** choose.uniform(2, 11)]) for name in AMOUNTS}
    amounts["epilogue_ops"] = choose.uniform(0, 1) * amounts["ops"]
    return Work(**{**amounts, "values": choose.randint(0, 20)})  # type: ignore[arg-type]


def _any_schedule(choose: random.Random) -> Schedule:
    return Schedule(
        blocks=choose.choice([1, 7, 108, 4096]),
        threads=choose.choice([32, 128, 512]),
        registers=choose.choice([0, 40, 200]),
        smem_bytes=choose.choice([0, 48 << 10, 96 << 10]),
        stages=choose.choice([1, 2, 4]),
        steps=choose.choice([1, 3, 64]),
        staged_bytes=choose.choice([0.0, 1e7]),
        vector_bytes=choose.choice([2, 4, 16]),
        padding=choose.uniform(1, 3),
        attained=choose.uniform(0.3, 1),
        async_copy=choose.random() < 0.5,
        epilogue_overlap=choose.random() < 0.5,
        row_blocks=choose.choice([1, 4]),
        sum_threads=choose.choice([1, 32]),
    )


@pytest.mark.parametrize("model", [A100, H100, CPU], ids=["sm80", "sm90", "cpu"])
def test_a_timer_says_what_the_estimate_says(model: Roofline) -> None:
    choose = random.Random(11)
    for _ in range(300):
        work, schedule = _any_work(choose), _any_schedule(choose)
        for run in (None, schedule):
            assert timer(model, run)(amounts_of(work)) == model.kernel(replace(work, schedule=run))


@pytest.mark.parametrize(
    "model", [A100, H100, CPU, Doubled(hardware("sm80"))], ids=["sm80", "sm90", "cpu", "own"]
)
def test_many_kernels_are_estimated_as_each_is(model: Roofline) -> None:
    """Also those of which an amount is nothing, or is that of all."""
    choose = random.Random(14)
    for _ in range(20):
        works, schedule = [_any_work(choose) for _ in range(50)], _any_schedule(choose)
        works = [replace(work, bytes_written=works[0].bytes_written) for work in works]
        each = [np.array(amount) for amount in zip(*map(amounts_of, works), strict=True)]
        place = MODEL_AMOUNTS.index("bytes_written")
        each[place] = each[place][0]
        for run in (None, schedule):
            found = timer_of_many(model, run)(each)
            one = timer(model, run)
            assert found == pytest.approx([one(amounts_of(work)) for work in works], rel=1e-13)


@pytest.mark.parametrize("model", [A100, H100], ids=["sm80", "sm90"])
def test_no_schedule_beats_a_machine_that_is_evenly_full_and_hides_the_epilogue(model: Roofline) -> None:
    """What the exact search leaves out by one evaluation instead of one for each way to run."""
    choose = random.Random(12)
    for _ in range(1000):
        work, schedule = _any_work(choose), _any_schedule(choose)
        full = timer(model, None)(amounts_of(replace(work, ops=work.ops - work.epilogue_ops)))
        assert full <= model.kernel(replace(work, schedule=schedule)) * (1 + 1e-12)


def test_a_subclass_of_the_roofline_is_asked_itself() -> None:
    choose, model = random.Random(13), Doubled(hardware("sm80"))
    assert estimates_by_formulas(A100) and not estimates_by_formulas(model)
    for _ in range(100):
        work, schedule = _any_work(choose), _any_schedule(choose)
        assert timer(model, schedule)(amounts_of(work)) == model.kernel(replace(work, schedule=schedule))
        assert model.kernel(work) == 2 * A100.kernel(work)


def test_a_copy_of_a_model_is_of_its_class_and_estimates_the_same() -> None:
    for model in (A100, Doubled(hardware("sm80"))):
        before = model.kernel(Work(bytes_read=1e6))
        again = pickle.loads(pickle.dumps(model))
        assert type(again) is type(model) and again == model
        assert again.kernel(Work(bytes_read=1e6)) == before


def test_equal_schedules_are_found_in_any_process() -> None:
    """Their hash is kept with them, and goes where they are sent: it must not be that of a name, which each process has for itself."""
    schedule = Schedule("loops", blocks=7, staged_bytes=1.5, tile=(64, 64, 32), warp_tile=None)
    other = replace(Schedule("loops", blocks=7, tile=(64, 64, 32)), staged_bytes=1.5)
    assert schedule is not other and schedule == other and hash(schedule) == hash(other)
    assert schedule != replace(other, algo="tiles") and schedule != replace(other, blocks=8)
    text = (
        "from tinyc.extract.cost.schedule import Schedule\n"
        "print(hash(Schedule('loops', blocks=7, staged_bytes=1.5, tile=(64, 64, 32), warp_tile=None)))"
    )
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=environment)
        assert int(ran.stdout) == hash(schedule), ran.stderr
