"""A real PgBouncer before the tests' PostgreSQL, from the system's packages."""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from devservers.places import give_to, postgres_account
from devservers.ports import Ports
from devservers.processes import spawn

_INSTALL_S = 120
# The settings of our sessions that it may not know; behind it they come with each transaction.
_IGNORED = "extra_float_digits"


@cache
def program() -> str:
    """Where it is; installed by apt-get where root may. Skips the test where there is none."""
    if (found := _found()) is not None:
        return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        lock = Path(tempfile.gettempdir()) / "mailstreams-apt.lock"
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _found() is None:
                command = ["apt-get", "install", "-y", "--no-install-recommends", "pgbouncer"]
                environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
                try:
                    subprocess.run(
                        command,
                        env=environment,
                        capture_output=True,
                        timeout=_INSTALL_S,
                        check=True,
                    )
                except (subprocess.SubprocessError, OSError):
                    pytest.skip("pgbouncer: apt-get cannot install it here")
        if (found := _found()) is not None:
            return found
    pytest.skip("pgbouncer is not installed, and only root may install it")


def _found() -> str | None:
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def knows_prepared_statements() -> bool:
    """Whether it has max_prepared_statements, which came with 1.21."""
    told = subprocess.run([program(), "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"(\d+)\.(\d+)", told.stdout)
    return version is not None and (int(version[1]), int(version[2])) >= (1, 21)


@contextmanager
def pgbouncer(
    dsn: str,
    directory: Path,
    *,
    mode: str = "transaction",
    max_prepared_statements: int | None = None,
    servers: int = 10,
    user: str | None = None,
) -> Iterator[str]:
    """The URL of the same database through it, as this user; so many sessions of PostgreSQL at most."""
    at = urlsplit(dsn)
    account = postgres_account()
    directory.mkdir(parents=True, exist_ok=True)
    ports = Ports(directory / "ports")
    port = ports.claim(server="pgbouncer")
    lines = [
        "[databases]",
        f"* = host={at.hostname} port={at.port} user={user or at.username}",
        "[pgbouncer]",
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any",
        f"pool_mode = {mode}\ndefault_pool_size = {servers}\nmax_client_conn = 500",
        f"ignore_startup_parameters = {_IGNORED}",
    ]
    if max_prepared_statements is not None:
        lines.append(f"max_prepared_statements = {max_prepared_statements}")
    # Where the account that it runs as may go.
    with tempfile.TemporaryDirectory(prefix="pgbouncer-") as place:
        configuration = Path(place) / "pgbouncer.ini"
        configuration.write_text("\n".join(lines) + "\n")
        give_to(Path(place), account)
        configuration.chmod(0o644)
        url = f"postgresql://{at.username}@127.0.0.1:{port}{at.path}"
        with spawn(
            [program(), str(configuration)],
            name="pgbouncer",
            log_path=directory / "pgbouncer.log",
            account=account,
        ):
            _wait_for(url)
            yield url
    ports.release()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
