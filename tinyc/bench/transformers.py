"""Transformers as they are written down: stacks of equal blocks, naive, for the tracer."""

from __future__ import annotations

from typing import Any

import tinyc
from tinyc import functions as tc
from tinyc.ir.tiny import Program

Parameters = dict[str, Any]


def shapes(width: int) -> dict[str, tuple[int, ...]]:
    """The parameters of a block, but of some that have others."""
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
    q, k = (rotated(each, p["cos"], p["sin"]) for each in (q, k))
    mixed = tc.attention(q, k, v, causal=True).permute(0, 2, 1, 3).reshape(batch, tokens, width)
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


def stack(
    block: Any, blocks: int, batch: int, tokens: int, width: int, heads: int, dtype: str = "fp16"
) -> Program:
    """So many of ``block``, each with parameters of its own; x: [batch, tokens, width]."""
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
    specs = {name: tinyc.spec(dtype, shape) for name, shape in every.items()}
    return tinyc.trace(function, x=tinyc.spec(dtype, (batch, tokens, width)), **specs)
