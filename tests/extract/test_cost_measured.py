"""The log of measured times, and what is learned from it."""

from __future__ import annotations

import csv
import json
import random
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tinyc
from tinyc import TinycError
from tinyc.bench import estimates
from tinyc.bench.programs import MODELS
from tinyc.cli import main
from tinyc.extract.cost.calibration import COEFFICIENTS, calibrate, errors
from tinyc.extract.cost.hardware import Hardware, hardware
from tinyc.extract.cost.measurements import (
    COLUMNS,
    LEVELS,
    Measurement,
    accuracy,
    append,
    kernel_hash,
    read_log,
)
from tinyc.extract.cost.model import Roofline, Work
from tinyc.extract.cost.schedule import Schedule
from tinyc.ir.region import Region
from tinyc.measured import measure
from tinyc.pipeline import Options, compile_program

CPU = hardware("cpu")
SCHEDULE = Schedule(
    "implicit_gemm", 264, 256, 176, 98304, 3, 8, 1e9, 16, tile=(128, 64, 64), warp_tile=(64, 64)
)


def row(work: Work, actual: float, target: str = "cpu", region: str = "k_y", plan: str = "{}") -> Measurement:
    guess = Roofline(hardware(target)).kernel(work)
    size = work.bytes_read + work.bytes_written
    return Measurement(
        work.flops, size, 1.0, guess, actual, plan, target, "a processor", region, "0" * 16, work
    )


def works(count: int, seed: int = 0) -> list[Work]:
    """Kernels that are bound by everything in turn."""
    source = random.Random(seed)
    found = []
    for number in range(count):
        amounts = {"flops": 1e7, "ops": 1e6, "bytes_read": 1e6, "bytes_written": 5e5, "values": 4.0}
        chosen = list(amounts)[number % 4]
        scale = {name: 10 ** source.uniform(1, 3) if name == chosen else 0.1 for name in amounts}
        found.append(Work(**{name: value * scale[name] for name, value in amounts.items()}))
    return [*found, *(Work(values=float(10 ** (number % 4))) for number in range(8))]


