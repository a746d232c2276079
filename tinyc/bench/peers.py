"""Other compilers on the programs of :mod:`.programs`, where they are installed: tinyc itself needs none of them.

Each program is written as one would write it there, with the peer's own softmax, attention and so on, on arrays of
the peer's own kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tinyc.ir.diagnostics import TinycError

from .measure import seconds
from .programs import HEADS

WARM_CALLS = 3
"""tinygrad captures a function in its first two calls; the third is steady."""


@dataclass(frozen=True)
class Prepared:
    """A program of a peer, warm. ``compile_s``: its first calls. ``call`` computes; ``result`` is a numpy array."""

    compile_s: float
    call: Callable[[], Any]
    result: Callable[[], Any]


def load_peer(peer: str, module: str) -> Any:
    """The module of a peer. Raises Usage where it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        why, suggestion = f"{module} is not installed", f"pip install {module}, or leave --peer {peer} out"
        raise TinycError("Usage", why, suggestion, {"layer": "bench"}) from error


def torch_eager(name: str, arrays: Sequence[Any]) -> Prepared | None:
    """torch as it is, kernel by kernel."""
    torch = load_peer("torch", "torch")
    return _prepare_torch(torch, _torch_functions(torch).get(name), arrays)


def torch_compile(name: str, arrays: Sequence[Any]) -> Prepared | None:
    """torch.compile with its default settings; it needs a C++ compiler."""
    torch = load_peer("torch-compile", "torch")
    function = _torch_functions(torch).get(name)
    return _prepare_torch(torch, function and torch.compile(function, dynamic=False), arrays)


def _prepare_torch(torch: Any, function: Callable[..., Any] | None, arrays: Sequence[Any]) -> Prepared | None:
    if function is None:
        return None
    run = function
    tensors = [torch.from_numpy(array) for array in arrays]

    def call() -> Any:
        with torch.no_grad():
            return run(*tensors)

    compile_s = sum(seconds(call) for _ in range(WARM_CALLS))
    return Prepared(compile_s, call, lambda: call().numpy())


def _torch_functions(torch: Any) -> dict[str, Callable[..., Any]]:
    F = torch.nn.functional

    def block(x: Any, *parameters: Any) -> Any:
        norm1, wq, wk, wv, wo, norm2, w1, b1, w2, b2 = parameters
        tokens, width = x.shape
        normal = F.layer_norm(x, (width,), norm1)
        q, k, v = ((normal @ w).reshape(tokens, HEADS, -1).permute(1, 0, 2)[None] for w in (wq, wk, wv))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0]
        x = x + mixed.permute(1, 0, 2).reshape(tokens, width) @ wo
        normal = F.layer_norm(x, (width,), norm2)
        return x + F.gelu(normal @ w1 + b1, approximate="tanh") @ w2 + b2

    return {
        "gemm": lambda a, b: a @ b,
        "gemm_bias_relu": lambda a, b, bias: torch.relu(torch.addmm(bias, a, b)),
        "softmax": lambda x: torch.softmax(x, -1),
        "layernorm": lambda x, weight, bias: F.layer_norm(x, x.shape[-1:], weight, bias),
        "attention": lambda q, k, v: F.scaled_dot_product_attention(q[None], k[None], v[None])[0],
        "mlp": lambda x, w1, b1, w2, b2: F.gelu(x @ w1 + b1, approximate="tanh") @ w2 + b2,
        "conv3x3": lambda x, weight: F.conv2d(x, weight, padding=1),
        "transformer_block": block,
    }


def tinygrad(name: str, arrays: Sequence[Any]) -> Prepared | None:
    """tinygrad's TinyJit on its CPU device, without BEAM search; it needs clang."""
    grad = load_peer("tinygrad", "tinygrad")
    function = _tinygrad_functions(grad).get(name)
    if function is None:
        return None
    tensors = [grad.Tensor(array).realize() for array in arrays]
    jitted = grad.TinyJit(function)
    device = grad.Device[grad.Device.DEFAULT]

    def call() -> Any:
        out = jitted(*tensors)
        device.synchronize()
        return out

    compile_s = sum(seconds(call) for _ in range(WARM_CALLS))
    return Prepared(compile_s, call, lambda: call().numpy())


def _tinygrad_functions(grad: Any) -> dict[str, Callable[..., Any]]:
    Tensor = grad.Tensor

    def attention(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
        return Tensor.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def block(x: Any, *parameters: Any) -> Any:
        norm1, wq, wk, wv, wo, norm2, w1, b1, w2, b2 = parameters
        tokens, width = x.shape
        normal = x.layernorm() * norm1
        q, k, v = ((normal @ w).reshape(tokens, HEADS, -1).permute(1, 0, 2) for w in (wq, wk, wv))
        x = x + attention(q, k, v, causal=True).permute(1, 0, 2).reshape(tokens, width) @ wo
        return x + ((x.layernorm() * norm2) @ w1 + b1).gelu() @ w2 + b2

    functions: dict[str, Callable[..., Any]] = {
        "gemm": lambda a, b: a @ b,
        "gemm_bias_relu": lambda a, b, bias: (a @ b + bias).relu(),
        "softmax": lambda x: x.softmax(-1),
        "layernorm": lambda x, weight, bias: x.layernorm() * weight + bias,
        "attention": attention,
        "mlp": lambda x, w1, b1, w2, b2: (x @ w1 + b1).gelu() @ w2 + b2,
        "conv3x3": lambda x, weight: x.conv2d(weight, padding=1),
        "transformer_block": block,
    }
    return {name: _realized(function) for name, function in functions.items()}


def _realized(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *tensors: function(*tensors).realize()


PEERS: Mapping[str, Callable[[str, Sequence[Any]], Prepared | None]] = {
    "torch": torch_eager,
    "torch-compile": torch_compile,
    "tinygrad": tinygrad,
}
