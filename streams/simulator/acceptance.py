"""Whether a call is accepted: validation, identities, switches, limits, then the ledger."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from streams.simulator.account import Account
from streams.simulator.addresses import is_mailbox_simulator
from streams.simulator.bulk_email import BulkCall, read_send_bulk_email
from streams.simulator.bulk_script import SUCCESS, BulkScript, status_of
from streams.simulator.configuration_sets import ConfigurationSet, ConfigurationSets
from streams.simulator.event_publisher import EventPublisher
from streams.simulator.event_records import provider_id
from streams.simulator.faults import AnswerGate, FaultScript
from streams.simulator.identities import Identities
from streams.simulator.ledger import Acceptance, Ledger
from streams.simulator.outcomes import ON_ACCOUNT_LIST, Fate, Outcome, Rule, outcome_for
from streams.simulator.refusals import RefusedError, sending_paused
from streams.simulator.send_email import Submission, read_send_email
from streams.simulator.suppression_list import SuppressionList
from streams.simulator.templates import Templates

_INFECTED = Outcome(fate=Fate.REJECT)


@dataclass(slots=True, kw_only=True)
class SendingState:
    """What decides about a call and remembers it; the control API changes it."""

    account: Account
    suppression: SuppressionList
    sets: ConfigurationSets
    identities: Identities
    templates: Templates
    ledger: Ledger
    faults: FaultScript
    answers: AnswerGate
    bulk: BulkScript = field(default_factory=BulkScript)
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A call that is answered with 200: what it says, and the messages that it brought."""

    document: dict[str, Any]
    acceptances: tuple[Acceptance, ...]


class Acceptor:
    """Accepts in one step: a caller that goes away changes nothing."""

    def __init__(self, *, state: SendingState, events: EventPublisher, region: str) -> None:
        self._state = state
        self._events = events
        self._region = region

    def send_email(self, body: bytes, source_ip: str) -> Accepted:
        state = self._state
        submission = read_send_email(body, state.sets, state.templates)
        submission = self._with_default_set(submission)
        self._check_identities(submission.source, submission.recipients)
        self._check_set(submission.configuration_set)
        state.account.admit(**_counted(submission), now=time.monotonic())
        acceptance = self._accept(submission, body, source_ip)
        return Accepted(document={"MessageId": acceptance.message_id}, acceptances=(acceptance,))

    def send_bulk_email(self, body: bytes, source_ip: str) -> Accepted:
        """The call is refused for what is common, and when no rate is left; else entry by entry."""
        state = self._state
        call = read_send_bulk_email(body, state.sets, state.templates)
        self._check_identities(call.source, _bulk_recipients(call))
        name = call.configuration_set or state.identities.default_set(call.source)
        self._check_set(name)
        state.account.check_open()
        state.account.check_rate(time.monotonic())
        results: list[dict[str, Any]] = []
        acceptances: list[Acceptance] = []
        for entry, request in zip(call.entries, call.requests, strict=True):
            try:
                acceptance = self._accept_entry(entry, orjson.dumps(request), source_ip)
            except _EntryRefusedError as refused:
                results.append({"Status": refused.status, "Error": refused.error})
            else:
                acceptances.append(acceptance)
                results.append({"Status": SUCCESS, "MessageId": acceptance.message_id})
        return Accepted(document={"BulkEmailEntryResults": results}, acceptances=tuple(acceptances))

    def _accept_entry(
        self, entry: Submission | RefusedError, request: bytes, source_ip: str
    ) -> Acceptance:
        if isinstance(entry, RefusedError):
            raise _EntryRefusedError(status_of(entry.code), entry.message)
        scripted = self._state.bulk.next_status(entry.recipients)
        if scripted is not None:
            raise _EntryRefusedError(scripted.status, scripted.error)
        try:
            self._state.account.admit_entry(**_counted(entry), now=time.monotonic())
        except RefusedError as error:
            raise _EntryRefusedError(status_of(error.code), error.message) from error
        return self._accept(self._with_default_set(entry), request, source_ip)

    def _accept(self, submission: Submission, request: bytes, source_ip: str) -> Acceptance:
        now = time.time()
        acceptance = self._state.ledger.accept(
            submission,
            message_id=provider_id(now),
            now=now,
            outcomes=self._outcomes(submission),
            request=request,
        )
        self._events.plan(acceptance, source_ip=source_ip)
        return acceptance

    def _outcomes(self, submission: Submission) -> dict[str, Outcome]:
        if submission.rendering_error is not None:
            failed = Outcome(
                fate=Fate.RENDERING_FAILURE,
                template_name=submission.template_name or "",
                error=submission.rendering_error,
            )
            return dict.fromkeys(submission.recipients, failed)
        if submission.infected:
            return dict.fromkeys(submission.recipients, _INFECTED)
        reasons = self._suppressed_reasons(submission)
        return {address: self._outcome(address, reasons) for address in submission.recipients}

    def _outcome(self, address: str, reasons: tuple[str, ...]) -> Outcome:
        entry = self._state.suppression.get(address)
        if entry is not None and entry.reason in reasons:
            return ON_ACCOUNT_LIST
        return outcome_for(address, self._state.rules)

    def _suppressed_reasons(self, submission: Submission) -> tuple[str, ...]:
        """Those of the configuration set if it has its own, else those of the account."""
        found = self._set(submission.configuration_set)
        if found is None or found.suppressed_reasons is None:
            return self._state.account.suppressed_reasons
        return found.suppressed_reasons

    def _with_default_set(self, submission: Submission) -> Submission:
        """With the configuration set of the identity, if the call names none."""
        if submission.configuration_set is not None:
            return submission
        default = self._state.identities.default_set(submission.source)
        return submission if default is None else replace(submission, configuration_set=default)

    def _check_identities(self, source: str, recipients: tuple[str, ...]) -> None:
        self._state.identities.check(
            source=source,
            recipients=recipients,
            sandbox=not self._state.account.production_access,
            region=self._region,
        )

    def _check_set(self, name: str | None) -> None:
        found = self._set(name)
        if found is not None and not found.sending_enabled:
            raise sending_paused(f"configuration set <{name}>")

    def _set(self, name: str | None) -> ConfigurationSet | None:
        return None if name is None else self._state.sets.find(name)


class _EntryRefusedError(Exception):
    """One entry of a bulk call has no success."""

    def __init__(self, status: str, error: str) -> None:
        super().__init__(status)
        self.status = status
        self.error = error


def _counted(submission: Submission) -> dict[str, int]:
    recipients = submission.recipients
    return {
        "recipients": len(recipients),
        "counted": sum(not is_mailbox_simulator(address) for address in recipients),
    }


def _bulk_recipients(call: BulkCall) -> tuple[str, ...]:
    return tuple(_addresses(call))


def _addresses(call: BulkCall) -> Iterator[str]:
    for entry in call.entries:
        if isinstance(entry, Submission):
            yield from entry.recipients
