"""SendEmail and SendBulkEmail: refuse, accept, or lie when told so."""

import asyncio
import time
from collections.abc import Callable, Iterable

from aiohttp import web

from streams.simulator import connections, rest_answers
from streams.simulator.acceptance import Accepted, Acceptor, SendingState
from streams.simulator.event_publisher import EventPublisher
from streams.simulator.faults import Fault, Lie, When
from streams.simulator.ledger import Acceptance, Answer
from streams.simulator.refusals import RefusedError
from streams.simulator.requests import read_body, signed_request
from streams.simulator.sigv4 import SignatureVerifier, ses_scope

Decision = Accepted | RefusedError
Perform = Callable[[bytes, str], Accepted]


class SendApi:
    """Handles the calls that send: what the caller sees is another matter than what is accepted."""

    def __init__(
        self,
        *,
        region: str,
        state: SendingState,
        events: EventPublisher,
        verifier: SignatureVerifier,
    ) -> None:
        self._state = state
        self._events = events
        self._verifier = verifier
        self._scope = ses_scope(region)
        self._acceptor = Acceptor(state=state, events=events, region=region)
        self._late: set[asyncio.Task[Decision]] = set()

    async def send_email(self, request: web.Request) -> web.StreamResponse:
        return await self._handle(request, self._acceptor.send_email)

    async def send_bulk_email(self, request: web.Request) -> web.StreamResponse:
        return await self._handle(request, self._acceptor.send_bulk_email)

    async def stop(self) -> None:
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)

    async def _handle(self, request: web.Request, perform: Perform) -> web.StreamResponse:
        try:
            body = await read_body(request)
            self._verifier.verify(signed_request(request, body), self._scope, time.time())
        except RefusedError as error:
            return self._refuse(error)

        def decide() -> Decision:
            return self._decide(perform, body, request.remote or "")

        fault = self._state.faults.next_fault()
        if fault is None or fault.when is When.AFTER:
            decision = decide()
        else:
            decision = await self._lie_before(request, fault, decide)
        if isinstance(decision, RefusedError):
            return rest_answers.refusal(decision)
        return await self._answer(request, decision, fault)

    def _refuse(self, error: RefusedError) -> web.Response:
        self._state.ledger.refused[error.code] += 1
        return rest_answers.refusal(error)

    def _decide(self, perform: Perform, body: bytes, source_ip: str) -> Decision:
        try:
            return perform(body, source_ip)
        except RefusedError as error:
            self._state.ledger.refused[error.code] += 1
            return error

    async def _lie_before(
        self, request: web.Request, fault: Fault, decide: Callable[[], Decision]
    ) -> Decision:
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
                return await self._decide_late(fault.seconds, decide)
            case _:
                return await connections.never_answer()

    async def _decide_late(self, seconds: float, decide: Callable[[], Decision]) -> Decision:
        """The decision falls later, whether or not the caller still waits for it."""

        async def later() -> Decision:
            await asyncio.sleep(seconds)
            return decide()

        task = asyncio.create_task(later())
        self._late.add(task)
        task.add_done_callback(self._late.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_mark_lost)
            raise

    async def _answer(
        self, request: web.Request, accepted: Accepted, fault: Fault | None
    ) -> web.StreamResponse:
        acceptances = accepted.acceptances
        _mark(acceptances, Answer.LOST)
        for acceptance in acceptances:
            await self._events.early_tried(acceptance)
        if self._state.answers.holding:
            _mark(acceptances, Answer.HELD)
            try:
                await self._state.answers.passed()
            except asyncio.CancelledError:
                _mark(acceptances, Answer.LOST)
                raise
        if fault is not None and fault.when is When.AFTER:
            self._state.ledger.faults[fault.name] += 1
            _mark(acceptances, Answer.LOST)
            spoilt = await self._lie_after(request, fault, accepted)
            if spoilt is not None:
                _mark(acceptances, Answer.SPOILT)
                return spoilt
        _mark(acceptances, Answer.SENT)
        return rest_answers.success(accepted.document)

    async def _lie_after(
        self, request: web.Request, fault: Fault, accepted: Accepted
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
                return await connections.answer_half(request, accepted.document)
            case Lie.HANG:
                return await connections.never_answer()


def _mark(acceptances: Iterable[Acceptance], answer: Answer) -> None:
    for acceptance in acceptances:
        acceptance.answer = answer


def _mark_lost(task: asyncio.Task[Decision]) -> None:
    if not task.cancelled() and isinstance(decision := task.result(), Accepted):
        _mark(decision.acceptances, Answer.LOST)
