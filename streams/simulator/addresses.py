"""The address syntax that SES accepts, and SES's words for what it refuses."""

import re

from streams.simulator.refusals import bad_request

SIMULATOR_DOMAIN = "simulator.amazonses.com"
_QUOTED = re.compile(r'"(?:[^"\\\r\n]|\\[^\r\n])*"')
_LOCAL_SPECIALS = frozenset('()<>,;:\\"[]@')
_DOMAIN = re.compile(r"[A-Za-z0-9.-]+")
_PLAIN = re.compile(r"[A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*@[a-z0-9]+(?:\.[a-z0-9]+)+")
"""What most addresses look like; it passes all the checks below."""


def mailbox_address(mailbox: str) -> str:
    """The bare address of `address` or `Name <address>`; anything else is a BadRequestException."""
    if len(mailbox) <= 64 and _PLAIN.fullmatch(mailbox):
        return mailbox
    text = mailbox.strip()
    if any(character in text for character in "\r\n\0"):
        raise bad_request("Address contains control characters")
    if text.endswith(">"):
        name, _, address = text[:-1].rpartition("<")
        _check_display_name(name.strip())
    else:
        address = text
    _check_address(address.strip())
    return address.strip()


def domain_of(address: str) -> str:
    return address.rpartition("@")[2].lower()


def is_mailbox_simulator(address: str) -> bool:
    return domain_of(address) == SIMULATOR_DOMAIN


def _check_display_name(name: str) -> None:
    if not name.isascii():
        raise bad_request("Display name contains non-ASCII characters; encode it by RFC 2047")
    if not name or _QUOTED.fullmatch(name):
        return
    if any(character in name for character in '<>@,;:"'):
        raise bad_request("Missing final '@domain'")


def _check_address(address: str) -> None:
    local, at, domain = address.rpartition("@")
    if not at or not domain:
        raise bad_request("Missing final '@domain'")
    _check_local(local)
    check_domain(domain)
    if len(address) > 320:
        raise bad_request("Address length is more than 320 characters long")


def _check_local(local: str) -> None:
    if not local:
        raise bad_request("Missing local name")
    if not local.isascii():
        raise bad_request("Local address contains non-ASCII characters")
    if len(local) > 64:
        raise bad_request("Local address length is more than 64 characters long")
    if _QUOTED.fullmatch(local):
        return
    if any(character <= " " or character == "\x7f" for character in local):
        raise bad_request("Local address contains control or whitespace")
    if not _LOCAL_SPECIALS.isdisjoint(local):
        raise bad_request("Local address contains illegal character")
    if local.startswith("."):
        raise bad_request("Local address starts with dot")
    if local.endswith("."):
        raise bad_request("Local address ends with dot")
    if ".." in local:
        raise bad_request("Local address contains dot-dot")


def check_domain(domain: str) -> None:
    """A BadRequestException unless it is a domain name in ASCII."""
    if any(character <= " " or character >= "\x7f" for character in domain):
        raise bad_request("Domain contains control or whitespace")
    if not _DOMAIN.fullmatch(domain):
        raise bad_request("Domain contains illegal character")
    if domain.startswith("."):
        raise bad_request("Domain starts with dot")
    if domain.endswith("."):
        raise bad_request("Domain ends with dot")
    if ".." in domain:
        raise bad_request("Domain contains dot-dot")
    labels = domain.split(".")
    if len(domain) > 253 or any(len(label) > 63 for label in labels):
        raise bad_request("Domain is too long")
    if any(label.startswith("-") or label.endswith("-") for label in labels):
        raise bad_request("Domain contains illegal character")
