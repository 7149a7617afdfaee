"""After a stop of the account or of one sender: one call at a time tries whether it may go on, all others wait."""

from typing import Final
from uuid import UUID

from streams.domain.attempts import Email, Pause, PauseScope
from streams.domain.outcomes import ACCOUNT

_Stopped = tuple[PauseScope, str]
WAIT_S: Final = 5.0


class Retrials:
    """Knows what SES refused, in this process, and has not taken again since."""

    def __init__(self) -> None:
        self._stopped: dict[_Stopped, set[UUID]] = {}

    def enter(self, email: Email) -> bool:
        """Whether this call may be made: nothing that it needs is stopped, or nobody else tries it now."""
        trying = [self._stopped[s] for s in _needs(email) if s in self._stopped]
        if any(trying):
            return False
        for attempts in trying:
            attempts.add(email.attempt_id)
        return True

    def leave(self, attempt_id: UUID) -> None:
        """The call has ended, or was not made."""
        for attempts in self._stopped.values():
            attempts.discard(attempt_id)

    def learn(self, email: Email, pause: Pause | None, *, passed: bool) -> None:
        """What SES said to a call of this message."""
        if pause is not None:
            self._stopped.setdefault((pause.scope, pause.value), set())
        elif passed:
            for stopped in _needs(email):
                self._stopped.pop(stopped, None)


def _needs(email: Email) -> tuple[_Stopped, ...]:
    return (
        (PauseScope.ACCOUNT, ACCOUNT),
        (PauseScope.SENDER, email.sender.lower()),
        (PauseScope.TENANT, email.tenant),
    )
