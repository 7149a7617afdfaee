"""Provider payloads made fit for a topic: addresses become recipient keys wherever they stand, contents are dropped, size is bounded."""

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from streams.domain.addresses import RecipientKey, normalise, recipient_key
from streams.domain.mailboxes import bare_address

MAX_TEXT: Final = 1000
MAX_PAYLOAD: Final = 16 * 1024
MAX_DEPTH: Final = 8
MAX_ITEMS: Final = 64

# Header lists and subjects are content; addresses of openers are personal.
DROPPED: Final = frozenset(("headers", "commonheaders", "subject", "ipaddress", "content", "body"))
ADDRESSES: Final = frozenset(
    ("emailaddress", "destination", "recipients", "source", "returnpath", "from", "sender")
) | frozenset(("to", "cc", "bcc", "replyto"))
LINKS: Final = frozenset(("link", "url"))

_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_WRITTEN_AT: Final = re.compile("&#0*64;|&#x0*40;|&commat;|\uff20|\ufe6b", re.IGNORECASE)
_NOT_LOCAL: Final = r'\s<>()\[\]",;:@\\\x00-\x1f'
_NOT_DOMAIN: Final = _NOT_LOCAL + r"'./?#&=%!|{}*$^~+`"
# The look-behind lets a match begin only where a run of characters begins, which keeps the search linear.
_ADDRESS: Final = re.compile(
    rf'(?:"(?:[^"\\\r\n]|\\.){{1,64}}"|(?<![^{_NOT_LOCAL}])[^{_NOT_LOCAL}]+)'
    rf"@(?:\[[0-9A-Za-z:.]{{3,60}}\]|[^{_NOT_DOMAIN}]+(?:\.[^{_NOT_DOMAIN}]+)*)"
)
_LEFT_OVER: Final = re.compile(r"(?<![^\s<>\"@])[^\s<>\"@]*@[^\s<>\"]*")
_NOT_WORD: Final = r"\s<>\"'&?#/=,;\x00-\x1f"
_ENCODED_ADDRESS: Final = re.compile(
    rf"(?<![^{_NOT_WORD}])[^{_NOT_WORD}]+?%(?:25){{0,3}}40[^{_NOT_WORD}]+"
)


class Redactor:
    """Redacts one payload. `addresses` are those that the payload is known to be about, so that they are found inside of longer words.

    Texts are cut to 1,000 characters, lists to 64 members, depth to 8, the whole to about 16 KiB: what comes later is left out.
    """

    def __init__(self, salt: bytes, addresses: Iterable[str] = ()) -> None:
        self._salt = salt
        self._known = {normalise(a): recipient_key(a, salt) for a in addresses}
        self._room = MAX_PAYLOAD

    def key(self, spelled: str) -> RecipientKey:
        """The key of an address however it is spelled; of the text itself if it is no address."""
        bare = bare_address(spelled) or normalise(spelled)
        return self._known.get(normalise(bare)) or recipient_key(bare, self._salt)

    def text(self, text: str, limit: int = MAX_TEXT) -> str:
        """The text without addresses, control characters and lone surrogates, at most so long."""
        if len(text) > limit:
            # An address that the cut may have halved goes too.
            text = text[:limit].rpartition(" ")[0] + "…"
        text = _UNSAFE.sub("\ufffd", text)
        if "&" in text or not text.isascii():
            text = _WRITTEN_AT.sub("@", text)
        if "%" in text:
            text = _ENCODED_ADDRESS.sub(self._encoded, text)
        if "@" in text:
            text = _LEFT_OVER.sub("…", _ADDRESS.sub(self._replaced, text))
        if "=" in text:
            text = self._without_return_paths(text)
        return text[: limit + 1]

    def link(self, url: str) -> str:
        """Scheme, host and path: a query or fragment may carry tokens and whom the link was made for."""
        try:
            parts = urlsplit(url)
        except ValueError:
            return ""
        host = parts.netloc.rpartition("@")[2]
        return self.text(f"{parts.scheme}://{host}{parts.path}" if host else parts.scheme)

    def value(self, value: object, name: str = "", depth: int = 0) -> Any:
        """The redacted value of a field of this name; None for what is too deep or beyond the bound."""
        if self._room <= 0 or depth > MAX_DEPTH:
            return None
        self._room -= 8
        match value:
            case str():
                return self._field(value, name)
            case Mapping():
                return self._mapping(value, depth)
            case list():
                return [self.value(member, name, depth + 1) for member in value[:MAX_ITEMS]]
            case bool() | None:
                return value
            case int():
                return value if abs(value) < 2**53 else self._field(str(value), name)
            case float():
                return value if isfinite(value) else None
            case _:
                return None

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, member in list(value.items())[:MAX_ITEMS]:
            name = str(key)
            if name.lower() not in DROPPED:
                kept[self._spent(self.text(name, 100))] = self.value(member, name, depth + 1)
        return kept

    def _field(self, value: str, name: str) -> str:
        field = name.lower()
        if field in ADDRESSES:
            return self._spent(self.key(value))
        return self._spent(self.link(value) if field in LINKS else self.text(value))

    def _spent(self, text: str) -> str:
        self._room -= len(text)
        return text

    def _replaced(self, found: re.Match[str]) -> str:
        word = found[0]
        folded = normalise(word)
        for address, key in self._known.items():
            if folded == address:
                return key
            before = word[: -len(address)]
            if folded.endswith(address) and not (before[-1].isalnum() or before[-1] in "._+-"):
                return before + key
        return self.key(word)

    def _encoded(self, found: re.Match[str]) -> str:
        word = found[0]
        for _ in range(4):
            word = unquote(word)
        return self.key(word)

    def _without_return_paths(self, text: str) -> str:
        """Known addresses in the form of variable envelope return paths: user=example.com."""
        for address, key in self._known.items():
            path = address.replace("@", "=")
            if path in normalise(text):
                text = re.sub(re.escape(path), key, text, flags=re.IGNORECASE)
        return text
