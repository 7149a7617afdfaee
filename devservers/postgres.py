"""A local PostgreSQL: loopback only, logical decoding on, durable as in production (fsync on)."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from devservers.databases import Databases
from devservers.errors import StartFailed
from devservers.localserver import LocalServer, run_tool
from devservers.places import copy_tree, give_to, publish, sync_tree, write_atomically
from devservers.postgres_install import PostgresInstallation
from devservers.processes import Account, spawn
from devservers.settings import DEV_POSTGRES
from devservers.sysv import remove_segment_of

ROLE = DATABASE = "mailstreams"
OPTIONS_FILE = "mailstreams.conf"
LOCALE = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"  # the one that is there
TEMPLATE_FORMAT = 2
INITDB_OPTIONS = ("--auth=trust", "--no-sync")  # synced as a whole before it is published


def template_directory(
    installation: PostgresInstallation, cache: Path, account: Account | None
) -> Path:
    """What initdb made, kept in the cache by version, source and user."""
    uid = os.geteuid() if account is None else account.uid
    name = f"{installation.source}-{installation.version}-{uid}-{TEMPLATE_FORMAT}"

    def build(building: Path, lock: int) -> None:
        building.mkdir(mode=0o700)
        give_to(building, account)
        run_initdb(installation, building, account, lock)
        with (building / "postgresql.conf").open("a") as file:
            file.write(f"\ninclude_if_exists '{OPTIONS_FILE}'\n")

    return publish(cache / "postgres-templates" / name, build)


def run_initdb(
    installation: PostgresInstallation, data: Path, account: Account | None, lock: int
) -> None:
    """Make a cluster in an empty directory; upper and lower case follow Unicode, the order bytes."""
    if installation.major >= 17:
        locale = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    else:
        locale = [f"--locale={LOCALE}"]
    initdb, postgres = (str(installation.programs / name) for name in ("initdb", "postgres"))
    creation = data.with_name(f"{data.name}.sql")
    creation.write_text(f"create database {DATABASE};\n")
    log = data.with_name(f"{data.name}.log")
    try:
        for command, read in (
            ([initdb, "-D", str(data), "-U", ROLE, "-E", "UTF8", *locale, *INITDB_OPTIONS], None),
            ([postgres, "--single", "-D", str(data), "postgres"], creation),
        ):
            tool = spawn(
                command,
                name=Path(command[0]).name,
                log_path=log,
                stdin_path=read,
                env=server_environment(),
                cwd=data,
                account=account,
                keep_open=(lock,),
            )
            run_tool(tool, log, "PostgreSQL's data could not be made")
    finally:
        log.unlink(missing_ok=True)
        creation.unlink(missing_ok=True)


def server_environment() -> dict[str, str]:
    """Ours without what would steer PostgreSQL behind our back."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return kept | {"LC_ALL": LOCALE, "TZ": "UTC"}


@dataclass(slots=True, kw_only=True)
class LocalPostgres(LocalServer, Databases):
    """A PostgreSQL of our own. Data survive stop, kill and start; so does the port."""

    stop_signal = signal.SIGINT  # fast shutdown: clients are cut off, a checkpoint is written
    installation: PostgresInstallation
    template: Path
    account: Account | None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def dsn(self) -> str:
        """For asyncpg and libpq alike."""
        return f"postgresql://{ROLE}@127.0.0.1:{self.port}/{DATABASE}"

    def launch(self) -> None:
        """Start the process; the data directory is made from the template if absent."""
        if not self.directory.exists():
            self._copy_template()
        self._refuse_other_version()
        remove_segment_of(self.directory)
        # A process id in there may have been given again; that none of ours lives, the lock says.
        (self.directory / "postmaster.pid").unlink(missing_ok=True)
        self._write_options()
        self.process = spawn(
            [self.installation.programs / "postgres", "-D", self.directory],
            name=self.name,
            log_path=self.log_path,
            env=server_environment(),
            cwd=self.directory,
            account=self.account,
            stop_signal=signal.SIGQUIT,  # at once; what was committed is recovered at the next start
            grace=5.0,
            keep_open=self.keep_open,
        )

    def is_ready(self) -> bool:
        """Whether the postmaster has said so in its pid file."""
        try:
            lines = (self.directory / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) > 7 and lines[7].strip() == "ready"

    def ports_in_use(self) -> tuple[int, ...]:
        """Every port that it listens on."""
        return (self.port,)

    def kill(self) -> None:
        """`kill -9` all of it, and wait until it is gone. Nothing happens if it is down."""
        LocalServer.kill(self)
        remove_segment_of(self.directory)

    def _refuse_other_version(self) -> None:
        made_by = int((self.directory / "PG_VERSION").read_text())
        if made_by != self.installation.major:
            raise StartFailed(
                f"{self.directory} was made by PostgreSQL {made_by} and PostgreSQL "
                f"{self.installation.major} was found: choose the other one by {DEV_POSTGRES}, "
                "or remove the directory."
            )

    def _copy_template(self) -> None:
        draft = self.directory.with_name(f"{self.directory.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        copy_tree(self.template, draft)
        if not self.disposable:
            sync_tree(draft)
        draft.rename(self.directory)

    def _write_options(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "wal_level": "logical",
            "max_wal_senders": "20",
            "max_replication_slots": "20",
            "dynamic_shared_memory_type": "mmap",  # leaves nothing in /dev/shm after kill -9
            "timezone": "UTC",
            "log_timezone": "UTC",
            "lc_messages": "C",
            **self.options,
        }
        quoted = {
            name: value.replace("\\", "\\\\").replace("'", "''") for name, value in settings.items()
        }
        text = "".join(f"{name} = '{value}'\n" for name, value in quoted.items())
        write_atomically(self.directory / OPTIONS_FILE, text, self.account)
