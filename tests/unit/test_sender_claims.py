"""Claimed rows are decoded one by one: what cannot be read is a value, and its neighbours go out."""

from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

import pytest

from streams.adapters.outbox_store import OutboxStore
from streams.adapters.postgres import Database
from streams.domain.attempts import AttemptId, Claim, ClaimRequest, OutcomeKind, Verdict
from streams.domain.outcomes import undecodable
from tests.unit.test_sender_outcomes import NOW

ROW: dict[str, Any] = {
    "verdict": "claimed",
    "attempts": 2,
    "tenant": "shop",
    "lane": "bulk",
    "recipient": "ann@example.com",
    "recipient_key": "f" * 32,
    "sender": "shop@example.com",
    "subject": "Hello",
    "text": "Hi",
} | dict.fromkeys(
    [
        "cc",
        "cc_keys",
        "bcc",
        "bcc_keys",
        "left_out",
        "sender_name",
        "reply_to",
        "html",
        "template",
        "template_version",
        "variables",
        "headers",
        "attachments",
        "tags",
        "traceparent",
    ]
)


class Rows:
    """A database that answers with these rows."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._rows = rows

    async def rows(self, _: str, *__: Any) -> list[dict[str, Any]]:
        return list(self._rows)


async def claims_of(*changes: dict[str, Any]) -> list[Claim]:
    rows = [
        ROW | {"id": UUID(int=n), "attempt_id": UUID(int=100 + n)} | change
        for n, change in enumerate(changes)
    ]
    store = OutboxStore(cast(Database, Rows(rows)), max_attempts=5)
    asked = [
        ClaimRequest(id=row["id"], attempt_id=AttemptId(row["attempt_id"]), xid=3) for row in rows
    ]
    return await store.claim(asked, lease_s=45.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"variables": '{"n": 1' + "0" * 400 + ', "t": "SECRET"}'}, "variables cannot be read"),
        ({"variables": '{"n": 1e400}'}, "variables cannot be read"),
        ({"variables": '{"t": ' + "[" * 1500 + "]" * 1500 + "}"}, "variables cannot be read"),
        ({"tags": "[]"}, "tags is not a JSON object"),
        ({"cc": [["SECRET", "b"]], "cc_keys": ["1", "2"]}, "cc is not a plain list"),
        ({"bcc": [["SECRET"]], "bcc_keys": ["1"]}, "bcc is not a plain list"),
        ({"cc": ["SECRET", None], "cc_keys": ["1", "2"]}, "cc is not a plain list"),
        ({"lane": "SECRET"}, r"the row cannot be read \(ValueError\)"),
    ],
)
async def test_row_that_cannot_be_decoded_ends_alone_and_its_reason_quotes_nothing(
    change: dict[str, Any], reason: str
) -> None:
    before, bad, after = await claims_of({}, change, {})
    assert before.email is not None
    assert after.email is not None
    assert (bad.verdict, bad.email) == (Verdict.CLAIMED, None)
    assert bad.undecodable is not None
    outcome = undecodable(bad.undecodable, finished=NOW)
    assert (outcome.kind, outcome.attempt_id.int, outcome.number) == (
        OutcomeKind.UNSENDABLE,
        101,
        2,
    )
    with pytest.raises(ValueError, match=reason):
        raise ValueError(outcome.reason)
    assert "SECRET" not in str(outcome.reason)
