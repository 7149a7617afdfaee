"""Health, readiness and metrics of a process over HTTP."""

import ssl

import orjson
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from streams.domain.errors import Misconfigured
from streams.runtime.lifecycle import Health


def health_routes(healths: list[Health]) -> list[web.RouteDef]:
    """GET /health/live, /health/ready and /metrics for the stages of this process."""

    async def live(_: web.Request) -> web.Response:
        stuck = {
            f"{h.stage}.{duty}": round(age, 1) for h in healths for duty, age in h.stuck().items()
        }
        return _json({"live": not stuck, "stuck_for_s": stuck}, ok=not stuck)

    async def ready(_: web.Request) -> web.Response:
        missing = {f"{h.stage}.{what}": why for h in healths for what, why in h.missing().items()}
        return _json({"ready": not missing, "missing": missing}, ok=not missing)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return [
        web.get("/health/live", live),
        web.get("/health/ready", ready),
        web.get("/metrics", metrics),
    ]


def _json(body: dict[str, object], *, ok: bool) -> web.Response:
    return web.Response(
        body=orjson.dumps(body), status=200 if ok else 503, content_type="application/json"
    )


class HttpServer:
    """An aiohttp application on one address; start() raises Misconfigured when the port is taken.

    With tls it speaks HTTPS. lingering_s: how long the rest of a body is read that nobody wants any more.
    """

    def __init__(
        self,
        app: web.Application,
        *,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        lingering_s: float = 10.0,
    ) -> None:
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, lingering_time=lingering_s
        )
        self._host = host
        self._port = port
        self._tls = tls

    async def start(self) -> None:
        await self._runner.setup()
        site = web.TCPSite(
            self._runner, self._host, self._port, backlog=1024, ssl_context=self._tls
        )
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise Misconfigured(
                f"cannot listen on {self._host}:{self._port} ({error.strerror}): "
                "choose another port or stop what uses it"
            ) from error

    @property
    def address(self) -> str:
        """host:port as bound, also where port 0 was asked for."""
        host, port = self._runner.addresses[0][:2]
        return f"{host}:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()
