"""The cache of compiled code: what is damaged is made anew, what differs is not found, processes do not meet half an entry."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinyc
import tinyc.codegen.nvrtc as nvrtc
from tinyc.cache import ABANDONED, HEADER, Cache, key_of
from tinyc.cli import main
from tinyc.codegen.nvrtc import compile_cubin
from tinyc.settings import read_settings

KERNEL = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] *= 2.0f; }\n'
KEY = key_of("a", "b")


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "code", 10**6)


def entry(cache: Cache) -> Path:
    (found,) = [path for path in cache.folder.glob("??/*") if path.is_file()]
    return found


def test_what_is_kept_is_found_again(cache: Cache) -> None:
    assert cache.get(KEY) is None
    for content in (b"", b"first", bytes(range(256)) * 40):
        cache.put(KEY, content)
        assert cache.get(KEY) == content
    assert cache.contents().entries == 1
    assert cache.clear().entries == 1 and cache.get(KEY) is None


def test_keys_say_where_one_part_ends() -> None:
    keys = [key_of(*parts) for parts in (("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("c", "ab"), ())]
    assert len(set(keys)) == len(keys)
    assert key_of("é") == key_of("é".encode())


def test_every_flipped_bit_and_every_cut_is_noticed(cache: Cache) -> None:
    content = b"twelve bytes"
    cache.put(KEY, content)
    path = entry(cache)
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        assert cache.get(KEY) is None, bit
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert cache.get(KEY) is None, length
    path.write_bytes(whole + b"\0")
    assert cache.get(KEY) is None
    cache.put(KEY, content)
    assert cache.get(KEY) == content and path.read_bytes() == whole


def test_an_entry_under_another_name_is_none(cache: Cache) -> None:
    cache.put(KEY, b"content")
    other = key_of("other")
    target = cache.folder / other[:2] / other[2:]
    target.parent.mkdir(exist_ok=True)
    entry(cache).rename(target)
    assert cache.get(other) is None


def _file_for_folder(cache: Cache) -> None:
    cache.folder.parent.mkdir(exist_ok=True)
    cache.folder.write_text("no folder")


def _file_for_entries(cache: Cache) -> None:
    cache.folder.mkdir(mode=0o700)
    (cache.folder / KEY[:2]).write_text("no folder")


def _full_folder_for_entry(cache: Cache) -> None:
    (cache.folder / KEY[:2] / KEY[2:] / "inside").mkdir(parents=True)
    cache.folder.chmod(0o700)


def _writable_by_others(cache: Cache) -> None:
    cache.put(KEY, b"planted")
    cache.folder.chmod(0o777)


def _link_to_itself(cache: Cache) -> None:
    cache.folder.symlink_to(cache.folder)


@pytest.mark.parametrize(
    "spoil",
    [_file_for_folder, _file_for_entries, _full_folder_for_entry, _writable_by_others, _link_to_itself],
)
def test_a_folder_that_cannot_be_used_is_no_error(cache: Cache, spoil: Callable[[Cache], None]) -> None:
    spoil(cache)
    cache.put(KEY, b"content")
    assert cache.get(KEY) is None
    cache.trim()
    cache.contents()
    cache.clear()
    cubin = compile_cubin(KERNEL, cache=cache)
    assert cubin.image.startswith(b"\x7fELF")


def test_an_empty_folder_in_the_place_of_an_entry_goes(cache: Cache) -> None:
    (cache.folder / KEY[:2] / KEY[2:]).mkdir(parents=True)
    cache.folder.chmod(0o700)
    assert cache.get(KEY) is None
    cache.put(KEY, b"content")
    assert cache.get(KEY) == b"content"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_or_a_device_in_a_place_of_a_file_is_not_waited_for(cache: Cache) -> None:
    entry = cache.folder / KEY[:2] / KEY[2:]
    entry.parent.mkdir(parents=True)
    cache.folder.chmod(0o700)
    os.mkfifo(entry)
    os.mkfifo(cache.folder / "tally")
    assert cache.get(KEY) is None
    cache.put(KEY, b"content")
    assert cache.get(KEY) == b"content"
    entry.unlink()
    entry.symlink_to("/dev/zero")
    assert cache.get(KEY) is None


def test_a_full_disk_leaves_nothing_half_written(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("replace", "open"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            cache.put(KEY, b"content")
        assert cache.get(KEY) is None
        assert not [path for path in cache.folder.glob("??/*")]


def test_the_oldest_go_first_and_the_bound_holds(tmp_path: Path) -> None:
    size = 10_000
    cache = Cache(tmp_path / "code", 20 * (size + HEADER))
    keys = [key_of(str(number)) for number in range(200)]
    now = time.time()
    for number, key in enumerate(keys):
        cache.put(key, bytes(size))
        os.utime(cache.folder / key[:2] / key[2:], (now - 1000 + number,) * 2)
        cache.get(keys[0])  # used all the time, so it stays
        assert cache.contents().bytes <= cache.most_bytes * 17 // 16 + size + HEADER
    assert cache.get(keys[0]) is not None and cache.get(keys[-1]) is not None
    assert cache.get(keys[1]) is None
    cache.put(KEY, bytes(cache.most_bytes))
    assert cache.get(KEY) is None, "larger than all that may be kept"


def test_what_a_lost_writer_left_is_removed(cache: Cache) -> None:
    cache.put(KEY, b"content")
    left, fresh = (entry(cache).with_name(name) for name in (".left.tmp", ".fresh.tmp"))
    for path in (left, fresh):
        path.write_bytes(b"half")
    os.utime(left, (time.time() - ABANDONED - 10,) * 2)
    cache.trim()
    assert not left.exists() and fresh.exists() and cache.get(KEY) == b"content"


def test_processes_share_a_folder(cache: Cache) -> None:
    """Writers of the same keys, readers, and one that clears: each finds the right content or none."""
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from tinyc.cache import Cache, key_of
        cache, me = Cache(Path(sys.argv[1]), 40_000), int(sys.argv[2])
        for turn in range(300):
            number = (turn * 7 + me) % 11
            key, content = key_of(str(number)), bytes([number]) * (500 * number + 1)
            found = cache.get(key)
            assert found in (None, content), number
            cache.put(key, content)
            if me == 0 and turn % 50 == 0:
                cache.clear()
        """
    )
    command = [sys.executable, "-c", script, str(cache.folder)]
    running = [subprocess.Popen([*command, str(me)], stderr=subprocess.PIPE) for me in range(4)]
    for process in running:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said.decode()
    assert not list(cache.folder.glob("??/.*")), "no file is left half written"


