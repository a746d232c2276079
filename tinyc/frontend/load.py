"""``load``: a path, a text or a parsed document becomes a Program. What it is, its content says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tinyc.ir.diagnostics import TinycError, show
from tinyc.ir.document import parse_json, program_from_document
from tinyc.ir.tiny import Program

from .frontend_json import load_frontend

MAX_BYTES = 256 << 20


def load(source: str | os.PathLike[str] | dict[str, Any]) -> Program:
    """The verified Program of a Frontend document (it has ``graph``) or a Tiny document (it has ``uops``).

    ``source``: a path, the parsed document, or its text (a ``str`` whose first character is ``{`` or that begins
    with a comment). JSON and JSONC are read. Raises TinycError: FileUnreadable for a file that is missing, not
    UTF-8 or larger than 256 MiB, MalformedDocument, and what verification finds.
    """
    return program_of(read_document(source), source)


def read_document(source: str | os.PathLike[str] | dict[str, Any]) -> Any:
    """``source`` of :func:`load`, parsed but not looked at."""
    if isinstance(source, dict):
        return source
    if isinstance(source, str) and _is_text(source):
        return parse_json(source)
    if not isinstance(source, str | os.PathLike):
        raise _unknown(f"{show(source)} is neither a path nor a document")
    with naming(source):
        return parse_json(_read(os.fspath(source)))


def program_of(document: object, source: object) -> Program:
    """The Program of what :func:`read_document` found at ``source``."""
    with naming(source):
        return _from_document(document)


ONLY_SHOWN = frozenset({"indexbook", "poly_view", "analysis", "exec", "llvm", "gpu", "cu"})
"""The stages from whose dumps nothing goes on."""


@contextmanager
def naming(source: object) -> Iterator[None]:
    """Errors say in which file they are, where ``source`` is a path."""
    try:
        yield
    except TinycError as error:
        if not isinstance(source, str | os.PathLike) or (isinstance(source, str) and _is_text(source)):
            raise
        at = {"file": os.fspath(source), **error.at}
        raise TinycError(error.kind, error.why, error.suggestion, at, **error.details) from None


def _is_text(source: str) -> bool:
    """A document's text begins with ``{`` or a comment; a path may begin with ``//`` too, but holds no brace."""
    return source.lstrip("\ufeff \t\r\n").startswith(("{", "//", "/*")) and "{" in source


def _read(path: str) -> str:
    def failure(why: str, suggestion: str) -> TinycError:
        return TinycError("FileUnreadable", f"{show(path)}: {why}", suggestion, {"file": path})

    try:
        file = Path(path)
        if file.is_dir():
            raise failure("is a folder", "name a file")
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise failure(
                f"{size} bytes, more than {MAX_BYTES}", "give a smaller document; weights are inputs"
            )
        return file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise failure(f"not UTF-8 at byte {error.start}", "save the document as UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise failure(reason, "give the path of a Frontend JSON or Tiny JSON file") from None


def _from_document(document: object) -> Program:
    if not isinstance(document, dict):
        raise _unknown(f"the document is {show(document)}, not an object")
    inner = next(iter(document.values())) if document.keys() in ({"tiny"}, {"frontend"}) else document
    kinds = [key for key in ("graph", "uops") if isinstance(inner, dict) and key in inner]
    if kinds == ["graph"]:
        return load_frontend(inner)
    if kinds == ["uops"]:
        return program_from_document(inner)
    if isinstance(inner, dict) and inner.keys() & {"region", "plan"}:
        raise TinycError(
            "MalformedDocument",
            "the document is a dump of Regions or Plans, which come after a program",
            "give it to optimize_and_compile, which goes on from there",
            {"layer": "frontend"},
        )
    if isinstance(inner, dict) and (shown := sorted(inner.keys() & ONLY_SHOWN)):
        raise TinycError(
            "MalformedDocument",
            f"the document is a dump of the stage {shown[0]}, which is only to be read",
            "go on from a dump of the stages frontend, tiny, region or plan",
            {"layer": "frontend"},
        )
    raise _unknown(f"the document has {'both' if kinds else 'neither of'} 'graph' and 'uops'")


def _unknown(why: str) -> TinycError:
    return TinycError(
        "MalformedDocument",
        why,
        "give a Frontend document {signature, tensors, graph} or a Tiny document {uops, signature?}",
        {"layer": "frontend"},
    )
