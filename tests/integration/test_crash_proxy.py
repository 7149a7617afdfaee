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


async def test_what_comes_late_arrives_after_newer_connections_and_its_own_end(
    tmp_path: Path,
) -> None:
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            heard.append(data)
            writer.write(data)
        writer.close()

    ports = Ports(tmp_path / "ports")
    port = ports.claim()
    proxies = Proxies(tmp_path)
    await proxies.start()
    try:
        async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
            await proxies.link("kafka", port, [server.sockets[0].getsockname()[1]])
            reader, old = await asyncio.open_connection("127.0.0.1", port)
            old.write(b"first")
            assert await reader.read(100) == b"first"
            await proxies.cut("kafka", "late", seconds=0.5, share=1.0)
            await asyncio.sleep(0.05)
            old.write(b"old")
            await old.drain()
            await asyncio.sleep(0.05)
            old.close()
            reader, new = await asyncio.open_connection("127.0.0.1", port)
            new.write(b"new")
            assert await reader.read(100) == b"new"
            async with asyncio.timeout(10):
                while len(heard) < 3:  # noqa: ASYNC110 the server hears it some time
                    await asyncio.sleep(0.01)
            new.close()
    finally:
        await proxies.stop()
        ports.release()
    assert heard == [b"first", b"new", b"old"]
