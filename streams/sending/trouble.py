"""What stands between us and SES, as this process has last seen it, in words that say what to change."""

import logging
import time
from dataclasses import dataclass
from typing import Final

from streams.domain.attempts import Email, Pause, PauseScope
from streams.domain.outcomes import ACCOUNT
from streams.domain.ses_errors import Meaning

log = logging.getLogger(__name__)

# Another replica may be the one that sees the end of it.
TOLD_S: Final = 900.0
_Where = tuple[PauseScope, str]


@dataclass(frozen=True, slots=True)
class _Seen:
    reason: str
    at: float


class Trouble:
    """For readiness and the log. Forgotten with the first message that gets through, or not seen again for TOLD_S."""

    def __init__(self) -> None:
        self._seen: dict[_Where, _Seen] = {}

    @property
    def why(self) -> str | None:
        """The reasons, those of the account first; None if there are none."""
        now = time.monotonic()
        self._seen = {w: seen for w, seen in self._seen.items() if now - seen.at < TOLD_S}
        first = sorted(self._seen.items(), key=lambda item: item[0][0] is not PauseScope.ACCOUNT)
        return "; ".join(dict.fromkeys(seen.reason for _, seen in first)) or None

    def learn(self, email: Email, meant: Meaning, pause: Pause | None, *, unreached: bool) -> None:
        """What a call of this message ended with; unreached: SES never saw it."""
        if pause is not None:
            self._note((pause.scope, pause.value), meant)
        elif unreached:
            self._note((PauseScope.ACCOUNT, ACCOUNT), meant)
        elif meant.http_status is not None and meant.http_status < 500:
            self._through(email)

    def _note(self, where: _Where, meant: Meaning) -> None:
        if where not in self._seen:
            log.error(
                "SES does not take our messages, they wait",
                extra={
                    "action": "sender.trouble",
                    "scope": where[0],
                    "error_class": meant.row.name,
                    "reason": meant.reason,
                },
            )
        self._seen[where] = _Seen(meant.reason, time.monotonic())

    def _through(self, email: Email) -> None:
        for where in (
            (PauseScope.ACCOUNT, ACCOUNT),
            (PauseScope.SENDER, email.sender.lower()),
            (PauseScope.TENANT, email.tenant),
        ):
            if self._seen.pop(where, None) is not None:
                log.info(
                    "SES takes our messages again",
                    extra={"action": "sender.trouble_over", "scope": where[0]},
                )
