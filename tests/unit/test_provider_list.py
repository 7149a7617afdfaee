"""What a page of the provider's list comes to, and the pace of calls."""

from datetime import UTC, datetime, timedelta

from streams.domain.addresses import recipient_key
from streams.domain.provider_list import (
    LONGEST_PAUSE,
    Call,
    ListedAddress,
    Outcome,
    is_answered,
    pause_after,
    recipients_of,
)

SALT = b"0123456789abcdef"
AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
PACE = timedelta(seconds=2)


def test_each_recipient_comes_once_with_the_latest_time() -> None:
    found = recipients_of(
        [
            ListedAddress(address="ann@example.com", updated=AT),
            ListedAddress(address="ANN@example.com", updated=AT + timedelta(days=1)),
            ListedAddress(address="not an address", updated=AT),
        ],
        salt=SALT,
        read_at=AT,
    )
    (ann,) = found.listed
    assert ann.recipient_key == recipient_key("ann@example.com", SALT)
    assert ann.listed_at == AT + timedelta(days=1)
    assert (found.entries, found.unusable) == (3, 1)


def test_the_same_entry_is_the_same_evidence_and_tells_no_address() -> None:
    entry = ListedAddress(address="ann@example.com", updated=AT)
    first, second = (
        recipients_of([entry], salt=SALT, read_at=AT + timedelta(days=n)) for n in range(2)
    )
    assert first == second
    key = recipient_key("ann@example.com", SALT)
    assert first.listed[0].evidence_id == f"ses-list:{key}:2026-01-02T03:04:05.678+00:00"


def test_an_entry_without_a_time_is_as_old_as_its_reading() -> None:
    entry = ListedAddress(address="ann@example.com", updated=None)
    assert recipients_of([entry], salt=SALT, read_at=AT).listed[0].listed_at == AT


def test_pauses_grow_with_every_failure_up_to_a_bound() -> None:
    pauses = [pause_after(n, pace=PACE) for n in range(1, 100)]
    assert pauses[:3] == [timedelta(seconds=s) for s in (4, 8, 16)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE


def test_one_refused_address_does_not_hold_up_the_next() -> None:
    assert is_answered(Call.UNLIST, Outcome.REFUSED)
    assert not is_answered(Call.LIST, Outcome.REFUSED)
    assert not is_answered(Call.UNLIST, Outcome.DENIED)
