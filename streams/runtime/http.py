"""Health, readiness and metrics of a process over HTTP."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from yarl import URL

from streams.domain.errors import Misconfigured
from streams.runtime import metrics
from streams.runtime.connections import Connections
from streams.runtime.lifecycle import Health
from streams.runtime.logs import places

log = logging.getLogger(__name__)

MAX_HEADERS = 64
TLS_HANDSHAKE_S = 10.0


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

    async def series(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return [
        web.get("/health/live", live),
        web.get("/health/ready", ready),
        web.get("/metrics", series),
    ]


def _json(body: dict[str, object], *, ok: bool) -> web.Response:
    return web.Response(
        body=orjson.dumps(body), status=200 if ok else 503, content_type="application/json"
    )


# The second: what is left of a body that was badly packed.
_NO_HTTP = (HttpProcessingError, web.RequestPayloadError)


class _ProtocolLog(logging.LoggerAdapter[logging.Logger]):
    """What aiohttp itself has to say. It would write a traceback, with what was sent, for whatever is not HTTP."""

    def exception(self, *_: object, exc_info: Any = True, **__: object) -> None:
        if isinstance(exc_info, _NO_HTTP):
            metrics.HTTP_MALFORMED.inc()
            return
        error = exc_info if isinstance(exc_info, BaseException) else None
        self.logger.error(
            "request failed",
            extra={
                "action": "http.failed",
                "error": type(error).__name__,
                "at": places(error) if error is not None else [],
            },
        )

    def debug(self, *_: object, exc_info: Any = None, **__: object) -> None:
        """aiohttp's way of telling that somebody spoke TLS, or nothing known, from the first byte on."""
        if isinstance(exc_info, _NO_HTTP):
            metrics.HTTP_MALFORMED.inc()


def _with_target(make: Callable[..., web.BaseRequest]) -> Callable[..., web.BaseRequest]:
    """aiohttp 3.14 gives CONNECT without a target no URL, and then fails outside of every handler, without an answer."""

    def made(message: Any, *rest: Any) -> web.BaseRequest:
        if message.url is None:
            message = message._replace(url=_ROOT)
        return make(message, *rest)

    return made


_ROOT = URL("/")
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class HttpServer:
    """An aiohttp application, or one handler of every request, on one address; start() raises Misconfigured when the port is taken.

    A handler is spared what routing costs, which is a fifth of a small request. With tls it speaks HTTPS. lingering_s: how long
    the rest of a body is read that nobody wants any more. connections: their bounds, where strangers can connect.
    Bodies come as they were sent: aiohttp would unpack even those that nobody reads, a gigabyte out of a megabyte.
    """

    def __init__(
        self,
        app: web.Application | Handler,
        *,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        lingering_s: float = 10.0,
        connections: Connections | None = None,
    ) -> None:
        options: dict[str, Any] = {
            "access_log": None,
            "lingering_time": lingering_s,
            "logger": _ProtocolLog(log),
            "max_headers": MAX_HEADERS,
            "auto_decompress": False,
        }
        self._runner: web.BaseRunner = (
            web.AppRunner(app, **options)
            if isinstance(app, web.Application)
            else web.ServerRunner(web.Server(app, **options))
        )
        self._host = host
        self._port = port
        self._tls = tls
        self._connections = connections
        self._listening: asyncio.Server | None = None

    async def start(self) -> None:
        await self._runner.setup()
        server = self._runner.server
        assert server is not None  # noqa: S101 setup() made it
        server.request_factory = _with_target(server.request_factory)
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                self._protocol,
                self._host,
                self._port,
                backlog=1024,
                ssl=self._tls,
                ssl_handshake_timeout=TLS_HANDSHAKE_S if self._tls is not None else None,
            )
        except OSError as error:
            await self._runner.cleanup()
            raise Misconfigured(
                f"cannot listen on {self._host}:{self._port} ({error.strerror}): "
                "choose another port or stop what uses it"
            ) from error
        if self._connections is not None:
            self._connections.start()

    def _protocol(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None  # noqa: S101 setup() made it
        protocol = server()
        return protocol if self._connections is None else self._connections.guarded(protocol)

    @property
    def address(self) -> str:
        """host:port as bound, also where port 0 was asked for."""
        if self._listening is None or not self._listening.sockets:
            raise Misconfigured("the server does not listen")
        host, port = self._listening.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def stop(self) -> None:
        """Closes the port, lets what is under way end, closes the rest."""
        if self._listening is not None:
            self._listening.close()
        await self._runner.cleanup()
        if self._connections is not None:
            self._connections.stop()
