"""The accept API with a pool of 2 as a process, for tests that end it: python -m tests.integration.api_process DSN."""

import asyncio
import sys

from streams.adapters.accept_store import PostgresAcceptStore, sessions
from streams.adapters.postgres import Database
from streams.api import Api, ApiSettings
from streams.runtime import logs
from streams.runtime.lifecycle import run_stages
from tests.conftest import SALT

TIMEOUT_S = 6.0


def main(dsn: str) -> None:
    logs.configure("api", "info")
    pool = Database(
        dsn, pool_size=2, timeout_s=TIMEOUT_S, name="api", server_settings=sessions(TIMEOUT_S)
    )
    stage = Api(ApiSettings(salt=SALT, connections=2), PostgresAcceptStore(pool))
    asyncio.run(run_stages([stage], start_patience_s=30, drain_s=30))


if __name__ == "__main__":
    main(*sys.argv[1:])
