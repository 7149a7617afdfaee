"""Whom a notification of SES is about. The address in a report may be spelled oddly, or be the one that mail was forwarded to."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from streams.domain.addresses import normalise
from streams.domain.mailboxes import bare_address

_EMPTY: Final[Mapping[str, Any]] = {}


class Named(NamedTuple):
    """A recipient as we know it, and what the notification says of it."""

    address: str
    entry: Mapping[str, Any] = _EMPTY


def destinations(mail: Mapping[str, Any]) -> list[str]:
    """The addresses that the mail went to, each once."""
    listed = mail.get("destination")
    listed = listed if isinstance(listed, list) else [listed]
    bare = [bare_address(spelled) for spelled in listed if isinstance(spelled, str)]
    found = [address for address in bare if address is not None]
    if len(found) < 2:
        return found
    return list({normalise(address): address for address in found}.values())


def named_recipients(
    mail: Mapping[str, Any], detail: Mapping[str, Any], field: str | None, sent_to: Sequence[str]
) -> tuple[list[Named], int]:
    """The recipients, and how many entries could not be told. Never is a recipient guessed among several destinations."""
    if field is None:
        return [Named(address) for address in sent_to], 0
    entries = [_entry(member) for member in _listed(detail.get(field))]
    if len(sent_to) == 1 and not _has_several(mail):
        return [Named(sent_to[0], entry) for _, entry in entries] or [Named(sent_to[0])], 0
    if not entries:
        return [], 1
    known = {_comparable(address): address for address in sent_to}
    told = [(bare_address(spelled), entry) for spelled, entry in entries]
    named = [
        Named(known.get(_comparable(bare), bare), entry) for bare, entry in told if bare is not None
    ]
    return named, len(told) - len(named)


def _has_several(mail: Mapping[str, Any]) -> bool:
    """Several different destinations are named, of which some may be unreadable."""
    listed = mail.get("destination")
    if not isinstance(listed, list) or len(listed) < 2:
        return False
    return len({normalise(text) for text in listed if isinstance(text, str)}) > 1


def _listed(value: object) -> Sequence[object]:
    if isinstance(value, list):
        return value
    return () if value is None else (value,)


def _entry(member: object) -> tuple[str, Mapping[str, Any]]:
    if isinstance(member, dict):
        spelled = member.get("emailAddress")
        return (spelled if isinstance(spelled, str) else ""), member
    return (member if isinstance(member, str) else ""), _EMPTY


def _comparable(address: str) -> str:
    """Also without the quotes that an MTA may put around a local part."""
    local, _, domain = normalise(address).rpartition("@")
    if len(local) > 2 and local[0] == local[-1] == '"':
        local = local[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return f"{local}@{domain}"
