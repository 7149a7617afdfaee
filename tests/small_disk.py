"""A disk that PostgreSQL can fill up."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from devservers.places import postgres_account

MB: Final = 1024 * 1024


@contextmanager
def small_disk() -> Iterator[Path]:
    """A file system of 64 MB whose directory "tablespace" PostgreSQL may use; skips where none may be mounted."""
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or mount is None or unmount is None:
        pytest.skip("only root can mount a small file system")
    directory = Path(tempfile.mkdtemp(prefix="small-disk-", dir="/tmp"))
    command = [mount, "-t", "tmpfs", "-o", "size=64m,mode=0755", "tmpfs", str(directory)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        directory.rmdir()
        pytest.skip(f"no file system may be mounted here: {mounted.stderr.strip()}")
    try:
        data = directory / "tablespace"
        data.mkdir(mode=0o700)
        if (account := postgres_account()) is not None:
            os.chown(data, account.uid, account.gid)
        yield directory
    finally:
        subprocess.run([unmount, "-l", str(directory)], check=True)
        directory.rmdir()


def fill(disk: Path) -> None:
    """A file takes all the room that is left."""
    with (disk / "ballast").open("wb", buffering=0) as ballast:
        try:
            while ballast.write(b"\0" * MB):
                pass
        except OSError:
            return


def make_room(disk: Path) -> None:
    """The room is there again."""
    (disk / "ballast").unlink(missing_ok=True)
