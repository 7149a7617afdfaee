"""Compares what became of a ses_event variant with its expectations."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from streams.domain.addresses import normalise, recipient_key
from tests.cases.differences import Difference
from tests.cases.matching import unmatched
from tests.cases.placeholders import texts
from tests.cases.recipients_state import RecipientsState, Suppressed
from tests.cases.records import Published
from tests.cases.words import fits
from tests.conftest import SALT
from tests.integration.outbox_rows import Row

Expect = Mapping[str, Any]
_DAY: Final = timedelta(days=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_WORD: Final = re.compile(r"[^\s<>()\[\]{},;:\"'&/]+")
# SES takes no such local part, so that a product may refuse the insert: nobody is mailed. The suppression is there all the same.
_NOT_TAKEN_BY_SES: Final = re.compile(r'[^\x00-\x7f].*@|"')
_ADDRESS: Final = re.compile(r"[\w.+=?-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")


def key_of(address: str) -> str:
    return recipient_key(address, SALT)


def with_key(address: str) -> str:
    """As reports name a recipient, so that a key that was found can be told from the wanted one."""
    return f"{address} (key {key_of(address)})"


def named(key: str, addresses: Mapping[str, str]) -> str:
    return with_key(addresses[key]) if key in addresses else f"key {key}"


def events(expect: Expect, found: Sequence[Published]) -> list[Difference]:
    """A complete pairing of the expected with the published ones."""
    slots = [
        (entry, entry.get("optional", False))
        for entry in expect["events"]
        for _ in range(entry.get("count", 1))
    ]
    missing, extra = unmatched(slots, found, _is)
    if not missing and not extra:
        return []
    names = {key_of(e["recipient"]): e["recipient"] for e in expect["events"]}
    return [
        Difference(
            key="events, those that fit left out",
            expected=[e | {"recipient": with_key(e["recipient"])} for e in missing],
            found=[_shown(event, names) for event in extra],
        )
    ]


def _is(entry: Mapping[str, Any], event: Published) -> bool:
    kinds = entry["type"] if isinstance(entry["type"], list) else [entry["type"]]
    return (
        event.type in kinds
        and event.key == key_of(entry["recipient"])
        and ("bounce" not in entry or event.bounce in entry["bounce"])
        and ("reason" not in entry or event.reason in entry["reason"])
        and ("time" not in entry or _same(event.time, entry["time"]))
    )


def _same(found: datetime, text: str) -> bool:
    return abs(found - datetime.fromisoformat(text)) < _MILLISECOND


def _shown(event: Published, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "type": event.type,
        "recipient": named(event.key, names),
        "time": event.time.isoformat(),
        "bounce": event.bounce,
        "reason": event.reason,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressions:
    """Table suppression as it was right after the fold."""

    rows: Sequence[Suppressed]
    times: Mapping[str, Sequence[datetime]]
    """When the events of each recipient were, by key."""

    def differences(self, expect: Expect) -> list[Difference]:
        return [*self._complete(expect), *self._reasons(expect), *self._expiry(expect)]

    def _complete(self, expect: Expect) -> list[Difference]:
        wanted = {key_of(e["recipient"]): e["recipient"] for e in expect["suppressed"]}
        free = {key_of(a) for a in expect.get("may_be_suppressed") or ()}
        there = {row.key for row in self.rows} - free
        if there == set(wanted):
            return []
        lists = [sorted(named(key, wanted) for key in keys) for keys in (wanted, there)]
        return [Difference(key="suppressed", expected=lists[0], found=lists[1])]

    def _reasons(self, expect: Expect) -> list[Difference]:
        """One row at least for each entry, and none for a reason that no entry names."""
        found = []
        for key, entries in _by_key(expect["suppressed"]).items():
            reasons = [row.reason for row in self.rows if row.key == key]
            allowed = [entry["reason"] for entry in entries]
            named = {reason for words in allowed for reason in words}
            if reasons and (
                set(reasons) - named or any(not set(words) & set(reasons) for words in allowed)
            ):
                found.append(
                    Difference(
                        key=f"suppressed: {entries[0]['recipient']}: reason",
                        expected=allowed,
                        found=reasons,
                    )
                )
        return found

    def _expiry(self, expect: Expect) -> list[Difference]:
        found = []
        for entry in expect["suppressed"]:
            days = entry.get("for_days")
            key = key_of(entry["recipient"])
            rows = [r for r in self.rows if r.key == key and r.reason in entry["reason"]]
            if days is not None and not any(self._lasts(row, days) for row in rows):
                until = [None if row.expires is None else row.expires.isoformat() for row in rows]
                found.append(
                    Difference(
                        key=f"suppressed: {entry['recipient']}: for_days",
                        expected=f"{days} days after its cause, ± 1",
                        found=until,
                    )
                )
        return found

    def _lasts(self, row: Suppressed, days: int) -> bool:
        """From its evidence, which has to be one of the recipient's events."""
        if row.expires is None or row.evidence_at is None:
            return False
        caused = any(abs(row.evidence_at - t) <= _MILLISECOND for t in self.times.get(row.key, ()))
        return caused and abs(row.expires - row.evidence_at - days * _DAY) <= _DAY


