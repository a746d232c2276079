"""A folder of results that are dear to make again, found by what they were made from.

An entry is one file, named by its key: the SHA-256 of everything that its content follows from (:func:`key_of`). It is
written beside its place and renamed, so that nobody sees half of one, and begins with its length and a digest: what does not fit
them is no entry, and is made and written anew. Nothing here raises where the disk does: a cache that cannot be used is slower,
not wrong. Several processes may share a folder. Contents are bytes that their readers check; nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

FORMAT = b"tinyc cache 1\n"
"""The first bytes of an entry; changes with the layout of one."""

DIGEST = 32
HEADER = len(FORMAT) + 8 + DIGEST

ABANDONED = 3600.0
"""Seconds after which a file that is still being written has lost its writer."""


def key_of(*parts: str | bytes) -> str:
    """64 hexadecimal digits for ``parts``; other parts, or the same cut elsewhere, give another key."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


@dataclass(frozen=True)
class Contents:
    """What a cache holds: its entries, and the bytes of their files."""

    entries: int
    bytes: int


@dataclass(frozen=True)
class Cache:
    """Entries below ``folder``, which is made when the first is kept; at most ``most_bytes`` of them, give or take what a
    sixteenth of that holds. The ones that were read longest ago go first."""

    folder: Path
    most_bytes: int

    def get(self, key: str) -> bytes | None:
        """The content that was kept under ``key``; None where there is none, or it is damaged."""
        path = self._path(key)
        try:
            if not self._trusted():
                return None
            with _regular(path, os.O_RDONLY) as file:
                content = file.read()
            with contextlib.suppress(OSError):
                os.utime(path)  # read just now: the last to go
        except OSError:
            return None
        body = content[HEADER:]
        return body if content[:HEADER] == _header(key, body) else None

    def put(self, key: str, content: bytes) -> None:
        """Keeps ``content`` under ``key``, in place of what was there."""
        size = HEADER + len(content)
        if size > self.most_bytes:
            return
        path = self._path(key)
        temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            if not self._trusted():
                return
            if path.is_dir():  # whatever it is, it is in the way of the entry
                path.rmdir()
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(_header(key, content) + content)
            os.replace(temporary, path)
            self._count(size)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def contents(self) -> Contents:
        """How much there is now."""
        sizes = [size for _, _, size in self._files() if size]
        return Contents(len(sizes), sum(sizes))

    def usable(self) -> bool:
        """Whether entries can be kept: nobody else can write to the folder, or there is none yet."""
        try:
            return self._trusted() and os.access(self.folder, os.R_OK | os.W_OK | os.X_OK)
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def clear(self) -> Contents:
        """Removes every entry; gives what there was."""
        before = self.contents()
        for path, _, _ in self._files():
            with contextlib.suppress(OSError):
                path.unlink()
        return before

    def trim(self) -> None:
        """Removes what was read longest ago until three quarters of ``most_bytes`` are left, where there is more than
        that allows, and what a writer left half written."""
        found = sorted(self._files(), key=lambda file: file[1])
        total = sum(size for _, _, size in found)
        room = self.most_bytes if total <= self.most_bytes else self.most_bytes * 3 // 4
        for path, used, size in found:
            lost = path.suffix == ".tmp" and time.time() - used > ABANDONED
            if lost or (total > room and path.suffix != ".tmp"):
                with contextlib.suppress(OSError):
                    path.unlink()
                    total -= size

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]

    def _trusted(self) -> bool:
        """Whether nobody else can write here: what is read is executed."""
        if not hasattr(os, "getuid"):
            return True
        found = self.folder.stat()
        return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def _count(self, size: int) -> None:
        """Trims now and then: each time that processes together have written a sixteenth of ``most_bytes``. What they
        have, a file of the folder says by its length, which appending to changes safely."""
        share = max(self.most_bytes // 16, 1)
        tally = self.folder / "tally"
        with _regular(tally, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as file:
            file.write(b"." * max(size * 1024 // share, 1))
            written = file.tell()
        if written >= 1024:
            tally.unlink(missing_ok=True)
            self.trim()

    def _files(self) -> Iterator[tuple[Path, float, int]]:
        """Path, when it was last read or written, and bytes of each file in the folders of entries."""
        try:
            folders = [each for each in os.scandir(self.folder) if len(each.name) == 2]
        except OSError:
            return
        for folder in folders:
            with contextlib.suppress(OSError):
                for each in os.scandir(folder.path):
                    with contextlib.suppress(OSError):
                        found = each.stat(follow_symlinks=False)
                        if stat.S_ISREG(found.st_mode):
                            yield Path(each.path), found.st_mtime, found.st_size


def _regular(path: Path, flags: int) -> BinaryIO:
    """Opens a file, and neither waits at a pipe nor reads a device, which have no end. Raises OSError."""
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "ab" if flags & os.O_APPEND else "rb")
    os.close(descriptor)
    raise OSError(f"{path} is no file")


def _header(key: str, content: bytes) -> bytes:
    digest = hashlib.sha256(key.encode() + content).digest()
    return FORMAT + len(content).to_bytes(8, "little") + digest
