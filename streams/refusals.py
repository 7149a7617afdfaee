"""What is told of each verdict on a request or a queued message: the alarm, and a log that strangers cannot fill."""

import logging
import time
from collections import Counter
from collections.abc import Callable

from streams.domain.sns import Reason
from streams.intake import Verdict
from streams.runtime import metrics

log = logging.getLogger(__name__)

LOG_EVERY_S = 1.0


class Refusals:
    """Of each reason one line a second. The alarm counts what was not kept since something last was."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next: dict[Reason, float] = {}
        self._left_out: Counter[Reason] = Counter()

    def tell(self, verdict: Verdict) -> None:
        if verdict.reason.status == 200:
            metrics.EVENTS_REFUSED_SINCE.set(0)
        else:
            metrics.EVENTS_REFUSED_SINCE.inc()
        if verdict.reason is Reason.ACCEPTED:
            metrics.EVENTS_LAST_ACCEPTED.set_to_current_time()
        else:
            self._log(verdict)

    def _log(self, verdict: Verdict) -> None:
        reason = verdict.reason
        now = self._clock()
        if now < self._next.get(reason, now):
            self._left_out[reason] += 1
            return
        self._next[reason] = now + LOG_EVERY_S
        log.warning(
            "request was not simply accepted",
            extra={
                "action": "events.refused",
                "reason": reason,
                "detail": verdict.detail,
                "topic": verdict.topic,
                "sns_message_id": verdict.message_id,
                "left_out": self._left_out.pop(reason, 0),
            },
        )