def test_a_process_that_is_killed_leaves_no_half_entry(cache: Cache) -> None:
    script = textwrap.dedent(
        """
        import itertools, sys
        from pathlib import Path
        from tinyc.cache import Cache, key_of
        cache = Cache(Path(sys.argv[1]), 10**9)
        print("ready", flush=True)
        for number in itertools.count():
            cache.put(key_of(str(number % 7)), bytes([number % 7]) * 300_000)
        """
    )
    for wait in (0.02, 0.05, 0.11):
        command = [sys.executable, "-c", script, str(cache.folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline()
            time.sleep(wait)
            process.kill()
        found = [cache.get(key_of(str(number))) for number in range(7)]
        assert any(found)
        assert all(each in (None, bytes([number]) * 300_000) for number, each in enumerate(found))
        whole = [path for path in cache.folder.glob("??/*") if path.suffix != ".tmp"]
        assert len(whole) == sum(each is not None for each in found)


def test_a_limit_on_the_size_of_files_is_no_error(cache: Cache) -> None:
    resource = pytest.importorskip("resource")
    script = textwrap.dedent(
        """
        import resource, sys
        from pathlib import Path
        from tinyc.cache import Cache, key_of
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        cache = Cache(Path(sys.argv[1]), 10**9)
        for number in (10, 5000, 20):
            cache.put(key_of(str(number)), bytes(number))
            print(cache.get(key_of(str(number))) is not None)
        """
    )
    assert resource.RLIM_INFINITY
    command = [sys.executable, "-c", script, str(cache.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["True", "False", "True"], done.stderr
    assert len([path for path in cache.folder.glob("??/*")]) == 2


# ---- what NVRTC makes -----------------------------------------------------------------------------------------------


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The architectures for which NVRTC was asked; nothing is remembered in this process."""
    asked: list[str] = []
    compiled = nvrtc._compiled

    def counted(source: str, arch: str, options: tuple[str, ...]) -> nvrtc.Cubin:
        asked.append(arch)
        return compiled(source, arch, options)

    monkeypatch.setattr(nvrtc, "_compiled", counted)
    monkeypatch.setattr(nvrtc, "compile_cubin", compile_cubin.__wrapped__)
    return asked


def test_a_cubin_is_compiled_once(cache: Cache, compilations: list[str]) -> None:
    first = nvrtc.compile_cubin(KERNEL, cache=cache)
    assert nvrtc.compile_cubin(KERNEL, cache=cache) == first and len(compilations) == 1
    assert nvrtc.compile_cubin(KERNEL) == first, "and is the same without a cache"


def test_whatever_it_follows_from_is_in_its_key(
    cache: Cache, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[Callable[[], object]] = [
        lambda: nvrtc.compile_cubin(KERNEL, cache=cache),
        lambda: nvrtc.compile_cubin(KERNEL + "\n", cache=cache),
        lambda: nvrtc.compile_cubin(KERNEL, "sm_86", cache=cache),
        lambda: nvrtc.compile_cubin(KERNEL, options=("--use_fast_math",), cache=cache),
    ]
    for number, change in enumerate(changes, 1):
        change()
        assert len(compilations) == number
    monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: "99.0")
    changes[0]()
    assert len(compilations) == len(changes) + 1


def test_a_damaged_cubin_is_compiled_again(cache: Cache, compilations: list[str]) -> None:
    wanted = nvrtc.compile_cubin(KERNEL, cache=cache)
    path = entry(cache)
    whole, generator = path.read_bytes(), random.Random(5)
    for _ in range(12):
        damaged = bytearray(whole)
        for _ in range(generator.randint(1, 5)):
            damaged[generator.randrange(len(damaged))] ^= 1 << generator.randrange(8)
        path.write_bytes(damaged[: generator.choice((len(damaged), generator.randrange(len(damaged))))])
        before = len(compilations)
        assert nvrtc.compile_cubin(KERNEL, cache=cache) == wanted and len(compilations) == before + 1
        assert path.read_bytes() == whole, "healed"
    for content in (b"", b"{}\n", b'{"ptx": 1}\n', b'{"ptx": "", "usage": [{"a": 1}]}\n', b"\xff\n", b"[]\n"):
        cache.put(key_of("cubin", nvrtc.nvrtc_version(), "sm_80", *nvrtc.OPTIONS, KERNEL), content)
        assert nvrtc.compile_cubin(KERNEL, cache=cache) == wanted, "whole, but nothing that this tinyc wrote"


def test_programs_keep_what_nvrtc_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    monkeypatch.setattr("tinyc.runtime.cuda.program.compile_cubin", nvrtc.compile_cubin)
    monkeypatch.setenv("TINYC_CACHE_DIR", str(tmp_path))
    program = tinyc.trace(lambda a: a * 3.0, tinyc.spec("fp32", (5,)))
    given = np.arange(5, dtype=np.float32)
    for _ in range(2):
        (got,) = tinyc.optimize_and_compile(program, "sm80").emulate(given).outputs
        assert np.array_equal(got, given * 3)
        assert len(compilations) == 1
    monkeypatch.setenv("TINYC_CACHE", "off")
    tinyc.optimize_and_compile(program, "sm80").emulate(given)
    assert len(compilations) == 2, "switched off"


def test_the_command_says_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TINYC_CACHE_DIR", str(tmp_path))

    def said(*options: str) -> dict[str, Any]:
        assert main(["cache", "--json", *options]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    assert said()["entries"] == 0
    cache = read_settings().cache
    assert cache is not None
    for number in range(3):
        cache.put(key_of(str(number)), bytes(1000))
    assert said() == {
        "version": 1,
        "folder": str(tmp_path / "compiled"),
        "keeps": "code",
        "most_bytes": 1024 * 10**6,
        "entries": 3,
        "bytes": 3 * (1000 + HEADER),
        "cleared": False,
    }
    assert main(["cache"]) == 0 and "3 entries" in capsys.readouterr().out
    cache.folder.chmod(0o777)
    assert main(["cache"]) == 0 and "not used" in capsys.readouterr().out
    assert said("--clear")["entries"] == 3 and said()["entries"] == 0
    monkeypatch.setenv("TINYC_CACHE", "off")
    assert said()["keeps"] == "off" and main(["cache", "--clear"]) == 0
