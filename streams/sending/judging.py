"""What a call ended with: what that says beyond its message, and the outcome that is written."""

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime

from streams.domain.attempts import Email, Outcome, OutcomeKind, Pause
from streams.domain.backoff import throttle_delay_s
from streams.domain.outcomes import (
    STALE_CREDENTIALS,
    UNREACHED,
    delay_of,
    outcome_of_call,
    pause_of,
    uncharged,
)
from streams.domain.ses_answers import Answer, Fault
from streams.domain.ses_errors import Meaning, meaning
from streams.ports.sender import EmailProvider
from streams.runtime import metrics
from streams.sending.circuit import Circuit
from streams.sending.retrials import Retrials
from streams.sending.trouble import Trouble
from streams.sending.work import Work


class Judging:
    """Tells circuit, stops, credentials and trouble of it, backs off where SES throttles, and ends the work with its outcome."""

    def __init__(
        self,
        *,
        provider: EmailProvider,
        circuit: Circuit,
        retrials: Retrials,
        trouble: Trouble,
        end: Callable[[Work, Outcome, Pause | None], None],
    ) -> None:
        self._provider = provider
        self._circuit = circuit
        self._retrials = retrials
        self._trouble = trouble
        self._end = end
        self._throttled_until = 0.0
        self._throttles = 0

    @property
    def backing_off_s(self) -> float:
        """SES throttled us: so long nothing new should be asked for."""
        return max(self._throttled_until - time.monotonic(), 0.0)

    def judge(
        self, work: Work, seen: Answer | Fault, started: datetime, *, begun: float | None = None
    ) -> None:
        """What its call ended with; begun (monotonic): when it began, where SES answered it."""
        email = work.email
        meant = meaning(seen, sender=email.sender, addresses=email.addresses)
        meant, waits_s = self._learn(work, meant, begun=begun)
        self.conclude(work, seen, meant, started, waits_s=waits_s)

    def conclude(
        self, work: Work, seen: Answer | Fault, meant: Meaning, started: datetime, *, waits_s: float
    ) -> None:
        """Its outcome, by what was seen and what that means."""
        email = work.email
        outcome = outcome_of_call(
            email,
            seen,
            meant,
            started=started,
            finished=datetime.now(UTC),
            delay_s=delay_of(meant, waits_s=waits_s),
        )
        if outcome.error_class is not None:
            metrics.SENDER_ERRORS.labels(error_class=outcome.error_class).inc()
        self._end(work, outcome, pause_of(email, meant))

    def learn_stops(self, email: Email, meant: Meaning) -> None:
        """What the answer says of credentials, stops and trouble."""
        row = meant.row
        if row.name in STALE_CREDENTIALS:
            self._provider.forget_credentials()
        passed = row.kind in (OutcomeKind.ACCEPTED, OutcomeKind.PERMANENT)
        pause = pause_of(email, meant)
        self._retrials.learn(email, pause, passed=passed)
        self._trouble.learn(email, meant, pause, unreached=row.name in UNREACHED)

    def _learn(self, work: Work, meant: Meaning, *, begun: float | None) -> tuple[Meaning, float]:
        """What the answer says beyond its message; the meaning that is written, and the wait until it is tried again."""
        row, email = meant.row, work.email
        self.learn_stops(email, meant)
        is_unwritten = row.name in UNREACHED
        if is_unwritten or row.kind is OutcomeKind.UNKNOWN:
            charged = self._circuit.failed(
                email.id, reason=row.reason, is_unwritten=is_unwritten, is_probe=work.is_probe
            )
            if is_unwritten:
                return (meant if charged else uncharged(meant)), self._circuit.delay_s(
                    email.attempt
                )
        elif begun is not None:
            self._circuit.reached(begun=begun)
        return meant, self._throttle(row.kind)

    def _throttle(self, kind: OutcomeKind) -> float:
        """Slows down after a throttled answer, once an episode; how long a throttled message waits."""
        throttling = self._throttled_until > time.monotonic()
        if kind is OutcomeKind.ACCEPTED and not throttling:
            self._throttles = 0
        if kind is OutcomeKind.THROTTLED and not throttling:
            self._throttles += 1
            pause = throttle_delay_s(self._throttles, random.random())  # noqa: S311 jitter is no secret
            self._throttled_until = time.monotonic() + pause
        return throttle_delay_s(max(self._throttles, 1), random.random())  # noqa: S311 jitter is no secret
