"""JSON and JSONC text in, strict JSON text out."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from .diagnostics import TinycError

MAX_NESTING = 100

#: strings, comments (a block comment may be unterminated) and brackets; all other text passes untouched
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?(?:\*/|\Z)|[\[\]{}]', re.DOTALL)


def parse_json(text: str) -> Any:
    """The value of a JSON or JSONC text (``//`` and ``/* */`` comments; nothing else is looser than JSON).

    Raises TinycError MalformedDocument for syntax errors, a key given twice, NaN and Infinity tokens, numbers
    beyond float64, and nesting deeper than 100.
    """
    stripped = _without_comments(text.removeprefix("\ufeff"))
    try:
        return json.loads(
            stripped,
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_float=_float,
        )
    except json.JSONDecodeError as error:
        raise _malformed(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise _malformed(str(error)) from None


def dumps(value: Any) -> str:
    """Strict JSON: ASCII, keys in the given order, infinities and NaN as the strings "inf", "-inf", "nan"."""
    if isinstance(value, dict) and isinstance(value.get("uops"), list):
        return _dump_document(value)
    return json.dumps(finite(value), indent=2, allow_nan=False) + "\n"


def check_nesting(value: Any) -> None:
    """Raises MalformedDocument for lists and objects nested more than 100 deep (a cycle is), without recursion."""
    level = [value]
    for _ in range(MAX_NESTING + 1):
        inner: dict[int, Any] = {}
        for each in level:
            if isinstance(each, dict):
                inner.update((id(item), item) for item in each.values() if isinstance(item, dict | list))
            elif isinstance(each, list):
                inner.update((id(item), item) for item in each if isinstance(item, dict | list))
        if not inner:
            return
        level = list(inner.values())
    raise _malformed(f"lists and objects are nested more than {MAX_NESTING} deep")


def finite(value: Any) -> Any:
    """``value`` with every non-finite float replaced by its string."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def _dump_document(document: dict[str, Any]) -> str:
    """One node per line, as people write Tiny documents."""
    parts = []
    for key, value in document.items():
        if key == "uops":
            lines = ",\n".join(f"    {json.dumps(finite(node), allow_nan=False)}" for node in value)
            parts.append(f'  "uops": [\n{lines}\n  ]')
        else:
            parts.append(f"  {json.dumps(key)}: {json.dumps(finite(value), allow_nan=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _without_comments(text: str) -> str:
    depth = 0

    def piece(match: re.Match[str]) -> str:
        nonlocal depth
        found = match.group()
        if found in "[{":
            depth += 1
            if depth > MAX_NESTING:
                raise _malformed(f"lists and objects are nested more than {MAX_NESTING} deep")
        elif found in "]}":
            depth -= 1
        elif found.startswith("/*") and (not found.endswith("*/") or len(found) < 4):
            raise _malformed("a comment /* is not closed")
        elif found.startswith("/"):
            return re.sub(r"[^\n]", " ", found)  # keeps the lines and columns of what follows
        return found

    return _PIECE.sub(piece, text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _malformed(f"the key {twice[:80]!r} is given twice in one object")
    return result


def _no_constant(token: str) -> Any:
    raise _malformed(f"{token} is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _malformed(f"the number {text[:40]} is beyond float64")
    return value


def _malformed(why: str) -> TinycError:
    suggestion = (
        'write strict JSON (comments // and /* */ are allowed; infinities are the strings "inf", "-inf")'
    )
    return TinycError("MalformedDocument", why, suggestion, {"layer": "document"})
