"""Inputs of the fuzzer: what is sent, and of which original it was made."""

from dataclasses import dataclass

from tests.fuzz.originals import Original

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A request. wire: the bytes as they go over a connection of their own, else headers and body in a well-formed request.

    judged: what the judge looks at, where it is not the body. plain: nothing but the body decides, so that it must be accepted
    if the judge says that it may.
    """

    kind: str
    original: Original
    body: bytes
    headers: Headers = ()
    wire: bytes | None = None
    judged: bytes | None = None
    plain: bool = True

    def bytes(self) -> bytes:
        if self.wire is not None:
            return self.wire
        head = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        length = f"Content-Length: {len(self.body)}\r\n"
        start = f"POST /sns HTTP/1.1\r\nHost: sns.example.com\r\n{head}{length}\r\n"
        return start.encode("latin-1") + self.body
