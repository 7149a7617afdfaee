"""Attachments by reference: what a row says of them, where they may be fetched from, and what SES takes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from streams.domain.errors import BadMessage, Misconfigured

MOST: Final = 20
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f/\\]{1,255}")
_TYPE: Final = re.compile(
    r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(; ?[A-Za-z0-9-]+=[A-Za-z0-9_.-]+)?"
)
_CONTENT_ID: Final = re.compile(r"[!-;=?-~]{1,78}")
_ODD: Final = re.compile(r"[^!-\[\]-~]|%(2[eEfF]|5[cC]|00)")
_KEYS: Final = frozenset({"url", "name", "type", "sha256", "size", "content_id"})
# SES refuses mail with files of these names. As a text, since people read it more easily.
_REFUSED: Final = (
    "ade adp app asp bas bat cer chm cmd com cpl crt csh der exe fxp gadget hlp hta inf ins isp its js jse ksh lib lnk mad maf "
    "mag mam maq mar mas mat mau mav maw mda mdb mde mdt mdw mdz msc msh msh1 msh2 mshxml msh1xml msh2xml msi msp mst ops pcd "
    "pif plg prf prg ps1 ps1xml ps2 ps2xml psc1 psc2 reg scf scr sct shb shs sys tmp url vb vbe vbs vps vsmacros vss vst vsw vxd "
    "ws wsc wsf wsh xnk"
)
REFUSED_ENDINGS: Final = frozenset(_REFUSED.split())


class Scheme(StrEnum):
    """How a place is reached."""

    HTTPS = "https"
    S3 = "s3"
    FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """One file, as the row names it. content_id: shown within the HTML as cid:..., else offered for download."""

    url: str
    name: str
    type: str
    sha256: str
    size: int
    content_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where a reference points to, taken apart. host: of S3 the bucket; path: decoded for S3 and files."""

    scheme: Scheme
    host: str
    path: str


def read_attachments(given: object) -> tuple[Attachment, ...]:
    """The attachments of a row; BadMessage says what is wrong without repeating it."""
    if not isinstance(given, list) or len(given) > MOST:
        raise BadMessage(f"attachments have to be a list of at most {MOST}: insert the row anew")
    return tuple(_attachment(item, n) for n, item in enumerate(given, 1))


def _attachment(item: Any, number: int) -> Attachment:
    wrong = _wrong(item) if isinstance(item, Mapping) else "it is not an object"
    if wrong is not None:
        raise BadMessage(f"attachment {number}: {wrong}; insert the row anew")
    return Attachment(
        url=item["url"],
        name=item["name"],
        type=item.get("type") or "application/octet-stream",
        sha256=item["sha256"],
        size=item["size"],
        content_id=item.get("content_id"),
    )


def _wrong(item: Mapping[str, Any]) -> str | None:
    url, name, size = item.get("url"), item.get("name"), item.get("size")
    if item.keys() - _KEYS:
        return f"it has keys other than {', '.join(sorted(_KEYS))}"
    if not isinstance(url, str) or not 1 <= len(url) <= 2000:
        return "url has to be a text of at most 2000 characters"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "name has to be a file's name of 1 to 255 characters"
    if "." in name and name.rpartition(".")[2].strip().lower() in REFUSED_ENDINGS:
        return "SES takes no file with such an ending in its name"
    if not isinstance(item.get("sha256"), str) or not _SHA256.fullmatch(item["sha256"]):
        return "sha256 has to be 64 hexadecimal digits in lower case"
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        return "size has to be the file's bytes, at least 1"
    if not _is_text(item.get("type"), _TYPE, 78):
        return "type has to be a media type of at most 78 characters"
    if not _is_text(item.get("content_id"), _CONTENT_ID, 78):
        return "content_id has to be 1 to 78 visible ASCII characters without < and >"
    return None


def _is_text(value: object, pattern: re.Pattern[str], most: int) -> bool:
    if value is None:
        return True
    return isinstance(value, str) and len(value) <= most and pattern.fullmatch(value) is not None


def locate(url: str) -> Location:
    """Takes a reference apart; ValueError where two readers could read it in two ways."""
    parts = urlsplit(url)
    if "://" not in url or _ODD.search(url) or "@" in parts.netloc or parts.fragment:
        raise ValueError("it has characters that could be read in two ways")
    scheme = Scheme(parts.scheme)
    if scheme is not Scheme.HTTPS and (parts.query or "?" in url):
        raise ValueError("only https URLs have a query")
    if (scheme is Scheme.FILE) != (parts.netloc == ""):
        raise ValueError("its host is missing, or a file has one")
    segments = parts.path.split("/")
    if not parts.path.startswith("/") or {".", ".."} & set(segments) or "" in segments[1:-1]:
        raise ValueError("its path is not plain")
    path = parts.path if scheme is Scheme.HTTPS else unquote(parts.path, errors="strict")
    host = parts.netloc.lower() if scheme is Scheme.HTTPS else parts.netloc
    port = parts.port  # ValueError if it is none
    return Location(
        scheme=scheme,
        host=host.removesuffix(":443") if port == 443 else host,
        path=path,
    )


class Places:
    """Where attachments may be fetched from: what lies below one of these URLs. None: nothing is fetched."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = [_place(url) for url in allowed]

    def __bool__(self) -> bool:
        return bool(self._allowed)

    def find(self, url: str) -> tuple[Location, Location]:
        """The reference taken apart and the place that allows it; BadMessage if none does."""
        try:
            found = locate(url)
        except ValueError as error:
            raise BadMessage(f"an attachment's url cannot be used: {error}") from error
        for place in self._allowed:
            same = (place.scheme, place.host) == (found.scheme, found.host)
            if same and found.path.startswith(place.path) and found.path != place.path:
                return found, place
        raise BadMessage(
            "an attachment's url is in no place that MAILSTREAMS_ATTACHMENT_PLACES allows: name one there, or move the file"
        )


def _place(url: str) -> Location:
    ends = url if url.endswith("/") else f"{url}/"
    try:
        found = locate(ends)
    except ValueError as error:
        raise Misconfigured(
            f"MAILSTREAMS_ATTACHMENT_PLACES: {url} is not like https://host/path/, s3://bucket/prefix/ or file:///directory/ ({error})"
        ) from error
    if found.scheme is Scheme.FILE and found.path == "/":
        raise Misconfigured("MAILSTREAMS_ATTACHMENT_PLACES: file:/// would be every file")
    return found
