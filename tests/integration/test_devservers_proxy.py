"""The proxy before a server: what passes, what is late, what is lost, and how connections end."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from devservers.tcp_proxy import PRODUCE, TcpProxy

METADATA = 3


class Echo:
    """Answers whatever comes with the same; to Kafka's frames with a frame of the same correlation."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.heard = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            while data := connection.recv(65536):
                self.heard += len(data)
                if len(data) == 12:
                    data = struct.pack(">i", 4) + data[8:]
                connection.sendall(data)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


def frame(kind: int, correlation: int) -> bytes:
    return struct.pack(">ihhi", 8, kind, 9, correlation)


def client(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), 30)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_bytes_pass_in_both_directions(echo: Echo) -> None:
    sent = bytes(range(256)) * 4000
    with TcpProxy(upstream=echo.port) as proxy, client(proxy) as connection:
        threading.Thread(target=connection.sendall, args=(sent,)).start()
        got = b""
        while len(got) < len(sent):
            got += connection.recv(65536)
        assert got == sent


def test_answers_come_late_by_the_delay_and_not_by_its_sum(echo: Echo) -> None:
    with TcpProxy(upstream=echo.port, kafka=True) as proxy, client(proxy) as connection:
        proxy.answer_delay_s = 0.5
        begun = time.monotonic()
        connection.sendall(frame(METADATA, 1))
        assert connection.recv(100) == struct.pack(">ii", 4, 1)
        assert time.monotonic() - begun >= 0.5


def test_only_the_answers_of_the_named_kind_are_lost_and_the_server_hears_the_request(
    echo: Echo,
) -> None:
    with TcpProxy(upstream=echo.port, kafka=True) as proxy:
        proxy.dropped_answers = frozenset({PRODUCE})
        with client(proxy) as first, client(proxy) as second:
            first.sendall(frame(PRODUCE, 7))
            until(lambda: proxy.lost_answers[PRODUCE] == 1)
            assert echo.heard == 12
            second.sendall(frame(METADATA, 8))
            assert second.recv(100) == struct.pack(">ii", 4, 8)
            # A stream has no holes.
            first.sendall(frame(METADATA, 9))
            until(lambda: proxy.lost_answers[METADATA] == 1)
            first.setblocking(False)
            with pytest.raises(BlockingIOError):
                first.recv(100)
        proxy.dropped_answers = frozenset()
        with client(proxy) as healed:
            healed.sendall(frame(PRODUCE, 10))
            assert healed.recv(100) == struct.pack(">ii", 4, 10)


def test_a_truncated_answer_ends_its_connection(echo: Echo) -> None:
    with TcpProxy(upstream=echo.port) as proxy, client(proxy) as connection:
        proxy.truncate_answers_at = 3
        connection.sendall(b"hello")
        assert connection.recv(100) == b"hel"
        assert connection.recv(100) == b""


def test_reset_and_close_end_what_is_open_and_others_may_come(echo: Echo) -> None:
    with TcpProxy(upstream=echo.port) as proxy:
        with client(proxy) as connection:
            until(lambda: proxy.open_connections == 1)
            proxy.reset()
            with pytest.raises(ConnectionResetError):
                connection.recv(100)
        with client(proxy) as connection:
            until(lambda: proxy.open_connections == 1)
            proxy.close()
            assert connection.recv(100) == b""
        with client(proxy) as connection:
            connection.sendall(b"hello")
            assert connection.recv(100) == b"hello"


def test_without_a_server_or_when_it_refuses_connections_end_at_once(echo: Echo) -> None:
    with TcpProxy(upstream=echo.port) as proxy:
        proxy.refusing = True
        with client(proxy) as connection, suppress(ConnectionResetError):
            assert connection.recv(100) == b""
        proxy.refusing = False
        echo.close()
        proxy.upstream = 1
        with client(proxy) as connection, suppress(ConnectionResetError):
            assert connection.recv(100) == b""


def test_a_swallowing_proxy_passes_nothing_and_no_end(echo: Echo) -> None:
    with TcpProxy(upstream=echo.port) as proxy:
        with client(proxy) as connection:
            connection.sendall(b"1")
            assert connection.recv(10) == b"1"
            proxy.swallowing = True
            connection.sendall(b"2")
        with client(proxy) as other:
            other.sendall(b"3")
            other.settimeout(0.3)
            with pytest.raises(TimeoutError):
                other.recv(10)
        assert (echo.heard, proxy.open_connections) == (1, 2)
        proxy.reset()
        until(lambda: proxy.open_connections == 0)
        proxy.swallowing = False
        with client(proxy) as connection:
            connection.sendall(b"4")
            assert connection.recv(10) == b"4"
