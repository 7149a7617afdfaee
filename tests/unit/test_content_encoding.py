"""Packed bodies."""

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.domain.content_encoding import unpacked
from streams.domain.errors import BadMessage

LIMIT = 1000


@given(st.binary(max_size=LIMIT))
@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("", bytes),
        ("identity", bytes),
        ("gzip", gzip.compress),
        (" GZIP ", gzip.compress),
        ("x-gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("gzip", lambda body: gzip.compress(body[:7], mtime=0) + gzip.compress(body[7:], mtime=0)),
    ],
)
def test_what_was_packed_comes_out_again(encoding: str, pack, body: bytes) -> None:  # type: ignore[no-untyped-def]
    assert unpacked(pack(body), encoding, limit=LIMIT) == body


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_bomb_is_unpacked_no_further_than_the_limit(pack) -> None:  # type: ignore[no-untyped-def]
    bomb = pack(b"a" * 100_000_000)
    tracemalloc.start()
    try:
        assert len(unpacked(bomb, "gzip", limit=LIMIT)) == LIMIT + 1
        assert tracemalloc.get_traced_memory()[1] < 2 * len(bomb)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"plain", "gzip"),
        (b"plain", "deflate"),
        (gzip.compress(b"whole", mtime=0)[:-3], "gzip"),
        (gzip.compress(b"whole", mtime=0) + b"more", "gzip"),
        (gzip.compress(b"whole", mtime=0), "br"),
        (gzip.compress(gzip.compress(b"twice", mtime=0), mtime=0), "gzip, gzip"),
    ],
    ids=["no gzip", "no deflate", "cut", "more behind", "another name", "twice"],
)
def test_what_is_not_packed_as_it_says_is_refused(body: bytes, encoding: str) -> None:
    with pytest.raises(BadMessage):
        unpacked(body, encoding, limit=LIMIT)


def test_an_empty_body_is_empty_however_it_is_packed() -> None:
    assert unpacked(b"", "gzip", limit=LIMIT) == b""
