"""docs/glossary.md: it has the terms of document 004 §0.1, and the names in it exist in the code."""

from __future__ import annotations

import dataclasses
import importlib
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "glossary.md"

DOCUMENTED = ("halo", "pipeline stages", "fan-out", "SCoP", "UCC")
"""Document 004 §0.1."""
LAYERS = ("Frontend document", "Tiny IR", "IndexBook", "Poly-View", "Region", "Poly Core", "Plan")
"""Document 004 §1; the last of its layers, the GPU's, is not there yet."""


@dataclass(frozen=True)
class Term:
    name: str
    text: str

    @property
    def names(self) -> list[str]:
        """Its names in the code: what stands in code type after the last sentence."""
        return re.findall(r"`([^`]+)`", re.split(r"\.\s+(?=`)", self.text)[-1])


def terms() -> list[Term]:
    found = re.findall(
        r"^- \*\*(.+?)\*\*: (.*?)(?=^- |^## |\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    return [Term(name, " ".join(text.split())) for name, text in found]


@pytest.mark.spec("004-006", "004-007")
def test_the_terms_of_the_document_are_there_and_the_layers() -> None:
    assert {*DOCUMENTED, *LAYERS} <= {term.name for term in terms()}


def test_each_term_stands_once_and_every_line_of_the_list_is_one() -> None:
    names = [term.name.casefold() for term in terms()]
    assert len(names) == len(set(names))
    assert len(names) == len(re.findall(r"^- ", PAGE.read_text("utf-8"), re.MULTILINE))


@pytest.mark.spec("004-006")
@pytest.mark.parametrize("term", terms(), ids=lambda term: term.name)
def test_the_names_of_a_term_exist(term: Term) -> None:
    assert term.names, "an entry ends with its names in the code"
    for name in term.names:
        assert (ROOT / name).exists() if "/" in name else exists(name), name


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute or a field of what is in one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part) and part not in fields(found):
                return False
            found = getattr(found, part, None)
        return True
    return False


def fields(found: object) -> set[str]:
    """Of a dataclass, those without a default too, which are no attributes of the class."""
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        return set()
    return {field.name for field in dataclasses.fields(found)}


def test_a_name_that_is_not_there_is_noticed() -> None:
    assert exists("tinyc.ir.region.Region.lets") and exists("tinyc.index")
    assert not exists("tinyc.ir.region.Reigon") and not exists("tinyc.ir.region.Region.colour")
    assert not exists("tinyc.no.such.module")
