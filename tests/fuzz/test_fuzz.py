"""The short form of the fuzz run over the endpoint, and proofs that it would notice."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from aiohttp import web

from streams.domain.sns import Reason
from streams.events import Events
from streams.intake import Intake, Verdict
from tests.fuzz.campaign import Report, campaign, made_input
from tests.fuzz.endpoint import Effects
from tests.fuzz.judge import is_acceptable
from tests.fuzz.originals import originals


async def test_nothing_that_was_changed_is_accepted_and_nothing_breaks() -> None:
    report = await campaign("mailstreams", 2_000)
    assert not report.findings, "\n".join(report.lines())
    assert report.inputs == 2_000
    assert {"neutral", "headers", "chunks"} <= report.accepted.keys()
    assert len(report.kinds) == 25


async def test_a_forgery_that_is_accepted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.intake.is_genuine", lambda *_: True)
    report = await campaign("mailstreams", 300)
    assert any(finding.startswith("accepted") for finding in report.findings)


async def test_an_event_of_a_refused_request_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = Intake.receive

    async def leaking(self: Intake, body: bytes, **given: object) -> Verdict:
        verdict = await receive(self, body, **given)  # type: ignore[arg-type]
        if verdict.reason is Reason.BAD_SIGNATURE:
            await self.keep(body, why="leaked", now=datetime.now(UTC))
        return verdict

    monkeypatch.setattr(Intake, "receive", leaking)
    report = await campaign("mailstreams", 200)
    assert any("kept instead of" in finding for finding in report.findings)


async def test_an_error_of_ours_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> web.Response:
        raise KeyError

    monkeypatch.setattr(Events, "_post", broken)
    report = await campaign("mailstreams", 50)
    assert any(finding.startswith("answer 500") for finding in report.findings)


async def test_a_genuine_envelope_that_is_refused_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.intake.is_genuine", lambda *_: False)
    report: Report = await campaign("mailstreams", 100)
    assert any(finding.startswith("refused although genuine") for finding in report.findings)


def test_inputs_follow_from_seed_and_number() -> None:
    starts = originals()

    def kinds(numbers: Sequence[int]) -> list[tuple[str, int]]:
        made = [made_input("seed", number, starts) for number in numbers]
        return [(given.kind, len(given.body)) for given in made]

    assert kinds(range(50)) == kinds(range(50))


def test_the_judge_knows_every_original_and_no_change_of_what_is_signed() -> None:
    for original in originals():
        assert is_acceptable(original.body, original)
        for name in ("Message", "MessageId", "Timestamp", "TopicArn", "SigningCertURL"):
            body = original.body.replace(str(original.fields[name])[:10].encode(), b"0123456789", 1)
            if body != original.body:
                assert not is_acceptable(body, original)


def test_effects_begin_at_nothing() -> None:
    assert Effects().events == 0
