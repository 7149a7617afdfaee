"""Credentials as botocore finds them: environment, files, profiles, roles, web identity, container, instance.

botocore reads them in a thread, since its providers ask files, programs and servers; no event loop ever waits for one.
"""

import asyncio
import logging
import threading
import time
from contextlib import suppress
from typing import Final

import botocore.session
from botocore.credentials import Credentials, ReadOnlyCredentials, RefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError, CredentialRetrievalError

log = logging.getLogger(__name__)

# botocore renews what expires 15 minutes ahead of it, whenever it is asked.
REREAD_S: Final = 60.0
REREAD_AFTER_FAILURE_S: Final = 10.0
# The first call waits so long, which leaves it most of its lease.
LONGEST_WAIT_S: Final = 5.0


class AwsCredentials:
    """What was read last is used until AWS refuses it, and read again ahead of its expiry, while calls go on."""

    def __init__(self) -> None:
        self.trouble = ""
        self._source: Credentials | None = None
        self._frozen: ReadOnlyCredentials | None = None
        self._reading: asyncio.Future[None] | None = None
        self._reread_at = 0.0

    async def get(self) -> ReadOnlyCredentials | None:
        """None if there are none now; `trouble` says why. Waits at most LONGEST_WAIT_S, and only for the first ones."""
        if self._reading is None and time.monotonic() >= self._reread_at:
            self._read()
        if self._frozen is None and self._reading is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_WAIT_S):
                    await asyncio.shield(self._reading)
        if self._frozen is None and self._reading is not None:
            self.trouble = "where they come from does not answer"
        return self._frozen

    def forget(self) -> None:
        """AWS refused them: they are looked up anew."""
        self._source = self._frozen = self._reading = None
        self._reread_at = 0.0

    def _read(self) -> None:
        loop = asyncio.get_running_loop()
        reading: asyncio.Future[None] = loop.create_future()
        self._reading, source = reading, self._source

        def read() -> None:
            found: tuple[Credentials, ReadOnlyCredentials] | str
            try:
                found = _found(source)
            except Exception as error:  # noqa: BLE001 whatever a provider raises: told, and tried again
                found = _told(error)
            with suppress(RuntimeError):  # the loop ended meanwhile
                loop.call_soon_threadsafe(self._settle, reading, found)

        # A daemon: a provider that hangs holds up no exit.
        threading.Thread(target=read, name="aws-credentials", daemon=True).start()

    def _settle(
        self, reading: asyncio.Future[None], found: tuple[Credentials, ReadOnlyCredentials] | str
    ) -> None:
        if not reading.done():
            reading.set_result(None)
        if reading is not self._reading:
            return  # forgotten meanwhile
        self._reading = None
        now = time.monotonic()
        if isinstance(found, str):
            self.trouble = found
            self._reread_at = now + (REREAD_AFTER_FAILURE_S if self._frozen else 0.0)
            log.warning(
                "AWS credentials could not be read, the last ones are used as long as AWS takes them",
                extra={"action": "ses.credentials_failed", "error": found},
            )
            return
        self.trouble = ""
        self._source, self._frozen = found
        expires = isinstance(self._source, RefreshableCredentials)
        self._reread_at = now + REREAD_S if expires else float("inf")


def _found(source: Credentials | None) -> tuple[Credentials, ReadOnlyCredentials]:
    source = source or botocore.session.Session().get_credentials()
    if source is None:
        raise LookupError("none are set")
    return source, source.get_frozen_credentials()


def _told(error: Exception) -> str:
    """What is wrong; not what a program printed that was asked for credentials."""
    if isinstance(error, ClientError):
        return f"the role is refused with {error.response.get('Error', {}).get('Code', 'unknown')}"
    if isinstance(error, LookupError) and error.args == ("none are set",):
        return "none are set"
    if isinstance(error, BotoCoreError) and not isinstance(error, CredentialRetrievalError):
        return f"{type(error).__name__}: {error}"
    return type(error).__name__
