"""The watch of the intake holds up nothing, and forgets no trouble."""

import pytest

from streams.domain.errors import MailstreamsError, Misconfigured, Unavailable
from streams.intake_watch import IntakeWatch


class ScriptedLog:
    """Fails with these errors, one a report, and then works."""

    def __init__(self, *errors: MailstreamsError) -> None:
        self.errors = list(errors)
        self.told: list[str | None] = []
        self.ended = False

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def report(self, *, trouble: str | None, ended: bool) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.told.append(trouble)
        self.ended = ended


@pytest.mark.parametrize("error", [Unavailable("away"), Misconfigured("no such database")])
async def test_a_database_that_cannot_be_reached_delays_the_report_only(
    error: MailstreamsError,
) -> None:
    log = ScriptedLog(error, error)
    watch = IntakeWatch(log, stage="events")
    watch.trouble("stale")
    for _ in range(4):
        assert await watch.report() > 0
    assert log.told == ["stale", None]


async def test_trouble_of_later_is_not_hidden_by_a_report_that_failed() -> None:
    log = ScriptedLog(Unavailable("away"))
    watch = IntakeWatch(log, stage="events")
    watch.trouble("stale")
    await watch.report()
    watch.trouble("overloaded")
    await watch.stop()
    assert (log.told, log.ended) == (["overloaded"], True)
