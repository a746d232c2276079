"""What users install: the source archive and the wheel hold every source and rule, as real files."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: name inside the package -> the folder at the top that it is a link to
LINKED = {"extract": "extract", "codegen": "codegen", "rules": "rules"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source archive, and the wheel that is built from it alone."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


def wanted() -> set[str]:
    """Every file of the package in this tree, under the name it has once installed."""
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tinyc").rglob("*.py")}
    for inside, top in LINKED.items():
        for pattern in ("*.py", "*.egg"):
            files |= {
                f"tinyc/{inside}/{path.relative_to(ROOT / top).as_posix()}"
                for path in (ROOT / top).rglob(pattern)
            }
    return files | {"tinyc/py.typed"}


def test_both_archives_hold_every_source_and_rule(built: tuple[Path, Path]) -> None:
    source, wheel = built
    assert any(name.endswith(".egg") for name in wanted())
    with tarfile.open(source) as archive:
        assert not [member.name for member in archive if member.issym() or member.islnk()]
        in_source = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    with zipfile.ZipFile(wheel) as packed:
        in_wheel = set(packed.namelist())
    assert wanted() - in_source == set()
    assert wanted() - in_wheel == set()
    generic = {name.split("/")[0] for name in in_wheel if ".dist-info" not in name}
    assert generic == {"tinyc"}, "nothing may be installed beside tinyc"


def test_the_installed_wheel_finds_its_rules(built: tuple[Path, Path], tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    python = next((tmp_path / "env").glob("*/python"))
    site = next((tmp_path / "env").rglob("site-packages"))
    with zipfile.ZipFile(built[1]) as packed:
        packed.extractall(site)
    # the dependencies come from the environment that runs the tests, tinyc itself from the wheel
    (site / "dependencies.pth").write_text(next(path for path in sys.path if path.endswith("site-packages")))
    code = "import tinyc.cli; print(tinyc.__file__); raise SystemExit(tinyc.cli.main(['rules', 'list']))"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert str(site) in done.stdout.splitlines()[0]
    assert len(done.stdout.splitlines()) > 60