def _by_key(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for entry in entries:
        found.setdefault(key_of(entry["recipient"]), []).append(entry)
    return found


async def new_sends(expect: Expect, state: RecipientsState) -> list[Difference]:
    """What becomes of new mail to those that are named."""
    stopped = [
        (address, reasons)
        for entries in _by_key(expect["suppressed"]).values()
        for reasons in [sorted({reason for entry in entries for reason in entry["reason"]})]
        for entry in entries
        for address in [entry["recipient"], *entry.get("spellings", ())]
    ]
    allowed = expect["not_suppressed"] or ()
    became = await state.claimed([*(address for address, _ in stopped), *allowed])
    found = []
    for address, reasons in stopped:
        row_state, reason = became[address]
        if row_state == "refused" and _NOT_TAKEN_BY_SES.search(address):
            continue
        if row_state != "suppressed" or reason not in reasons:
            found.append(
                Difference(
                    key=f"new mail to {address}",
                    expected=f"suppressed for one of {reasons}",
                    found=f"{row_state}, {reason}",
                )
            )
    for address in allowed:
        row_state, reason = became[address]
        if row_state != "sending":
            found.append(
                Difference(
                    key=f"new mail to {address}",
                    expected="is claimed for sending",
                    found=f"{row_state}, {reason}",
                )
            )
    return found


async def facts(expect: Expect, state: RecipientsState, sent: Sequence[Row]) -> list[Difference]:
    """recipient_outcome, row_states and soft_bounce_streak."""
    found = []
    for recipient, wanted in (expect.get("recipient_outcome") or {}).items():
        outcome = await state.outcome(recipient)
        for fact, is_so in wanted.items():
            good = is_so in outcome[fact] if fact == "bounced" else outcome[fact] is is_so
            if not good:
                key = f"recipient_outcome: {recipient}: {fact}"
                found.append(Difference(key=key, expected=is_so, found=outcome[fact]))
    states = await state.row_states(sent)
    for number, allowed in enumerate(expect.get("row_states") or (), 1):
        if states[number - 1] not in allowed:
            found.append(
                Difference(
                    key=f"row_states: {number}",
                    expected=f"one of {allowed}",
                    found=states[number - 1],
                )
            )
    for recipient, count in (expect.get("soft_bounce_streak") or {}).items():
        streak = await state.streak(recipient)
        if not fits(streak, count):
            key = f"soft_bounce_streak: {recipient}"
            found.append(Difference(key=key, expected=count, found=streak))
    return found


def rates(expect: Expect, added: Mapping[str, float]) -> list[Difference]:
    return [
        Difference(key=f"rates: {key}", expected=count, found=added[key])
        for key, count in (expect["rates"] or {}).items()
        if not fits(added[key], count)
    ]


def leaks(variant: Mapping[str, Any], places: Mapping[str, Sequence[str]]) -> list[Difference]:
    """Addresses of the variant's people that stand where none may."""
    return leaks_of([variant["sent"], variant["deliveries"], _named(variant["expect"])], places)


def leaks_of(value: Any, places: Mapping[str, Sequence[str]]) -> list[Difference]:
    """Addresses in the texts of a value that stand where none may."""
    people = set()
    for text in texts(value):
        words = (word for word in _WORD.findall(text) if "@" in word)
        people |= {normalise(a) for word in words for a in _ADDRESS.findall(word)}
    found = []
    for place, lines in places.items():
        shown = "\n".join(lines).lower()
        seen = sorted(address for address in people if address in shown)
        if seen:
            found.append(Difference(key=place, expected="no address", found=seen))
    return found


def _named(expect: Expect) -> list[Any]:
    keys = ("events", "suppressed", "not_suppressed", "may_be_suppressed")
    return [expect.get(key) or [] for key in keys]
