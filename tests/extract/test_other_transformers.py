"""Stacks of blocks that the search was not made on: batched, with heads of their own axis, biases, and norms elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_examples import saturated

import tinyc
from tinyc import functions as tc
from tinyc.extract.cost.hardware import hardware
from tinyc.extract.cost.model import Roofline
from tinyc.extract.exact import columns
from tinyc.extract.exact.labels import COMPARED, Labels
from tinyc.extract.exact.proof import Effort
from tinyc.extract.program import extract_program
from tinyc.ir.tiny import Program

Parameters = dict[str, Any]


def shapes(width: int) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {f"w{name}": (width, width) for name in "qkvo"}
    found |= {name: (width,) for name in ("bq", "bk", "bv", "bo", "n1", "c1", "n2", "c2", "b2")}
    return found | {"w1": (width, 4 * width), "b1": (4 * width,), "w2": (4 * width, width)}


def attended(x: Any, p: Parameters, heads: int, **how: Any) -> Any:
    """Attention over heads, with a bias on every product; x: [batch, tokens, width]."""
    batch, tokens, width = x.shape
    q, k, v = (
        (x @ p[f"w{name}"] + p[f"b{name}"]).reshape(batch, tokens, heads, width // heads).permute(0, 2, 1, 3)
        for name in "qkv"
    )
    mixed = tc.attention(q, k, v, **how).permute(0, 2, 1, 3).reshape(batch, tokens, width)
    return mixed @ p["wo"] + p["bo"]


def norm_first(x: Any, p: Parameters, heads: int) -> Any:
    """As in GPT-2 (A. Radford and others, 2019, section 2.3)."""
    x = x + attended(tc.layer_norm(x, p["n1"], p["c1"]), p, heads, causal=True)
    return x + ((tc.layer_norm(x, p["n2"], p["c2"]) @ p["w1"] + p["b1"]).gelu() @ p["w2"] + p["b2"])


def norm_last(x: Any, p: Parameters, heads: int) -> Any:
    """As in A. Vaswani and others, "Attention is all you need", 2017, section 3.1."""
    x = tc.layer_norm(x + attended(x, p, heads), p["n1"], p["c1"])
    return tc.layer_norm(x + (x @ p["w1"] + p["b1"]).relu() @ p["w2"] + p["b2"], p["n2"], p["c2"])


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    """J. Su and others, "RoFormer: Enhanced transformer with rotary position embedding", 2021, section 3.4.2, by halves."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return tc.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def rotary(x: Any, p: Parameters, heads: int) -> Any:
    """As in LLaMA 2 (H. Touvron and others, 2023, section 2.2): two heads of queries for one of keys, and a gated layer."""
    batch, tokens, width = x.shape

    def split(value: Any) -> Any:
        return value.reshape(batch, tokens, -1, width // heads).permute(0, 2, 1, 3)

    y = tc.rms_norm(x, p["n1"])
    q, k, v = (split(y @ p[f"w{name}"]) for name in "qkv")
    turned = (rotated(each, p["cos"], p["sin"]) for each in (q, k))
    mixed = tc.attention(*turned, v, causal=True).permute(0, 2, 1, 3).reshape(batch, tokens, width)
    x = x + mixed @ p["wo"]
    y = tc.rms_norm(x, p["n2"])
    return x + ((y @ p["w1"]).silu() * (y @ p["w3"])) @ p["w2"]


def beside(x: Any, p: Parameters, heads: int) -> Any:
    """Attention and a layer of one norm, as in GPT-J (B. Wang and A. Komatsuzaki, 2021)."""
    y = tc.layer_norm(x, p["n1"], p["c1"])
    return x + attended(y, p, heads, causal=True) + (y @ p["w1"]).gelu() @ p["w2"]


def modulated(x: Any, p: Parameters, heads: int) -> Any:
    """As in W. Peebles and S. Xie, "Scalable diffusion models with transformers", 2023, section 3.2: all layers are shifted, scaled
    and gated by what each makes of one condition."""
    width = x.shape[-1]
    made = (p["condition"].silu() @ p["wm"] + p["bm"]).expand_dims(1)
    shift, scale, gate, *others = (made[..., number * width : (number + 1) * width] for number in range(6))
    x = x + gate * attended(tc.layer_norm(x, p["n1"], p["c1"]) * (scale + 1.0) + shift, p, heads)
    shift, scale, gate = others
    y = tc.layer_norm(x, p["n2"], p["c2"]) * (scale + 1.0) + shift
    return x + gate * ((y @ p["w1"] + p["b1"]).gelu() @ p["w2"] + p["b2"])


def stack(block: Any, blocks: int, batch: int, tokens: int, width: int, heads: int) -> Program:
    names, common = shapes(width), dict[str, tuple[int, ...]]()
    if block is rotary:
        hidden = 8 * width // 3 // 64 * 64
        names = {name: names[name] for name in ("n1", "wq", "wo", "n2")}
        names |= {"wk": (width, width // 2), "wv": (width, width // 2)}
        names |= {"w1": (width, hidden), "w3": (width, hidden), "w2": (hidden, width)}
        common = dict.fromkeys(("cos", "sin"), (tokens, width // heads // 2))
    if block is modulated:
        names |= {"wm": (width, 6 * width), "bm": (6 * width,)}
        common = {"condition": (batch, width)}

    def function(x: Any, **parameters: Any) -> Any:
        for number in range(blocks):
            own = {name: parameters[f"l{number}_{name}"] for name in names}
            x = block(x, own | {name: parameters[name] for name in common}, heads)
        return x

    every = common | {f"l{n}_{name}": shape for n in range(blocks) for name, shape in names.items()}
    specs = {name: tinyc.spec("fp16", shape) for name, shape in every.items()}
    return tinyc.trace(function, x=tinyc.spec("fp16", (batch, tokens, width)), **specs)


@pytest.mark.parametrize(
    ("block", "blocks", "size", "target"),
    [
        pytest.param(norm_last, 5, (1, 128, 256, 4), "sm80", id="norm last, 5"),
        pytest.param(norm_first, 5, (1, 128, 256, 4), "sm80", id="norm first, 5"),
        pytest.param(rotary, 5, (4, 128, 512, 8), "sm90", id="rotary, batch, 5"),
        pytest.param(beside, 5, (1, 64, 128, 4), "sm80", id="beside, 5"),
        pytest.param(norm_last, 16, (1, 128, 256, 4), "sm80", id="norm last", marks=pytest.mark.slow),
        pytest.param(norm_last, 16, (4, 128, 512, 8), "sm90", id="norm last, batch", marks=pytest.mark.slow),
        pytest.param(norm_first, 16, (1, 128, 256, 4), "sm80", id="norm first", marks=pytest.mark.slow),
        pytest.param(
            norm_first, 16, (4, 128, 512, 8), "sm90", id="norm first, batch", marks=pytest.mark.slow
        ),
        pytest.param(norm_first, 16, (1, 197, 768, 12), "sm80", id="norm first, 197", marks=pytest.mark.slow),
        pytest.param(rotary, 16, (1, 128, 256, 4), "sm80", id="rotary", marks=pytest.mark.slow),
        pytest.param(beside, 16, (1, 64, 128, 4), "sm80", id="beside", marks=pytest.mark.slow),
        pytest.param(beside, 16, (4, 128, 512, 8), "sm90", id="beside, batch", marks=pytest.mark.slow),
        pytest.param(modulated, 16, (4, 256, 384, 6), "sm90", id="modulated", marks=pytest.mark.slow),
    ],
)
def test_the_choice_is_near_the_best(block: Any, blocks: int, size: tuple[int, ...], target: str) -> None:
    """Norms at the end were 22 % from their bound: a cut within each norm, beneath which a product cost hardly anything. Products beside
    each other were 15 %: of what is neither added nor filled, one product was counted; rotary positions up to 31 %: attention that
    turns what it walks was taken to walk it on matrix units, and of what is taken as one, the product was never filled. 197 tokens were
    5.6 %: of eight partial sums that a program fills, it was taken to read as little as of two. One condition of all layers was 95 %:
    they were one part."""
    batch, tokens, width, heads = size
    program = stack(block, blocks, batch, tokens, width, heads)
    found = extract_program(
        program, saturated(program, target), Roofline(hardware(target)), effort=Effort(600.0, 150_000)
    )
    assert found.proof is not None
    assert found.proof.gap <= 0.05
    assert found.proof.limit in ("", "parts")  # it did not run out of steps


def test_a_search_with_many_labels_of_one_state_counts_what_it_compares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attention of what is rotated took 28 s: one label in three was compared with hundreds, and counted as any other."""

    def attention(q: Any, k: Any, v: Any, cos: Any, sin: Any) -> Any:
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        near = tc.arange(33).expand_dims(1) - tc.arange(33).expand_dims(0)
        return tc.softmax(tc.where((near >= 0) & (near < 8), q @ k.swapaxes(-1, -2) * 0.17, -1e4)) @ v

    wide, half = tinyc.spec("fp16", (1, 4, 33, 32)), tinyc.spec("fp16", (33, 16))
    program = tinyc.trace(attention, q=wide, k=wide, v=wide, cos=half, sin=half)
    compared = looked_at = 0
    worse, expand = Labels.worse, columns.Search._expand

    def held_against(self: Labels, state: Any, label: Any) -> bool:
        nonlocal compared
        before = self.compared
        found = worse(self, state, label)
        compared += self.compared - before
        return found

    def expanded(self: columns.Search, moves: Any, state: Any, labels: Any) -> None:
        nonlocal looked_at
        looked_at += len(labels)
        expand(self, moves, state, labels)

    monkeypatch.setattr(Labels, "worse", held_against)
    monkeypatch.setattr(columns.Search, "_expand", expanded)
    steps = 40_000
    found = extract_program(
        program, saturated(program, "sm80"), Roofline(hardware("sm80")), effort=Effort(600.0, steps)
    )
    assert found.proof is not None and found.proof.limit == "steps"
    assert looked_at < 0.8 * steps < looked_at + compared / COMPARED < 1.2 * steps
