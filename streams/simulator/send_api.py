"""SendEmail: refuse, accept, or lie when told so."""

import asyncio
import time
from dataclasses import dataclass

from aiohttp import web

from streams.simulator import connections, rest_answers
from streams.simulator.account import Account
from streams.simulator.addresses import is_mailbox_simulator
from streams.simulator.event_publisher import EventPublisher
from streams.simulator.event_records import provider_id
from streams.simulator.faults import AnswerGate, Fault, FaultScript, Lie, When
from streams.simulator.ledger import Acceptance, Answer, Ledger
from streams.simulator.outcomes import ON_ACCOUNT_LIST, Outcome, Rule, outcome_for
from streams.simulator.refusals import RefusedError, not_verified
from streams.simulator.requests import read_body, signed_request
from streams.simulator.send_email import Submission, read_send_email, sender_identities
from streams.simulator.settings import SimulatorSettings
from streams.simulator.sigv4 import SignatureVerifier, ses_scope
from streams.simulator.suppression_list import SuppressionList


@dataclass(slots=True, kw_only=True)
class SendingState:
    """What decides about a call and remembers it; the control API changes it."""

    account: Account
    suppression: SuppressionList
    ledger: Ledger
    faults: FaultScript
    answers: AnswerGate
    rules: tuple[Rule, ...] = ()


class SendApi:
    """Handles SendEmail. A call is accepted in one step: a caller that goes away changes nothing."""

    def __init__(
        self,
        *,
        settings: SimulatorSettings,
        state: SendingState,
        events: EventPublisher,
        verifier: SignatureVerifier,
    ) -> None:
        self._settings = settings
        self._state = state
        self._events = events
        self._verifier = verifier
        self._scope = ses_scope(settings.region)
        self._late: set[asyncio.Task[Acceptance | RefusedError]] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await read_body(request)
            self._verifier.verify(signed_request(request, body), self._scope, time.time())
        except RefusedError as error:
            return self._refuse(error)
        fault = self._state.faults.next_fault()
        if fault is None or fault.when is When.AFTER:
            decision = self._decide(body, request.remote or "")
        else:
            decision = await self._lie_before(request, fault, body)
        if isinstance(decision, RefusedError):
            return rest_answers.refusal(decision)
        return await self._answer(request, decision, fault)

    async def stop(self) -> None:
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)

    def _refuse(self, error: RefusedError) -> web.Response:
        self._state.ledger.refused[error.code] += 1
        return rest_answers.refusal(error)

    def _decide(self, body: bytes, source_ip: str) -> Acceptance | RefusedError:
        try:
            return self._accept(body, source_ip)
        except RefusedError as error:
            self._state.ledger.refused[error.code] += 1
            return error

    def _accept(self, body: bytes, source_ip: str) -> Acceptance:
        submission = read_send_email(body, self._settings.configuration_sets)
        self._check_identities(submission)
        recipients = submission.recipients
        self._state.account.admit(
            recipients=len(recipients),
            counted=sum(not is_mailbox_simulator(address) for address in recipients),
            now=time.monotonic(),
        )
        now = time.time()
        acceptance = self._state.ledger.accept(
            submission,
            message_id=provider_id(now),
            now=now,
            outcomes={address: self._outcome(address) for address in recipients},
            request=body,
        )
        self._events.plan(acceptance, source_ip=source_ip)
        return acceptance

    def _outcome(self, address: str) -> Outcome:
        if self._state.suppression.get(address) is not None:
            return ON_ACCOUNT_LIST
        return outcome_for(address, self._state.rules)

    def _check_identities(self, submission: Submission) -> None:
        """The sender must be verified; in the sandbox each recipient too."""
        known = self._settings.verified_identities
        if known is None:
            return
        checked = [submission.source]
        if not self._state.account.production_access:
            checked += [item for item in submission.recipients if not is_mailbox_simulator(item)]
        failed = [item for item in checked if not set(sender_identities(item)) & set(known)]
        if failed:
            raise not_verified(failed, self._settings.region)

    async def _lie_before(
        self, request: web.Request, fault: Fault, body: bytes
    ) -> Acceptance | RefusedError:
        self._state.ledger.faults[fault.name] += 1
        match fault.lie:
            case Lie.ERROR:
                error = RefusedError(code=fault.code, status=fault.status, message=fault.message)
                self._state.ledger.refused[fault.code] += 1
                return error
            case Lie.CLOSE:
                return await connections.close_connection(request)
            case Lie.RESET:
                return await connections.reset_connection(request)
            case Lie.DELAY:
                return await self._decide_late(fault.seconds, body, request.remote or "")
            case _:
                return await connections.never_answer()

    async def _decide_late(
        self, seconds: float, body: bytes, source_ip: str
    ) -> Acceptance | RefusedError:
        """The decision falls later, whether or not the caller still waits for it."""

        async def decide() -> Acceptance | RefusedError:
            await asyncio.sleep(seconds)
            return self._decide(body, source_ip)

        task = asyncio.create_task(decide())
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_mark_lost)
            raise

    async def _answer(
        self, request: web.Request, acceptance: Acceptance, fault: Fault | None
    ) -> web.StreamResponse:
        acceptance.answer = Answer.LOST
        if self._state.answers.holding:
            acceptance.answer = Answer.HELD
            try:
                await self._state.answers.passed()
            except asyncio.CancelledError:
                acceptance.answer = Answer.LOST
                raise
        document = {"MessageId": acceptance.message_id}
        if fault is not None and fault.when is When.AFTER:
            self._state.ledger.faults[fault.name] += 1
            acceptance.answer = Answer.LOST
            spoilt = await self._lie_after(request, fault, document)
            if spoilt is not None:
                acceptance.answer = Answer.SPOILT
                return spoilt
        acceptance.answer = Answer.SENT
        return rest_answers.success(document)

    async def _lie_after(
        self, request: web.Request, fault: Fault, document: dict[str, str]
    ) -> web.Response | None:
        """What is answered in place of the truth; None: the truth, late."""
        match fault.lie:
            case Lie.ERROR:
                error = RefusedError(code=fault.code, status=fault.status, message=fault.message)
                return rest_answers.refusal(error)
            case Lie.BROKEN_BODY:
                return rest_answers.broken(b'{"MessageId": "')
            case Lie.NO_MESSAGE_ID:
                return rest_answers.broken(b"{}")
            case Lie.DELAY:
                await asyncio.sleep(fault.seconds)
                return None
            case Lie.CLOSE:
                return await connections.close_connection(request)
            case Lie.RESET:
                return await connections.reset_connection(request)
            case Lie.TRUNCATED:
                return await connections.answer_half(request, document)
            case Lie.HANG:
                return await connections.never_answer()


def _mark_lost(task: asyncio.Task[Acceptance | RefusedError]) -> None:
    if not task.cancelled() and isinstance(decision := task.result(), Acceptance):
        decision.answer = Answer.LOST
