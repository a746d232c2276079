"""Every feature of the design documents is shown by a test, or a line says why not; ``docs/coverage.md`` is as new."""

from __future__ import annotations

import re

import pytest
from coverage_page import DOCUMENTS, PAGE, Shown, _of_file, features, markers, page


def test_the_list_of_features_is_whole() -> None:
    ids = [feature.id for feature in features()]
    assert len(ids) == len(set(ids))
    counts = {document: sum(id.startswith(f"{document}-") for id in ids) for document in DOCUMENTS}
    assert counts == {"000": 17, "001": 77, "002": 42, "003": 14, "004": 155, "I": 57}
    assert ids == sorted(
        ids, key=lambda id: (list(DOCUMENTS).index(id.partition("-")[0]), int(id.partition("-")[2]))
    )


def test_no_test_carries_an_unknown_feature() -> None:
    known = {feature.id for feature in features()}
    unknown = {each for each in markers() if each.feature not in known}
    assert not unknown


def test_every_feature_has_a_test_or_a_reason() -> None:
    carried = {each.feature for each in markers()}
    missing = [feature.id for feature in features() if feature.id not in carried and not feature.note]
    assert not missing, "mark a test, or say why not in docs/features.tsv"


def test_the_page_is_up_to_date(request: pytest.FixtureRequest) -> None:
    text = page(features(), markers())
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text, "run pytest --update-golden tests/test_coverage_page.py"


def test_markers_are_found_wherever_pytest_allows_them() -> None:
    source = """
import pytest, tinyc
pytestmark = [pytest.mark.slow, pytest.mark.spec("000-01")]
SPECS = [tinyc.spec("fp32", (3,))]

@pytest.mark.spec("000-02", "000-03")
@pytest.mark.spec("000-02")
def test_one(): ...

@pytest.mark.spec("000-04")
class TestGroup:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.spec("000-05"))])
    def test_two(self, x): ...
    def helper(self): ...

def helper(): ...
"""
    found = {(each.test, each.feature) for each in _of_file("test_x.py", source)}
    assert found == {
        *(("test_one", f"000-0{n}") for n in (1, 2, 3)),
        *(("test_two", f"000-0{n}") for n in (1, 4, 5)),
    }
    with pytest.raises(ValueError, match=r"test_x\.py:3"):
        list(_of_file("test_x.py", "import pytest\nX = '000-01'\n@pytest.mark.spec(X)\ndef test_x(): ...\n"))


def test_the_page_names_tests_and_notes() -> None:
    listed = features()
    first = listed[0].id
    text = page(listed, [Shown("ir/test_a.py", "test_b", first)])
    row = next(line for line in text.splitlines() if line.startswith(f"| {first} "))
    assert "[test_a.py](../tests/ir/test_a.py): `test_b`" in row
    assert len(re.findall(r"^\| (?:\d{3}|I)-\d", text, re.MULTILINE)) == len(listed)
    assert "**" not in text and "*declared future work by the document* |" in text
