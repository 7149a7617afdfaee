"""What is looked at, and then noted, right before the first byte of a call."""

from datetime import datetime

from streams.domain.journal_records import Begin
from streams.ports.sender import AttemptJournal, SuppressionGuard
from streams.sending.last_look import Look, lease_clock
from streams.sending.work import Work


class NotBegun(Exception):
    """The call must not begin, for this reason."""

    def __init__(self, look: Look) -> None:
        super().__init__(look)
        self.look = look


class FirstByte:
    """Nothing here waits: between the look and the byte nothing else happens in this process."""

    def __init__(self, *, guard: SuppressionGuard, journal: AttemptJournal) -> None:
        self._guard = guard
        self._journal = journal

    def begin(self, work: Work, started: datetime) -> None:
        """NotBegun and Unavailable: then no byte of the call may leave."""
        if (look := self.look(work)) is not Look.GO:
            raise NotBegun(look)
        self.note(work, started)
        work.begin()

    def look(self, work: Work) -> Look:
        """A connection was waited for since the last look: suppressions may have come in, or fail to."""
        if lease_clock() > work.begin_by:
            return Look.LEASE
        if not self._guard.usable(work.pointer.partition, work.pointer.lane):
            return Look.STALE
        email = work.email
        hit = self._guard.hit(work.pointer.partition, email.recipient_key, email.tenant, email.lane)
        return Look.GO if hit in (None, work.overruled) else Look.SUPPRESSED

    def note(self, work: Work, started: datetime) -> None:
        """Unavailable: then no byte of the call may leave."""
        email = work.email
        self._journal.begun(
            Begin(
                attempt_id=email.attempt_id,
                number=email.attempt,
                started=started,
                left_out=email.left_out,
            )
        )
