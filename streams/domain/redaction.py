"""Provider payloads made fit for a topic: addresses become recipient keys wherever they stand, contents are dropped, size is bounded."""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from math import isfinite
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import orjson

from streams.domain.addresses import RecipientKey, normalise, recipient_key
from streams.domain.mailboxes import bare_address

MAX_TEXT: Final = 1000
MAX_PAYLOAD: Final = 16 * 1024
MAX_DEPTH: Final = 8
MAX_ITEMS: Final = 64


class Field(StrEnum):
    """How the value of a field is treated."""

    TEXT = "text"
    PROSE = "prose"
    ADDRESS = "address"
    LINK = "link"
    DROPPED = "dropped"


# Header lists and subjects are content; addresses of openers are personal; who sent it the row knows.
_DROPPED: Final = ("headers", "commonheaders", "subject", "ipaddress", "content", "body")
_SENDER: Final = ("source", "sourcearn", "returnpath")
_ADDRESSES: Final = ("emailaddress", "destination", "recipients")
# Sentences of other mail servers: they may name a mailbox without its domain.
_PROSE: Final = ("diagnosticcode", "smtpresponse", "errormessage", "status")
_HEADER_ADDRESSES: Final = ("from", "sender", "to", "cc", "bcc", "replyto")
_FIELDS: Final = {
    **dict.fromkeys(_DROPPED + _SENDER, Field.DROPPED),
    **dict.fromkeys(_ADDRESSES + _HEADER_ADDRESSES, Field.ADDRESS),
    **dict.fromkeys(_PROSE, Field.PROSE),
    **dict.fromkeys(("link", "url"), Field.LINK),
}

# Nothing to redact: printable ASCII without the signs that an address, or an encoded one, needs.
_PLAIN: Final = re.compile(r"[\t\n\r -$'-<>?A-~]*")
_PLAIN_JSON: Final = bytes(b for b in range(0x20, 0x7F) if b not in b"%&=@\\")
_REPLY_CODE: Final = re.compile(r"|.|\d{1,3}", re.DOTALL)
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
# What some write between the two parts of an address instead of the sign: return paths, quoted-printable, people.
_SEPARATOR: Final = (
    r"(?:=(?:40)?|_40|#|\\u0040|\s+@\s*|\s*@\s+|\s+at\s+|\s*[(\[{<]\s*(?:at|@)\s*[)\]}>]\s*)"
)
# A part of a path that is no word can be a token, or tell who clicked.
_WORD_OF_PATH: Final = re.compile(r"(?:[A-Za-z]{1,24}(?:[_-][A-Za-z]{1,24})*(?:\.[a-z]{2,5})?)?")


