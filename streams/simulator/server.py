"""The simulator as one HTTP server: SES v2, SNS, certificate, control API."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson
from aiohttp import web

from streams.simulator.assembly import Parts, assemble
from streams.simulator.ledger import Ledger
from streams.simulator.script_file import apply_script
from streams.simulator.settings import SimulatorSettings
from streams.simulator.sns_topic import Subscription, SubscriptionAttributes, Topic

logger = logging.getLogger(__name__)

_SHUTDOWN_S = 1.0


class Simulator:
    """`async with Simulator(settings) as simulator:` serves at `simulator.url` until it is left."""

    def __init__(self, settings: SimulatorSettings | None = None) -> None:
        self.settings = settings or SimulatorSettings()
        self._parts: Parts | None = None
        self._runner: web.AppRunner | None = None
        self._subscribers: dict[tuple[str, str], asyncio.Task[None]] = {}

    @property
    def url(self) -> str:
        """Where it listens, without a slash at the end."""
        if self._runner is None:
            raise RuntimeError("the simulator is not running")
        host, port = self._runner.addresses[0][:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def ledger(self) -> Ledger:
        return self._running.state.ledger

    async def __aenter__(self) -> Self:
        self._parts = parts = await assemble(self.settings, self._keep_subscribing)
        try:
            await self._start(parts)
        except BaseException:
            await self._close(parts)
            raise
        logger.info("simulator listens", extra={"action": "simulator_started", "url": self.url})
        return self

    async def _start(self, parts: Parts) -> None:
        await parts.deliveries.start()
        self._runner = web.AppRunner(
            parts.app, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_S
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, self.settings.host, self.settings.port).start()
        topic = parts.topics.get(self.settings.topic_arn)
        for endpoint in self.settings.subscribe:
            protocol = endpoint.partition(":")[0]
            self._keep_subscribing(topic, protocol, endpoint, SubscriptionAttributes())
        if self.settings.script_file is not None:
            apply_script(self.settings.script_file, parts.control.apply)
        if self.settings.ready_file is not None:
            write_ready_file(self.settings.ready_file, self.url)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close(self._running)
        logger.info("simulator has ended", extra={"action": "simulator_stopped"})

    async def _close(self, parts: Parts) -> None:
        for task in self._subscribers.values():
            task.cancel()
        await asyncio.gather(*self._subscribers.values(), return_exceptions=True)
        parts.state.answers.release()
        parts.events.schedule.stop()
        await parts.send_api.stop()
        if self._runner is not None:
            await self._runner.cleanup()
        try:
            await parts.deliveries.stop()
        finally:
            await parts.signer.close()
            self._runner = self._parts = None

    async def failure(self) -> None:
        """Return only by raising what ended a task of the simulator."""
        tasks = self._running.deliveries.workers
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    @property
    def _running(self) -> Parts:
        if self._parts is None:
            raise RuntimeError("the simulator is not running")
        return self._parts

    def _keep_subscribing(
        self, topic: Topic, protocol: str, endpoint: str, attributes: SubscriptionAttributes
    ) -> None:
        running = self._subscribers.get((topic.arn, endpoint))
        if running is not None and not running.done():
            return

        def ask() -> Subscription:
            return self._running.subscriptions.subscribe(topic, protocol, endpoint, attributes)

        asking = self._ask_until_settled(ask(), ask)
        task = asyncio.create_task(asking, name="subscribe-endpoint")
        self._subscribers[topic.arn, endpoint] = task

    async def _ask_until_settled(
        self, subscription: Subscription, ask: Callable[[], Subscription]
    ) -> None:
        """Ask until the endpoint confirms: it may not be there yet."""
        while not await _settled_within(subscription, self.settings.subscribe_interval_s):
            subscription = ask()
        logger.info("subscription is confirmed", extra={"action": "simulator_subscribed"})


async def run(settings: SimulatorSettings) -> None:
    """Serve until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stopped.set)
    try:
        async with Simulator(settings) as simulator:
            waits = [
                asyncio.ensure_future(stopped.wait()),
                asyncio.ensure_future(simulator.failure()),
            ]
            done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            for task in done:
                task.result()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
        if settings.ready_file is not None:
            settings.ready_file.unlink(missing_ok=True)


def write_ready_file(path: Path, url: str) -> None:
    """Whole or not at all."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    draft.write_bytes(orjson.dumps({"url": url}))
    draft.replace(path)


async def _settled_within(subscription: Subscription, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(subscription.settled.wait(), seconds)
    return subscription.settled.is_set()
