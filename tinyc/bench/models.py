"""cpu-models: a handful of programs beside numpy, and beside other compilers where one asks for them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .measure import Benchmark, Cases, in_turns, median_ratio, timed
from .peers import PEERS
from .programs import MODELS, Model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MEANINGS = {
    "compile_s": "tinyc, from the function to the compiled program; the engine is warm",
    "kernels": "of tinyc's program",
    "time_s": "one call, median of the turns",
    "best_s": "one call, best of the turns",
    "numpy_time_s": "the same program in numpy, median of the turns",
    "numpy_best_s": "numpy, best of the turns",
    "numpy_ratio": "time of a call over numpy's, median of the turns",
    "numpy_best_ratio": "the same, best by best",
    **{
        f"{peer}_{figure}": meaning.format(peer)
        for peer in PEERS
        for figure, meaning in (
            ("compile_s", "{}, to its first steady call"),
            ("time_s", "{}, median of the turns"),
            ("best_s", "{}, best of the turns"),
            ("ratio", "time of a call over that of {}, median of the turns"),
            ("best_ratio", "the same, best by best"),
        )
    },
}


def run(repeats: int, peers: Sequence[str] = (), models: Mapping[str, Model] = MODELS) -> Cases:
    """Every result is held against numpy's before anything is timed. tinyc, numpy and the peers take turns."""
    compile_model(Model({"x": (4,)}, lambda x: x + x, lambda x: x + x))  # starts the engine
    return {name: _measure(name, model, repeats, peers) for name, model in models.items()}


def _measure(name: str, model: Model, repeats: int, peers: Sequence[str]) -> dict[str, float]:
    import numpy as np

    arrays = random_arrays(model)
    wanted = model.numpy(*arrays)
    compiled, compile_s = timed(lambda: compile_model(model))
    figures: dict[str, float] = {"compile_s": compile_s}
    calls = [lambda: compiled(*arrays), lambda: model.numpy(*arrays)]
    names = ["numpy"]
    for peer in peers:
        prepared = PEERS[peer](name, arrays)
        if prepared is not None:
            figures[f"{peer}_compile_s"] = prepared.compile_s
            np.testing.assert_allclose(prepared.result(), wanted, rtol=1e-3, atol=1e-3)
            calls.append(prepared.call)
            names.append(peer)
    np.testing.assert_allclose(compiled(*arrays), wanted, rtol=1e-3, atol=1e-3)
    ours, *others = in_turns(calls, repeats)
    figures |= {"kernels": len(compiled.kernels), "time_s": statistics.median(ours), "best_s": min(ours)}
    for other, times in zip(names, others, strict=True):
        figures[f"{other}_time_s"] = statistics.median(times)
        figures[f"{other}_best_s"] = min(times)
        figures[f"{other}_ratio"] = median_ratio(ours, times)
        figures[f"{other}_best_ratio"] = min(ours) / min(times)
    return figures


def compile_model(model: Model) -> Any:
    """The naive function, compiled for the CPU."""
    import tinyc

    specs = {name: tinyc.spec("fp32", shape) for name, shape in model.shapes.items()}
    parameters = list(specs.values())
    return tinyc.optimize_and_compile(tinyc.trace(model.naive, *parameters))


def random_arrays(model: Model) -> list[NDArray[Any]]:
    """Inputs of a model, the same every time."""
    import numpy as np

    random = np.random.default_rng(0)
    return [_random(random, shape) for shape in model.shapes.values()]


def _random(random: np.random.Generator, shape: tuple[int, ...]) -> NDArray[Any]:
    """Normal, scaled so that sums over the last axis but one stay near 1."""
    import numpy as np

    scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
    return random.standard_normal(shape, dtype=np.float32) * np.float32(scale)


BENCHMARK = Benchmark(
    "cpu-models",
    "programs beside numpy and, where installed, other compilers",
    run,
    9,
    MEANINGS,
    tuple(PEERS),
)
