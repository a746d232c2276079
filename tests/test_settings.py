"""The environment: every variable, good and bad values, and the table in docs/environment.md."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tinyc import TinycError
from tinyc.settings import VARIABLES, read_settings

DOC = Path(__file__).parent.parent / "docs" / "environment.md"


def test_nothing_set_gives_the_defaults() -> None:
    settings = read_settings({})
    assert settings.cache_dir == Path.home() / ".cache" / "tinyc"
    assert 1 <= settings.num_threads <= (os.cpu_count() or 1)
    assert (settings.rules, settings.debug, settings.color) == ((), False, True)


def test_empty_values_count_as_unset() -> None:
    assert read_settings({variable.name: "" for variable in VARIABLES}) == read_settings({})


def test_every_variable_is_read(tmp_path: Path) -> None:
    one, two = tmp_path / "one.egg", tmp_path / "folder"
    one.touch()
    two.mkdir()
    settings = read_settings(
        {
            "TINYC_CACHE_DIR": str(tmp_path),
            "TINYC_NUM_THREADS": "7",
            "TINYC_EXTRACT_SECONDS": "2.5",
            "TINYC_RULES": os.pathsep.join([str(one), "", str(two)]),
            "TINYC_DEBUG": "1",
            "NO_COLOR": "0",  # by convention any value at all
        }
    )
    assert settings.cache_dir == tmp_path
    assert settings.num_threads == 7
    assert settings.extract_seconds == 2.5
    assert settings.rules == (one, two)
    assert settings.debug
    assert not settings.color


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TINYC_CACHE_DIR", "relative/folder"),
        ("TINYC_CACHE_DIR", "~nobody-of-this-name/cache"),
        ("TINYC_NUM_THREADS", "0"),
        ("TINYC_NUM_THREADS", "-2"),
        ("TINYC_NUM_THREADS", "two"),
        ("TINYC_NUM_THREADS", "1.5"),
        ("TINYC_NUM_THREADS", "²"),
        ("TINYC_EXTRACT_SECONDS", "-1"),
        ("TINYC_EXTRACT_SECONDS", "nan"),
        ("TINYC_EXTRACT_SECONDS", "."),
        ("TINYC_EXTRACT_SECONDS", "1e3"),
        ("TINYC_EXTRACT_SECONDS", "٣"),
        ("TINYC_NUM_THREADS", "9" * 5000),
        ("TINYC_RULES", "/no/such/rules.egg"),
        ("TINYC_DEBUG", "yes"),
    ],
)
def test_a_bad_value_is_an_error_that_names_the_variable(name: str, value: str) -> None:
    with pytest.raises(TinycError) as caught:
        read_settings({name: value})
    assert caught.value.kind == "InvalidSetting"
    assert caught.value.at == {"variable": name}


def test_the_table_in_the_docs_is_the_table_in_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", DOC.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(variable.name, variable.default, variable.meaning) for variable in VARIABLES]
