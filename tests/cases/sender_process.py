"""A sender as a process of its own, whose calls go to a fake SES: python -m tests.cases.sender_process GATE [SERVER ...]."""

import asyncio
import sys
from collections.abc import Sequence

from streams import wiring
from tests.cases.ses_network import Route, installed, routed


async def work(gate: int, servers: Sequence[str]) -> None:
    async def port_for_call() -> int | None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate)
        line = await reader.readline()
        writer.close()
        return int(line) or None

    with (
        installed(asyncio.get_running_loop()),
        routed(Route(port_for_call=port_for_call, servers=set(servers))),
    ):
        await wiring.run(("sender",))


if __name__ == "__main__":
    asyncio.run(work(int(sys.argv[1]), sys.argv[2:]))
