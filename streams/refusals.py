"""What is told of each verdict on a request or a queued message: the alarm, and a log that strangers cannot fill."""

import logging
from typing import Final

from streams.domain.sns import Reason
from streams.intake import Verdict
from streams.intake_watch import IntakeWatch
from streams.runtime import metrics
from streams.runtime.logs import Seldom, places

log = logging.getLogger(__name__)

CLAIM_CHARACTERS: Final = 300


def unforeseen(error: Exception, *, duty: str) -> Verdict:
    """The verdict on what met an error of ours: it has to come again. Where it happened is told, the error's text not: it may
    quote the message."""
    metrics.DUTY_FAILURES.labels(stage="events", duty=duty, kind=type(error).__name__).inc()
    log.error(
        "request failed",
        extra={"action": "events.failed", "error": type(error).__name__, "at": places(error)},
    )
    return Verdict(reason=Reason.OVERLOADED, detail="an error nobody foresaw")


class Refusals:
    """Of each reason one line a second. The alarm counts what was not kept since something last was."""

    def __init__(self, watch: IntakeWatch | None = None) -> None:
        self._seldom = Seldom()
        self._watch = watch

    def tell(self, verdict: Verdict) -> None:
        if verdict.reason.status == 200:
            metrics.EVENTS_REFUSED_SINCE.set(0)
        else:
            metrics.EVENTS_REFUSED_SINCE.inc()
        # SNS sends its credentials only after it was asked for them.
        if self._watch is not None and verdict.reason not in (Reason.ACCEPTED, Reason.UNAUTHORIZED):
            self._watch.trouble(verdict.reason)
        if verdict.reason is Reason.ACCEPTED:
            metrics.EVENTS_LAST_ACCEPTED.set_to_current_time()
        else:
            self._log(verdict)

    def _log(self, verdict: Verdict) -> None:
        reason = verdict.reason
        left_out = self._seldom.left_out(reason)
        if left_out is None:
            return
        claimed = verdict.claimed_topic
        log.warning(
            "request was not simply accepted",
            extra={
                "action": "events.refused",
                "reason": reason,
                "detail": verdict.detail,
                "topic": verdict.topic,
                "sns_message_id": verdict.message_id,
                "left_out": left_out,
                **({} if claimed is None else {"claimed_topic": _harmless(claimed)}),
            },
        )


def _harmless(text: str) -> str:
    """What a stranger wrote, as it may stand in a log: short, and nothing in it that is not to be seen."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text[:CLAIM_CHARACTERS])
