"""Tricks below and around the body: headers, framing, methods, paths."""

import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from tests.fuzz.body_mutations import forged, neutral
from tests.fuzz.inputs import Input
from tests.fuzz.originals import Original

Trick = Callable[[Random, Original], Input]

HEADERS: Final = (
    ("x-amz-sns-message-type", "SubscriptionConfirmation"),
    ("x-amz-sns-message-type", "nonsense"),
    ("x-amz-sns-topic-arn", "arn:aws:sns:eu-central-1:999988887777:attacker"),
    ("x-amz-sns-message-id", "user1@example.com"),
    ("Content-Type", "application/json"),
    ("Content-Type", "multipart/form-data; boundary=x"),
    ("Content-Type", "application/x-www-form-urlencoded; charset=utf-16"),
    ("Content-Type", "\x80;;=,"),
    ("Authorization", "Basic c25zOnNlY3JldA=="),
    ("Authorization", "Basic ****"),
    ("X-HTTP-Method-Override", "DELETE"),
    ("X-Forwarded-For", "127.0.0.1"),
    ("Cookie", "a=b; " * 200),
    ("Range", "bytes=0-1"),
    ("If-None-Match", "*"),
    ("Accept-Encoding", "gzip, br, zstd;q=nonsense"),
    ("Origin", "null"),
    ("Host", "evil.example"),
    ("traceparent", "00-" + "0" * 32),
    ("X-Long", "a" * 8000),
)


def headers(random: Random, original: Original) -> Input:
    """A genuine body with odd headers: accepted, or refused with a 4xx."""
    chosen = tuple(random.sample(HEADERS, random.randint(1, 4)))
    return Input(kind="headers", original=original, body=original.body, headers=chosen, plain=False)


def raw_header(random: Random, original: Original) -> Input:
    """Raw delivery is off: whatever the body is, it is refused."""
    body = random.choice((original.body, str(original.fields["Message"]).encode()))
    flag = (("x-amz-sns-rawdelivery", random.choice(("true", "TRUE", " true "))),)
    return Input(
        kind="raw-header", original=original, body=body, headers=flag, judged=b"", plain=False
    )


def encoded(random: Random, original: Original) -> Input:
    body = random.choice((forged, neutral))(random, original)
    packed = random.choice(
        (
            ("gzip", gzip.compress(body)),
            ("deflate", zlib.compress(body)),
            ("deflate", zlib.compress(body)[2:-4]),
            ("gzip", body),
            ("gzip", gzip.compress(body)[:-5]),
            ("gzip", gzip.compress(body) + b"rest"),
            ("gzip", gzip.compress(b"a" * 3_000_000)),
            ("br", body),
            ("gzip, gzip", gzip.compress(gzip.compress(body))),
            ("nonsense", body),
            ("identity", body),
        )
    )
    return Input(
        kind="content-encoding",
        original=original,
        body=packed[1],
        headers=(("Content-Encoding", packed[0]),),
        judged=body,
        plain=False,
    )


def chunks(random: Random, original: Original) -> Input:
    """A body in chunks, well or badly made."""
    body = random.choice((original.body, forged(random, original)))
    size = random.choice((1000, 4096, 100_000))
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    extension = random.choice((b"", b"", b";a=b", b';a="b"', b";" + b"x" * 5000, b" ", b"\t;"))
    framed = b"".join(b"%x%s\r\n%s\r\n" % (len(p), extension, p) for p in parts)
    end = random.choice(
        (
            b"0\r\n\r\n",
            b"0\r\n\r\n",
            b"0\r\nTrailer: x\r\n\r\n",
            b"0\r\nContent-Length: 5\r\nAuthorization: x\r\n\r\n",
            b"0\r\n" + b"A: b\r\n" * 500 + b"\r\n",
            b"00000000000000000000\r\n\r\n",
            b"-1\r\n\r\n",
            b"0x0\r\n\r\n",
            b"ffffffffffffffffff\r\n",
            b"\r\n",
            b"",
            b"0\n\n",
        )
    )
    if random.random() < 0.2:
        framed = framed.replace(b"\r\n", random.choice((b"\n", b"\r", b"\r\r\n")))
    lines = b"Transfer-Encoding: chunked\r\n"
    return wire(random, original, "chunks", lines=lines, rest=framed + end, body=body)