# ---- the file -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("004-145")
def test_the_log_is_csv_with_the_documents_columns(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [
        row(Work(1e9, 2.5, 3.0, 4.0, 5.0), 0.1, plan='{"tile":[128,64,64],"a":"x, \\"y\\""}'),
        row(Work(flops=1.0, schedule=SCHEDULE), 1e-6, "sm80", "k_ü"),
    ]
    append(path, rows[:1])
    append(path, [])
    append(path, rows[1:])
    with path.open(newline="", encoding="utf-8") as file:
        head, *lines = csv.reader(file)
    assert head[:6] == ["FLOPs", "Bytes", "occ", "estimate", "actual", "plan"]
    assert tuple(head) == COLUMNS
    assert [len(line) for line in lines] == [len(COLUMNS)] * 2
    assert json.loads(lines[0][5]) == {"tile": [128, 64, 64], "a": 'x, "y"'}
    assert read_log(path).rows == tuple(rows)
    assert read_log(path).damaged == ()


@pytest.mark.spec("004-145")
def test_a_damaged_line_is_reported_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    good = [row(Work(flops=float(number)), 0.1 + number) for number in range(3)]
    append(path, good[:2])
    lines = path.read_text(encoding="utf-8").splitlines()
    bad = [
        lines[1][: len(lines[1]) // 2],  # a process that died
        lines[1].replace("0.1", "nan", 1),
        "0.0,0.0,1.0,5e-06,0.0," + lines[1].split(",", 5)[5],  # no time at all
        "x" * 100,
        '1,2,3,"',
        ",".join(["1"] * len(COLUMNS)),
        lines[1].rsplit(",", 1)[0] + ',"{""flops"":-1}"',
        lines[1].rsplit(",", 1)[0] + ',"{""speed"":1}"',
        lines[1].rsplit(",", 1)[0] + ',"{""schedule"":{""blocks"":0}}"',
        lines[1].rsplit(",", 1)[0] + ',"{""schedule"":{""registers"":""many""}}"',
        lines[1].rsplit(",", 1)[0] + ',"{""schedule"":7}"',
        "[" * 5000,
        "\x00\x01",
    ]
    blob = "\n".join([*lines, *bad, lines[0], lines[2]]).encode() + b"\n\xff\xfe,\n" + b"1,2"
    path.write_bytes(blob)
    append(path, good[2:])  # ends the line that was left unfinished
    log = read_log(path)
    assert log.rows == (good[0], good[1], good[1], good[2])
    first = len(lines) + 1
    numbers = [number for number, _ in log.damaged]
    assert numbers == [*range(first, first + len(bad)), first + len(bad) + 2, first + len(bad) + 3]
    assert all(why for _, why in log.damaged)


def test_many_writers_leave_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    parts = [[row(Work(flops=float(100 * part + n)), 1.0) for n in range(20)] for part in range(8)]

    def write(rows: list[Measurement]) -> None:
        for each in rows:
            append(path, [each])

    threads = [threading.Thread(target=write, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log = read_log(path)
    assert log.damaged == ()
    assert sorted(each.flops for each in log.rows) == sorted(each.flops for part in parts for each in part)
    assert path.read_text(encoding="utf-8").count("FLOPs") == 1


def test_a_log_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TinycError) as raised:
        read_log(tmp_path / "none.csv")
    assert raised.value.kind == "FileUnreadable"
    with pytest.raises(TinycError) as raised:
        append(tmp_path / "no" / "log.csv", [row(Work(), 1.0)])
    assert raised.value.kind == "FileUnwritable"
    append(tmp_path / "no" / "log.csv", [])  # nothing to write


# ---- measuring ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("004-145", "004-135")
def test_kernels_are_measured_and_logged(tmp_path: Path) -> None:
    """Two kernels; what the log says of them is what the report says."""

    def program(a: tinyc.Tensor, b: tinyc.Tensor) -> tuple[tinyc.Tensor, ...]:
        return a @ b, a.sum(axis=0)

    spec = tinyc.spec("fp32", (96, 96))
    options = Options("cpu")
    built = compile_program(tinyc.trace(program, spec, spec), options)
    assert built.executable is not None
    arrays = [np.ones((96, 96), np.float32)] * 2
    rows = measure(built.executable, arrays, options.model, repeats=3, log=tmp_path / "log.csv")
    assert [each.region for each in rows] == [kernel.region for kernel in built.report.kernels]
    assert [each.estimate for each in rows] == [kernel.time_s for kernel in built.report.kernels]
    assert all(each.actual > 0 and each.target == "cpu" and each.occ == 1.0 for each in rows)
    assert [json.loads(each.plan)["region"] for each in rows] == [each.region for each in rows]
    assert len({each.hash for each in rows}) == 2
    assert read_log(tmp_path / "log.csv").rows == rows
    model = Roofline(CPU)
    assert [model.kernel(each.work) for each in rows] == [each.estimate for each in rows]


def test_a_measured_programs_report_has_the_times() -> None:
    """Of the binding that was measured; a program for another size has none."""
    compiled = tinyc.optimize_and_compile(
        tinyc.trace(lambda a: a.exp().sum(axis=0), tinyc.spec("fp32", ("N", 8)))
    )
    rows = compiled.measure(np.ones((16, 8), np.float32), repeats=1)
    assert [kernel.actual_s for kernel in compiled.report.kernels] == [each.actual for each in rows]
    compiled(np.ones((4, 8), np.float32))
    assert all(kernel.actual_s is None for kernel in compiled.report.kernels)
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(TinycError) as raised:
            compiled.measure(np.ones((4, 8), np.float32), repeats=wrong)
        assert raised.value.kind == "InvalidArgument"


def test_the_command_line_logs_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = Path(__file__).parents[2] / "docs" / "examples" / "diamond.json"
    given = []
    for argument in tinyc.optimize_and_compile(document).signature.inputs:
        np.save(
            tmp_path / f"{argument.name}.npy",
            np.ones([int(size) for size in argument.shape], argument.dtype.numpy),
        )
        given += ["--input", f"{argument.name}={tmp_path / argument.name}.npy"]
    log = tmp_path / "log.csv"
    assert main(["run", str(document), *given, "--log", str(log)]) == 0
    (line,) = read_log(log).rows
    shown = capsys.readouterr().out
    assert line.region in shown
    assert f"{line.actual * 1e6:.2f} us" in shown


def test_the_benchmark_of_estimates_adds_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {name: MODELS[name] for name in ("softmax", "layernorm")}
    small = replace(estimates.BENCHMARK, run=lambda repeats, peers: estimates.run(repeats, peers, few))
    monkeypatch.setattr("tinyc.commands.bench.BENCHMARKS", {"small": small})
    assert main(["bench", "small", "--json", "--repeat", "1"]) == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert list(cases) == [*few, "all"]
    for name in ("kernels", "estimate_s", "time_s"):
        assert cases["all"][name] == pytest.approx(sum(cases[model][name] for model in few))
    for figures in cases.values():
        assert set(figures) == set(estimates.MEANINGS)
        assert figures["ratio"] == pytest.approx(figures["estimate_s"] / figures["time_s"])
        assert figures["least_ratio"] <= figures["most_ratio"]
        assert figures["typical_error"] >= 1


def test_a_kernels_hash_goes_by_what_it_computes() -> None:
    def built(name: str, size: int) -> tuple[Region, ...]:
        program = tinyc.trace(lambda **given: -given[name], **{name: tinyc.spec("fp32", (size,))})
        return compile_program(program, Options("cpu")).extracted.regions

    (one,), (same,), (other,) = built("x", 8), built("y", 8), built("x", 9)
    plan = tinyc.ir.plan.Plan()
    assert kernel_hash(one, plan) == kernel_hash(same, plan) != kernel_hash(other, plan)
    assert kernel_hash(one, plan) != kernel_hash(one, replace(plan, stages=2))


# ---- learning -------------------------------------------------------------------------------------------------------


def test_calibration_finds_the_machine_that_was_measured() -> None:
    machine = replace(CPU, flops=3.1e10, ops=9e10, bandwidth=5e9, launch=2e-5, value=1e-7)
    log = [row(work, Roofline(machine).kernel(work)) for work in works(60)]
    found = calibrate(log, CPU)
    for name in ("flops", "ops", "bandwidth", "launch", "value"):
        assert getattr(found, name) == pytest.approx(getattr(machine, name), rel=0.15), name
    assert errors(log, found).median < 1.05
    assert replace(found, **{name: getattr(CPU, name) for name in COEFFICIENTS}) == CPU  # facts stay


def test_calibration_is_not_led_astray_by_spoiled_measurements() -> None:
    machine, source = replace(CPU, bandwidth=5e9), random.Random(1)
    log = [row(work, Roofline(machine).kernel(work) * source.uniform(0.9, 1.1)) for work in works(60)]
    spoiled = [
        replace(each, actual=each.actual * (1000 if number % 10 == 0 else 1))
        for number, each in enumerate(log)
    ]
    assert calibrate(spoiled, CPU).bandwidth == pytest.approx(5e9, rel=0.3)


@pytest.mark.parametrize("seed", range(6))
def test_calibration_is_never_worse(seed: int) -> None:
    """On times that fit no formula, neither in the mean square, nor in the mean, nor in the median."""
    source = random.Random(seed)
    log = [row(work, 10 ** source.uniform(-7, -1)) for work in works(source.randint(1, 30), seed)]
    found, table = errors(log, calibrate(log, CPU)), errors(log, CPU)
    assert found.square <= table.square
    assert found.mean <= table.mean
    assert found.median <= table.median


def test_calibration_takes_its_targets_rows_only() -> None:
    log = [row(work, 1.0, "sm80") for work in works(8)]
    assert calibrate(log, CPU) is CPU
    assert calibrate([], CPU) is CPU
    assert errors([], CPU).square == 1.0
    gpu: Hardware = calibrate(log, hardware("sm80"))
    assert gpu != hardware("sm80")
    assert gpu.sms == 108


def test_estimates_against_measured_times() -> None:
    log = [
        row(Work(), 5e-6 / ratio, region=f"k{number}")
        for number, ratio in enumerate((0.5, 1.0, 2.0, 4.0, 8.0))
    ]
    found = accuracy(log)
    assert found.count == 5
    assert found.pairs["k1"] == pytest.approx((5e-6, 5e-6))
    assert dict(zip(LEVELS, found.quantiles, strict=True)) == pytest.approx(
        {0.0: 0.5, 0.1: 0.7, 0.25: 1.0, 0.5: 2.0, 0.75: 4.0, 0.9: 6.4, 1.0: 8.0}
    )
    slower = accuracy(log, Roofline(replace(CPU, launch=1e-5)))
    assert slower.quantiles == pytest.approx([2 * value for value in found.quantiles])
    assert accuracy([]).quantiles == ()
