"""The relay as a process, for tests that kill it: python -m tests.integration.relay_process DSN KAFKA PREFIX SLOT."""

import asyncio
import sys

from streams.domain.topics import Topics
from streams.runtime import logs
from streams.runtime.lifecycle import run_stages
from tests.integration.relay_setup import Setup


def main(dsn: str, bootstrap_servers: str, prefix: str, slot: str) -> None:
    logs.configure("relay", "info")
    setup = Setup(
        dsn=dsn, bootstrap_servers=bootstrap_servers, topics=Topics(prefix=prefix), slot=slot
    )

    async def work() -> None:
        await run_stages([setup.relay()], start_patience_s=30, drain_s=15)

    asyncio.run(work())


if __name__ == "__main__":
    main(*sys.argv[1:])