class Redactor:
    """Redacts one payload. `addresses` are those that the payload is known to be about, so that they are found inside of longer words.

    Texts are cut to 1,000 characters, lists to 64 members, depth to 8, the whole to about 16 KiB: what comes later is left out.
    """

    def __init__(self, salt: bytes, addresses: Iterable[str] = ()) -> None:
        self._salt = salt
        self._known: dict[str, RecipientKey] = {}
        self._packed: dict[str, RecipientKey] = {}
        for spelled in addresses:
            address = normalise(spelled)
            key = self._known.get(address) or recipient_key(address, salt)
            self._known[address] = self._packed[_packed(address)] = key
            if spelled != address:
                self._packed[_packed(spelled)] = key
        self._parts = [address.rpartition("@")[::2] for address in self._known]
        self._room = MAX_PAYLOAD

    def key(self, spelled: str) -> RecipientKey:
        """The key of an address however it is spelled; of the text itself if it is no address."""
        if (known := self._known.get(spelled)) is not None:
            return known
        bare = bare_address(spelled) or normalise(spelled)
        return self._known.get(normalise(bare)) or recipient_key(bare, self._salt)

    def text(self, text: str, limit: int = MAX_TEXT) -> str:
        """The text without addresses, control characters and lone surrogates, at most so long."""
        if len(text) <= limit and _PLAIN.fullmatch(text) and not self._hints_at_known(text):
            return text
        if len(text) > limit:
            # An address that the cut may have halved goes too.
            text = text[:limit].rpartition(" ")[0] + "…"
        text = _UNSAFE.sub("\ufffd", text)
        if "&" in text or not text.isascii():
            text = _WRITTEN_AT.sub("@", text)
        if "%" in text:
            text = _ENCODED_ADDRESS.sub(self._encoded, text)
        if self._hints_at_known(text):
            text = self._without_known(text)
        if "@" in text:
            text = _LEFT_OVER.sub("…", _ADDRESS.sub(self._replaced, text))
        return text[: limit + 1]

    def prose(self, text: str) -> str:
        """The same for a sentence of a mail server: the local part of a known address, standing alone as a word, becomes the
        key too. A local part that looks like a reply code of SMTP does not: it would take the code away."""
        clean = self.text(text)
        for address, key in self._known.items():
            local = address.rpartition("@")[0]
            if local.lower() in clean.lower() and not _REPLY_CODE.fullmatch(local):
                word = rf"(?<![\w.+=-]){re.escape(local)}(?![\w+=-]|\.\w)"
                clean = re.sub(word, key, clean, flags=re.IGNORECASE)
        return clean[: MAX_TEXT + 1]

    def link(self, url: str) -> str:
        """Scheme, host and the words of the path: the rest may be a token, or tell whom the link was made for."""
        try:
            parts = urlsplit(url)
        except ValueError:
            return ""
        host = parts.netloc.rpartition("@")[2]
        if not host:
            return self.text(parts.scheme)
        words = parts.path[:MAX_TEXT].split("/")
        path = "/".join(word if _WORD_OF_PATH.fullmatch(word) else "…" for word in words)
        return self.prose(f"{parts.scheme}://{host}{path}")

    def value(self, value: object, field: Field = Field.TEXT, depth: int = 0) -> Any:
        """The redacted value; None for what is too deep or beyond the bound."""
        if self._room <= 0 or depth > MAX_DEPTH:
            return None
        self._room -= 8
        if isinstance(value, str):
            text = self._field(value, field)
            self._room -= len(text)
            return text
        if isinstance(value, dict):
            return self._mapping(value, depth + 1)
        if isinstance(value, list):
            return [self.value(member, field, depth + 1) for member in value[:MAX_ITEMS]]
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if -(2**63) <= value < 2**63 else None
        return value if isinstance(value, float) and isfinite(value) else None

    def mappings(self, *parts: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The value of each; as a rule one look at all of them is enough."""
        split = [self._split(part, 1) for part in parts]
        if self._is_clean([plain for plain, _ in split]):
            return [plain | special for plain, special in split]
        return [self._walked(plain, 1) | special for plain, special in split]

    def _mapping(self, value: Mapping[str, Any], depth: int) -> dict[str, Any]:
        plain, special = self._split(value, depth)
        return self._walked(plain, depth) | special

    def _split(self, value: Mapping[str, Any], depth: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """The members that are texts like any other, as they are, and the others, redacted."""
        plain: dict[str, Any] = {}
        special: dict[str, Any] = {}
        for name, member in islice(value.items(), MAX_ITEMS):
            field = _FIELDS.get(name.lower())
            if field is None:
                plain[name] = member
            elif field is not Field.DROPPED:
                special[name] = self.value(member, field, depth)
        return plain, special

    def _walked(self, plain: dict[str, Any], depth: int) -> dict[str, Any]:
        if self._is_clean([plain]):
            return plain
        return {self._name(n): self.value(member, depth=depth) for n, member in plain.items()}

    def _is_clean(self, parts: Sequence[Mapping[str, Any]]) -> bool:
        """Small parts with nothing to redact, found by one look at their JSON: most are, and the walk is ten times dearer."""
        try:
            written = orjson.dumps(parts)
        except (TypeError, ValueError):
            return False
        if len(written) > MAX_TEXT or written.translate(None, _PLAIN_JSON):
            return False
        if self._hints_at_known(written.decode()):
            return False
        nested = [m for part in parts for m in part.values() if isinstance(m, dict)]
        if written.count(b"{") > len(parts) + len(nested):
            return False
        self._room -= len(written)
        return all(_FIELDS.keys().isdisjoint(map(str.lower, inner)) for inner in nested)

    def _name(self, name: str) -> str:
        clean = self.text(name, 100)
        self._room -= len(clean)
        return clean

    def _field(self, value: str, field: Field) -> str:
        if field is Field.TEXT:
            return self.text(value)
        if field is Field.PROSE:
            return self.prose(value)
        return self.key(value) if field is Field.ADDRESS else self.link(value)

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

    def _hints_at_known(self, text: str) -> bool:
        """Whether both parts of a known address stand in it, or a known address in Base64."""
        folded = text.lower()
        for local, domain in self._parts:
            if domain in folded and local in folded:
                return True
        return any(packed in text for packed in self._packed)

    def _without_known(self, text: str) -> str:
        """Known addresses in the forms that have no sign of their own: user=example.com, user at example.com, Base64."""
        folded = text.lower()
        for (local, domain), key in zip(self._parts, self._known.values(), strict=True):
            if local in folded and domain in folded:
                here, there = re.escape(local), re.escape(domain)
                forms = rf"{here}{_SEPARATOR}{there}|(?<![\w.-]){there}!{here}"
                text = re.sub(forms, key, text, flags=re.IGNORECASE)
        for packed, key in self._packed.items():
            if packed in text:
                text = re.sub(rf"[\w+/-]*{re.escape(packed)}[\w+/=-]*", key, text)
        return text


def _packed(address: str) -> str:
    """What of the address in Base64 does not depend on what follows."""
    whole = address.encode(errors="replace")
    return b64encode(whole[: len(whole) // 3 * 3]).decode() or address