def smuggling(random: Random, original: Original) -> Input:
    """Two lengths, or a length and chunks: what is behind must not be a request that is believed more."""
    forgery = forged(random, original)
    behind = b"POST /sns HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (
        len(forgery),
        forgery,
    )
    length = len(forgery)
    lengths = random.choice(
        (
            b"Content-Length: %d\r\nContent-Length: %d\r\n" % (length, length + 1),
            b"Content-Length: %d\r\nContent-Length: %d\r\n" % (length, length),
            b"Content-Length: %d, %d\r\n" % (length, length),
            b"Content-Length: +%d\r\n" % length,
            b"Content-Length: %d \r\n" % length,
            b"Content-Length: 0x%x\r\n" % length,
            b"Content-Length: -%d\r\n" % length,
            b"Content-Length: 99999999999999999999\r\n",
            b"Content-Length: 0\r\n",
            b"Content-Length: \r\n",
            b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % length,
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            b"Transfer-Encoding: xchunked\r\nContent-Length: %d\r\n" % length,
            b"Transfer-Encoding : chunked\r\n",
            b"Transfer-Encoding:\x0bchunked\r\n",
            b"Transfer-Encoding: gzip, chunked\r\n",
            b"Content-Length: %d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" % length,
            b"Content-Length: %d\r\nExpect: 100-continue\r\n" % length,
            b"Content-Length: %d\r\nExpect: nonsense\r\n" % length,
            b"Content-Length: %d\r\n X: folded\r\n" % length,
            b"Content-Length: %d\r\nX: a\x00b\r\n" % length,
            b"Content-Length: %d\r\nX\xff: a\xffb\r\n" % length,
            b"Content-Length: %d\r\n: empty\r\n" % length,
            b"Content-Length: %d\r\nno colon\r\n" % length,
            b"Content-Length: %d\r\n" % length + b"A: b\r\n" * random.choice((60, 70, 5000)),
            b"Content-Length: %d\r\nA: %s\r\n"
            % (length, b"b" * random.choice((8000, 9000, 90_000))),
            b"\r\n",
        )
    )
    rest = forgery + random.choice((b"", behind, behind * 3, random.randbytes(50)))
    return wire(random, original, "smuggling", lines=lengths, rest=rest, body=forgery)


def start_line(random: Random, original: Original) -> Input:
    forgery = forged(random, original)
    method = random.choice(
        (
            "POST",
            "GET",
            "HEAD",
            "PUT",
            "DELETE",
            "OPTIONS",
            "CONNECT",
            "TRACE",
            "PATCH",
            "post",
            "X-Y",
            "PRI",
            "",
        )
    )
    path = random.choice(
        (
            *(
                "/sns",
                "/",
                "/sns/",
                "//sns",
                "/sns?x=y",
                "/sns#x",
                "/SNS",
                "/%73ns",
                "/sns%00",
                "*",
            ),
            *(
                "http://evil.example/sns",
                "evil.example:80",
                "/../sns",
                "/sns/../sns",
                "/metrics",
                "/%zz",
            ),
            *(
                "/" + "a" * 9000,
                "/é",
                "/sns;x",
                "\\sns",
                "",
                "/health/live",
                "http://[::1",
                "/\x00",
            ),
        )
    )
    version = random.choice(
        (
            "HTTP/1.1",
            "HTTP/1.1",
            "HTTP/1.1",
            "HTTP/1.0",
            "HTTP/2.0",
            "HTTP/0.9",
            "HTTP/9.9",
            "http/1.1",
            "",
        )
    )
    start = f"{method} {path} {version}\r\nHost: x\r\nConnection: close\r\n"
    head = start.encode() + b"Content-Length: %d\r\n\r\n" % len(forgery)
    if random.random() < 0.05:
        head = random.randbytes(200)
    return Input(
        kind="start-line", original=original, body=forgery, wire=head + forgery, plain=False
    )


def wire(
    random: Random, original: Original, kind: str, *, lines: bytes, rest: bytes, body: bytes
) -> Input:
    closing = random.choice((b"Connection: close\r\n", b"Connection: close\r\n", b""))
    head = b"POST /sns HTTP/1.1\r\nHost: x\r\n" + closing + lines + b"\r\n"
    return Input(kind=kind, original=original, body=body, wire=head + rest, plain=False)


def unsigned_raw(random: Random, original: Original) -> Input:
    """The event without its envelope, as raw delivery would bring it."""
    body = random.choice((original.fields["Message"], json.dumps({"mail": {}, "Type": None})))
    return Input(kind="raw", original=original, body=str(body).encode(), plain=False)


TRICKS: Final[Mapping[str, tuple[Trick, int]]] = {
    "headers": (headers, 5),
    "raw-header": (raw_header, 2),
    "raw": (unsigned_raw, 1),
    "content-encoding": (encoded, 3),
    "chunks": (chunks, 3),
    "smuggling": (smuggling, 4),
    "start-line": (start_line, 3),
}
