"""What the doctor learns on a replication connection: that there is one, whose it is, and how long a dead reader holds the slot."""

from typing import Any, Final

import psycopg

from streams.adapters.replication import SERVER_TIMEOUT_S
from streams.domain.diagnosis_replication import Place, Replication
from streams.domain.errors import Misconfigured, Unavailable

_ANSWER_S: Final = 5
_REFUSED: Final = (
    "authentication failed",
    "no pg_hba.conf entry",
    "permission denied",
    "replication role",
    "REPLICATION attribute",
    "does not exist",
)
_POOLER: Final = ("unsupported startup parameter", "replication connections")


class Pooled(Misconfigured):
    """Something that is no PostgreSQL refuses replication connections."""


async def look(dsn: str, expected: Place | None) -> Replication:
    """Opens a replication connection and asks who answers; reads no stream."""
    try:
        connection = await psycopg.AsyncConnection.connect(
            dsn,
            autocommit=True,
            application_name="mailstreams doctor",
            prepare_threshold=None,
            connect_timeout=_ANSWER_S,
            **_options(dsn),
        )
    except psycopg.ProgrammingError:
        # psycopg quotes the URL, which may have a password.
        raise Misconfigured("the URL of the replication connection cannot be read") from None
    except psycopg.Error as error:
        raise _told(error) from error
    try:
        row: Any = await (
            await connection.execute(
                "SELECT pg_backend_pid(), current_database(), pg_postmaster_start_time(), "
                "extract(epoch FROM current_setting('wal_sender_timeout')::interval)"
            )
        ).fetchone()
        pid, found, began, timeout = row
        return Replication(
            pooled=pid != connection.pgconn.backend_pid,
            place=Place(database=str(found), started=began),
            expected=expected,
            timeout_s=float(timeout),
            expected_timeout_s=float(SERVER_TIMEOUT_S),
        )
    except psycopg.Error as error:
        raise _told(error) from error
    finally:
        await connection.close()


def _options(dsn: str) -> dict[str, Any]:
    """The same as the relay's connection asks for."""
    mine = f"-c wal_sender_timeout={SERVER_TIMEOUT_S}s -c statement_timeout={_ANSWER_S}s"
    given = psycopg.conninfo.conninfo_to_dict(dsn).get("options")
    return {"replication": "database", "options": f"{given} {mine}" if given else mine}


def _told(error: psycopg.Error) -> Misconfigured | Unavailable:
    text = " ".join(str(error).split())
    if any(words in text for words in _POOLER):
        return Pooled(f"the replication connection is refused: {text}")
    if any(words in text for words in _REFUSED):
        return Misconfigured(f"PostgreSQL refuses the replication connection: {text}")
    return Unavailable(f"PostgreSQL (replication): {text}")
