"""Bodies that were packed on their way (Content-Encoding), unpacked no further than they may be long."""

import zlib

from streams.domain.errors import BadMessage

_ZLIB_OR_GZIP = zlib.MAX_WBITS | 32


def unpacked(body: bytes, encoding: str, *, limit: int) -> bytes:
    """The body itself, cut after limit + 1 bytes; BadMessage if it is not packed as it says, or in a way that we do not know.

    Whoever reads no further spends no time on a body that unpacks to a thousand times its size.
    """
    word = encoding.strip().lower()
    if word in ("", "identity"):
        return body
    if word not in ("gzip", "x-gzip", "deflate"):
        raise BadMessage("this Content-Encoding is not known")
    plain = bytearray()
    while body and len(plain) <= limit:
        packed = zlib.decompressobj(_ZLIB_OR_GZIP)
        try:
            plain += packed.decompress(body, limit + 1 - len(plain))
        except zlib.error as error:
            raise BadMessage("the body is not packed as Content-Encoding says") from error
        if not packed.eof and len(plain) <= limit:
            raise BadMessage("the packed body is broken off")
        body = packed.unused_data
    return bytes(plain)
