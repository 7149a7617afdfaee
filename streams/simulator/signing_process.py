"""A process that signs: frames over standard input and output, ends with its parent.

Frame in: version (1 byte, ASCII), length (4 bytes, big-endian), text. Frame out: length, signature.
The first frame in is the private key as PEM, with version "k", and has no answer.
"""

import asyncio
import struct
import sys
from collections import deque
from typing import BinaryIO

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from streams.simulator.sns_signing import SigningIdentity, sign

_HEAD = struct.Struct(">cI")
_LENGTH = struct.Struct(">I")


def frame(version: str, text: bytes) -> bytes:
    return _HEAD.pack(version.encode(), len(text)) + text


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Sign until the source ends."""
    key: rsa.RSAPrivateKey | None = None
    while head := source.read(_HEAD.size):
        version, length = _HEAD.unpack(head)
        text = source.read(length)
        if version == b"k":
            loaded = load_pem_private_key(text, None)
            if not isinstance(loaded, rsa.RSAPrivateKey):
                raise TypeError("the key must be an RSA key")
            key = loaded
        elif key is not None:
            signature = sign(key, text, version.decode())
            target.write(_LENGTH.pack(len(signature)) + signature)
            target.flush()


class SignerGoneError(Exception):
    """A signing process has ended before it answered."""


class _Process:
    """One child; answers come in the order of the questions."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._reader = asyncio.create_task(self._read())

    @property
    def load(self) -> int:
        return len(self._waiting)

    async def sign(self, text: bytes, version: str) -> bytes:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._write(frame(version, text))
        self._waiting.append(answer)
        return await answer

    async def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()
        await self._reader

    def _write(self, data: bytes) -> None:
        if self._process.stdin is None or self._process.stdin.is_closing():
            raise SignerGoneError
        self._process.stdin.write(data)

    async def _read(self) -> None:
        stream = self._process.stdout
        try:
            while stream is not None:
                (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
                signature = await stream.readexactly(length)
                waiting = self._waiting.popleft()
                if not waiting.done():
                    waiting.set_result(signature)
        except asyncio.IncompleteReadError:
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_exception(SignerGoneError())


class ProcessSigner:
    """Signs in child processes, so that the server keeps its own core."""

    def __init__(self, processes: list[_Process]) -> None:
        self._processes = processes

    @classmethod
    async def start(cls, identity: SigningIdentity, number: int) -> "ProcessSigner":
        processes = []
        for _ in range(number):
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                "from streams.simulator.signing_process import main; main()",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
            if child.stdin is not None:
                child.stdin.write(frame("k", identity.key_pem()))
            processes.append(_Process(child))
        return cls(processes)

    async def sign(self, text: bytes, version: str) -> bytes:
        process = min(self._processes, key=lambda candidate: candidate.load)
        return await process.sign(text, version)

    async def close(self) -> None:
        for process in self._processes:
            await process.close()


def main() -> None:
    serve(sys.stdin.buffer, sys.stdout.buffer)
