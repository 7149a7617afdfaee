"""The relay in polling mode as a process, for tests that kill it: python -m tests.integration.polling_process DSN KAFKA PREFIX SLOT SHARDS."""

import asyncio
import sys

from streams.domain.topics import Topics
from streams.runtime import logs
from streams.runtime.lifecycle import run_stages
from tests.integration.polling_setup import PollingSetup


def main(dsn: str, bootstrap_servers: str, prefix: str, slot: str, shards: str) -> None:
    logs.configure("relay", "info")
    setup = PollingSetup(
        dsn=dsn,
        bootstrap_servers=bootstrap_servers,
        topics=Topics(prefix=prefix),
        slot=slot,
        shards=int(shards),
    )

    async def work() -> None:
        await run_stages([setup.polling()], start_patience_s=30, drain_s=15)

    asyncio.run(work())


if __name__ == "__main__":
    main(*sys.argv[1:])
