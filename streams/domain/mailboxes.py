"""Mail addresses as mail systems spell them."""

import re
from encodings.idna import nameprep
from typing import Final

from streams.domain.addresses import normalise

MAILBOX_SIMULATOR: Final = "simulator.amazonses.com"

_LONGEST: Final = 1000
_PLAIN: Final = re.compile(
    r"([A-Za-z0-9.!#$%&*+/=?^_`{|}~-]+)@([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)"
)
_PREFIX: Final = re.compile(r"(?:rfc822|utf-8|smtp|mailto)\s*[;:]\s*", re.IGNORECASE)
_NAMED: Final = re.compile(r"(.*)<([^<>]*)>\s*", re.DOTALL)
_LAST_ANGLE: Final = re.compile(r"<([^<>]*)>[^<>]*\Z")
_DOMAIN: Final = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-z:.]+\]")
_DOTS: Final = re.compile("[.\u3002\uff0e\uff61]")
_INVISIBLE: Final = re.compile(
    "[\\s\u00ad\u034f\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]"
)
_HYPHEN: Final = re.compile("(?:^|[.\u3002\uff0e\uff61])-|-(?:$|[.\u3002\uff0e\uff61])")
_DEVIATING: Final = re.compile("([ßẞς])")
_LOCAL: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s<>()\[\]",;:@\\\x00-\x1f\x7f]+', re.DOTALL)


def bare_address(spelled: str) -> str | None:
    """local@domain out of display names, angle brackets, comments, `rfc822;` and a trailing dot; None if there is none.

    The domain becomes lower-case ASCII (IDN as punycode). The local part stays as given: quotes and encoded words belong to it.
    """
    if len(spelled) > _LONGEST:
        return None
    if (plain := _PLAIN.fullmatch(spelled)) is not None and len(plain[2]) <= 255:
        return f"{plain[1]}@{plain[2].lower()}"
    address = _split(_address_part(spelled))
    if address is None:
        return None
    local, domain = address
    ascii_domain = _ascii_domain(domain)
    if ascii_domain is None or not _LOCAL.fullmatch(local):
        return None
    return f"{local}@{ascii_domain}"


def name_and_address(spelled: str) -> tuple[str | None, str]:
    """The display name before an address in angle brackets, without its quotes, and the address; (None, as given) without brackets."""
    found = _NAMED.fullmatch(spelled)
    if found is None:
        return None, spelled
    name, address = found[1].strip(" \t"), found[2].strip(" \t")
    if len(name) > 1 and name[0] == name[-1] == '"':
        name = re.sub(r"\\(.)", r"\1", name[1:-1], flags=re.DOTALL)
    return name or None, address


def ascii_domain_of(address: str) -> str:
    """The address, trimmed, with its domain in ASCII if that can be written so; else unchanged, for others to refuse.

    What is not assigned in the Unicode of internationalised domains, or vanishes there, has no ASCII form: a zero-width space
    in a domain is a mistake and not the domain without it.
    """
    local, at, domain = address.strip().rpartition("@")
    if not at or domain.isascii() or _INVISIBLE.search(domain) or _HYPHEN.search(domain):
        return address.strip()
    ascii_domain = _ascii_domain(domain)
    return f"{local}@{ascii_domain}" if ascii_domain else address.strip()


def is_mailbox_simulator(address: str) -> bool:
    """An address of SES's mailbox simulator: it never counts in a rate."""
    return normalise(address).endswith("@" + MAILBOX_SIMULATOR)


def _address_part(spelled: str) -> str:
    """What stands in angle brackets, else everything that is no comment."""
    outside, angle = _scan(spelled)
    if outside is None:
        found = _LAST_ANGLE.search(spelled)
        return found[1] if found else spelled
    return outside if angle is None else angle


def _scan(text: str) -> tuple[str | None, str | None]:
    """The text outside of comments and angle brackets, and what the last angle brackets hold; None for unbalanced text."""
    outside: list[str] = []
    angle: str | None = None
    at = 0
    while at < len(text):
        char = text[at]
        end = _END.get(char, _single)(text, at)
        if end < 0:
            return None, None
        if char == "<":
            angle = text[at + 1 : end - 1]
        elif char != "(":
            outside.append(text[at:end])
        at = end
    return "".join(outside), angle


def _single(_: str, at: int) -> int:
    return at + 1


def _quoted_end(text: str, at: int) -> int:
    at += 1
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == '"':
            return at + 1
        at += 1
    return -1


def _comment_end(text: str, at: int) -> int:
    depth = 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == "(":
            depth += 1
        elif text[at] == ")":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return -1


def _angle_end(text: str, at: int) -> int:
    while at < len(text):
        if text[at] == '"':
            at = _quoted_end(text, at)
            if at < 0:
                return -1
            continue
        if text[at] == ">":
            return at + 1
        at += 1
    return -1


_END: Final = {'"': _quoted_end, "(": _comment_end, "<": _angle_end}


def _split(text: str) -> tuple[str, str] | None:
    address = text.strip(" \t\r\n<>,;")
    if len(address) > 1 and address[0] == address[-1] and address[0] in "'\"":
        address = address[1:-1]
    address = _PREFIX.sub("", address, count=1) if _PREFIX.match(address) else address
    if address.startswith("@") and ":" in address:  # a source route
        address = address.partition(":")[2]
    local, at, domain = address.rpartition("@")
    return (local.strip(), domain.strip().rstrip(".")) if at else None


def _ascii_domain(domain: str) -> str | None:
    if not domain or len(domain) > 255:
        return None
    try:
        text = domain.lower() if domain.isascii() else _punycode(domain)
    except UnicodeError:
        return None
    return text if _DOMAIN.fullmatch(text) else None


def _punycode(domain: str) -> str:
    """The codec has the rules of 2003, by which "straße" is the domain "strasse": somebody else's since those of 2008."""
    if not _DEVIATING.search(domain):
        return domain.encode("idna").decode().lower()
    return ".".join(map(_label, _DOTS.split(domain)))


def _label(label: str) -> str:
    if not _DEVIATING.search(label):
        return label.encode("idna").decode().lower()
    parts = _DEVIATING.split(label.replace("ẞ", "ß"))
    prepared = "".join(part if _DEVIATING.fullmatch(part) else nameprep(part) for part in parts)
    encoded = "xn--" + prepared.encode("punycode").decode()
    if len(encoded) > 63:
        raise UnicodeError("label too long")
    return encoded
