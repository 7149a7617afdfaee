"""The crash harness and its process of TCP links: orders that meet."""

import asyncio
from pathlib import Path

from crash.control import Proxies
from devservers.ports import Ports

LINKS = ("postgres", "kafka", "ses")


async def test_orders_that_meet_are_each_answered(tmp_path: Path) -> None:
    ports = Ports(tmp_path / "ports")
    proxies = Proxies(tmp_path)
    await proxies.start()
    try:
        for name in LINKS:
            await proxies.link(name, ports.claim(), [ports.claim()])
        cuts = [proxies.cut(name, "refuse", seconds=0.01, share=1.0) for name in LINKS * 5]
        await asyncio.wait_for(asyncio.gather(*cuts, proxies.heal()), 20)
    finally:
        await proxies.stop()
        ports.release()
