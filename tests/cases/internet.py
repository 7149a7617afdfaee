"""Everything outside: hosts that serve certificates and the API of SNS, all of them one pair of servers on this machine."""

import asyncio
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cases.envelopes import pem

SLOW_S: Final = 10.0
_EVIL: Final = "https://evil.example/x.pem"
_SCOPE: Final = re.compile(r"/([a-z0-9-]+)/sns/aws4_request")
_CONFIRMED: Final = (
    '<ConfirmSubscriptionResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><ConfirmSubscriptionResult>'
    "<SubscriptionArn>{topic}:80dbe635-2b4b-57fd-8013-031c439cebe3</SubscriptionArn></ConfirmSubscriptionResult>"
    "<ResponseMetadata><RequestId>0</RequestId></ResponseMetadata></ConfirmSubscriptionResponse>"
)
_FAILED: Final = (
    '<ErrorResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><Error><Type>Receiver</Type>'
    "<Code>InternalError</Code><Message>try again</Message></Error><RequestId>0</RequestId></ErrorResponse>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """A call of ConfirmSubscription: to which host, signed for which region, with what."""

    host: str
    region: str
    topic: str
    token: str


@dataclass(slots=True, kw_only=True)
class Behaviour:
    """What is answered in one variant, and what was asked. Certificates: the answer's word by URL."""

    certificates: Mapping[str, str] = field(default_factory=lambda: {"*": "trusted"})
    confirm: str = "ok"
    fetched: list[str] = field(default_factory=list)
    confirmed: list[Confirmation] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    was_slow: bool = False

    def answer_for(self, url: str) -> str:
        wanted = {same_url(known): answer for known, answer in self.certificates.items()}
        return wanted.get(same_url(url), wanted.get("*", "404"))


def same_url(url: str) -> str:
    """URLs that lead to the same place are equal here: scheme and host in any case."""
    parts = urlsplit(url)
    return url if not parts.netloc else parts._replace(netloc=parts.netloc.lower()).geturl()


class Internet:
    """Servers for https and http with a certificate for whatever host is asked for."""

    def __init__(self, directory: Path) -> None:
        self._authority = Authority(directory)
        self._runner: web.ServerRunner | None = None
        self.behaviour = Behaviour()
        self.https_port = self.http_port = 0

    @property
    def trust(self) -> Path:
        """The certificate that a client has to trust."""
        return self._authority.path

    async def start(self) -> None:
        runner = web.ServerRunner(
            web.Server(self._asked, access_log=None, handler_cancellation=True),
            shutdown_timeout=0.1,
        )
        await runner.setup()
        await web.TCPSite(
            runner, "127.0.0.1", 0, ssl_context=self._authority.server_context()
        ).start()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.https_port, self.http_port = (address[1] for address in runner.addresses)
        self._runner = runner

    async def stop(self) -> None:
        self.behaviour.over.set()
        if self._runner is not None:
            await self._runner.cleanup()

    def behave(self, behaviour: Behaviour) -> None:
        """From now on; requests of before that still hang are answered."""
        self.behaviour.over.set()
        self.behaviour = behaviour

    async def _asked(self, request: web.BaseRequest) -> web.StreamResponse:
        behaviour = self.behaviour
        # `secure` and not the URL: the other side may have asked an https port for http.
        scheme = "https" if request.secure else "http"
        url = f"{scheme}://{request.host}{request.raw_path}"
        form = parse_qs((await request.read()).decode(errors="replace"))
        if request.method == "POST" and form.get("Action") == ["ConfirmSubscription"]:
            return await self._confirm(behaviour, request, form)
        if request.method == "GET":
            behaviour.fetched.append(url)
            return await self._certificate(behaviour, behaviour.answer_for(url))
        behaviour.strange.append(f"{request.method} {url}")
        return web.Response(status=404)

    async def _confirm(
        self, behaviour: Behaviour, request: web.BaseRequest, form: Mapping[str, Sequence[str]]
    ) -> web.StreamResponse:
        scope = _SCOPE.search(request.headers.get("Authorization", ""))
        topic = form.get("TopicArn", [""])[0]
        behaviour.confirmed.append(
            Confirmation(
                host=request.host.removesuffix(":443"),
                region=scope[1] if scope else "unsigned",
                topic=topic,
                token=form.get("Token", [""])[0],
            )
        )
        if behaviour.confirm == "hang":
            await behaviour.over.wait()
        failed = behaviour.confirm == "500"
        text = _FAILED if failed else _CONFIRMED.format(topic=topic)
        return web.Response(text=text, status=500 if failed else 200, content_type="text/xml")

    async def _certificate(self, behaviour: Behaviour, answer: str) -> web.StreamResponse:
        if answer == "hang":
            await behaviour.over.wait()
        if answer == "slow-once" and not behaviour.was_slow:
            behaviour.was_slow = True
            await asyncio.sleep(SLOW_S)
        if answer in ("404", "500"):
            return web.Response(status=int(answer))
        if answer == "redirect":
            return web.Response(status=302, headers={"Location": _EVIL})
        if answer == "html":
            page = "<!DOCTYPE html><html><body>Sign in to this network</body></html>"
            return web.Response(text=page, content_type="text/html")
        body = b"" if answer in ("empty", "hang") else pem(answer)
        return web.Response(body=body, content_type="application/x-pem-file")


class Authority:
    """Issues a TLS certificate for each host name that a client asks for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("mailstreams test authority")
        self._contexts: dict[str, ssl.SSLContext] = {}
        self.path = directory / "authority.pem"
        self.path.write_bytes(self._issue("authority", self._key.public_key(), authority=True))
        self._leaf_key_path = directory / "leaf.key"
        self._leaf_key_path.write_bytes(
            self._leaf_key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )

    def server_context(self) -> ssl.SSLContext:
        context = self._context("localhost")
        context.sni_callback = self._choose
        return context

    def _choose(self, connection: Any, host: str | None, _: ssl.SSLContext) -> None:
        connection.context = self._context(host or "localhost")

    def _context(self, host: str) -> ssl.SSLContext:
        if host not in self._contexts:
            path = self._directory / f"{len(self._contexts)}.pem"
            path.write_bytes(self._issue(host, self._leaf_key.public_key(), authority=False))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(path, self._leaf_key_path)
            self._contexts[host] = context
        return self._contexts[host]

    def _issue(self, host: str, key: ec.EllipticCurvePublicKey, *, authority: bool) -> bytes:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(
            subject_name=self._name if authority else _named(host[:64]),
            issuer_name=self._name,
            public_key=key,
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(days=1),
            not_valid_after=now + timedelta(days=2),
        )
        builder = builder.add_extension(x509.BasicConstraints(authority, None), critical=True)
        add = partial(builder.add_extension, critical=False)
        if not authority:
            builder = add(x509.SubjectAlternativeName([x509.DNSName(host)]))
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
