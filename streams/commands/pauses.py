"""`mailstreams pause` and `mailstreams resume`: what no sender claims for a while, by whom, why and until when."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from streams.commands.ending import Code, Ending
from streams.commands.operating import By, Reason, Row, decision, tell
from streams.commands.running import Json, run_async
from streams.commands.showing import plain, show_table
from streams.domain.attempts import PauseScope
from streams.domain.by_hand import Decision
from streams.domain.errors import Misconfigured
from streams.domain.pauses import AUTOMATIC, Stopped, end_of, stopped
from streams.domain.topics import Lane

if TYPE_CHECKING:
    from streams.adapters.pause_admin import PauseAdmin

pause_app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Holds mail of the account, a lane, a tenant, a sender or a template: it stays pending, and no call is made.",
)
resume_app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Lifts pauses: what was held goes out within half a minute.",
)
Hours = Annotated[
    float | None, typer.Option("--for", metavar="HOURS", help="It ends by itself after so long.")
]
Until = Annotated[
    datetime | None,
    typer.Option(
        formats=["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ"],
        help="It ends by itself then (UTC). Without --for and --until somebody has to lift it.",
    ),
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Give a pause of a person another end and reason.")
]
Automatic = Annotated[
    bool,
    typer.Option("--automatic", help="Lift those of sender and account poll too: SES is tried."),
]
_MEANT: Final = {
    PauseScope.ACCOUNT: "everything",
    PauseScope.LANE: "one lane, transactional or bulk",
    PauseScope.TENANT: "one tenant",
    PauseScope.SENDER: "one sender, an address or a whole domain",
    PauseScope.TEMPLATE: "one template, NAME of all tenants or TENANT/NAME",
}

_COMPLETED: Final[dict[PauseScope, Callable[[], list[str]]]] = {PauseScope.LANE: lambda: list(Lane)}


@pause_app.command("list")
def list_(*, as_json: Json = False) -> None:
    """Tells what is paused, by whom, why, since when and until when."""

    async def work() -> None:
        async with _admin("pause") as store:
            rows = await store.pauses()
        held = rows[0]["held"] if rows else 0
        found = [
            {name: value for name, value in row.items() if name != "held"}
            | {"automatic": row["who"] in AUTOMATIC}
            for row in rows
        ]
        if as_json or not rows:
            tell({"pauses": found, "held": held}, ["nothing is paused"], as_json=as_json)
            return
        names = ("scope", "value", "since", "until", "who", "reason")
        ends = [row["until"] or "it is lifted" for row in found]
        told = [row | {"until": end} for row, end in zip(found, ends, strict=True)]
        show_table(names, [[row[name] for name in names] for row in told])
        print(f"{held} messages were met and wait for the end of a pause")

    run_async(work)


def _pausing(scope: PauseScope) -> Callable[..., None]:
    def command(
        value: Annotated[
            str, typer.Argument(metavar=scope.upper(), autocompletion=_COMPLETED.get(scope))
        ],
        *,
        reason: Reason,
        by: By,
        hours: Hours = None,
        until: Until = None,
        replace: Replace = False,
        as_json: Json = False,
    ) -> None:
        _pause(stopped(scope, value), decision(by, reason), _End(hours, until, replace), as_json)

    return command


def _resuming(scope: PauseScope) -> Callable[..., None]:
    def command(
        value: Annotated[
            str, typer.Argument(metavar=scope.upper(), autocompletion=_COMPLETED.get(scope))
        ],
        *,
        reason: Reason,
        by: By,
        automatic: Automatic = False,
        as_json: Json = False,
    ) -> None:
        _resume(stopped(scope, value), decision(by, reason), automatic, as_json)

    return command


@pause_app.command("account", help=f"Holds {_MEANT[PauseScope.ACCOUNT]}.")
def pause_account(
    *,
    reason: Reason,
    by: By,
    hours: Hours = None,
    until: Until = None,
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    what = stopped(PauseScope.ACCOUNT, None)
    _pause(what, decision(by, reason), _End(hours, until, replace), as_json)


@resume_app.command("account", help="Lifts the pause of everything.")
def resume_account(
    *, reason: Reason, by: By, automatic: Automatic = False, as_json: Json = False
) -> None:
    _resume(stopped(PauseScope.ACCOUNT, None), decision(by, reason), automatic, as_json)


for _scope, _what in _MEANT.items():
    if _scope is not PauseScope.ACCOUNT:
        pause_app.command(_scope.value, help=f"Holds {_what}.")(_pausing(_scope))
        resume_app.command(_scope.value, help=f"Lifts the pause of {_what}.")(_resuming(_scope))


class _End(NamedTuple):
    """When the pause ends, and whether it takes the place of another one."""

    hours: float | None
    until: datetime | None
    replace: bool


def _pause(what: Stopped, who: Decision, end: _End, as_json: bool) -> None:
    if who.by_whom in AUTOMATIC:
        raise Misconfigured(f"--by {who.by_whom}: that is a stage; say who decides it")
    given = None if end.until is None else end.until.replace(tzinfo=UTC)
    ends = end_of(datetime.now(UTC), hours=end.hours, until=given)

    async def work() -> None:
        async with _admin("pause") as store:
            made = await store.pause(what, who, ends, replace=end.replace)
            if made is None:
                raise Ending(Code.NOTHING, _exists(what, await store.pauses()))
        text = f"{what} is paused {_until(made)}; calls that are under way are not stopped"
        tell({"paused": made}, [text], as_json=as_json)

    run_async(work)


def _resume(what: Stopped, who: Decision, automatic: bool, as_json: bool) -> None:
    async def work() -> None:
        async with _admin("resume") as store:
            rows = await store.resume(what, who, automatic=automatic)
        lifted = [row for row in rows if row["lifted"]]
        left = [row for row in rows if not row["lifted"]]
        if not rows:
            raise Ending(Code.NOTHING, f"{what} is not paused: nothing to resume")
        staying = [f"{what} is still paused by {_story(r)}: --automatic lifts it too" for r in left]
        if not lifted:
            raise Ending(Code.NOTHING, f"no person has paused this; {'; '.join(staying)}")
        lines = [f"{what} goes on; lifted the pause by {_story(row)}" for row in lifted]
        tell({"lifted": lifted, "left": left}, [*lines, *staying], as_json=as_json)

    run_async(work)


def _exists(what: Stopped, rows: list[Row]) -> str:
    same = (r for r in rows if (r["scope"], r["value"]) == (what.scope, what.value))
    story = next((f" by {_story(row)}" for row in same), "")
    return f"{what} is paused already{story}; --replace gives it another end and reason"


def _story(row: Row) -> str:
    return f"{plain(row['who'])} since {plain(row['since'])} {_until(row)} ({plain(row['reason'])})"


def _until(row: Row) -> str:
    return "until it is lifted" if row["until"] is None else f"until {plain(row['until'])}"


@asynccontextmanager
async def _admin(command: str) -> AsyncIterator["PauseAdmin"]:
    from streams import wiring
    from streams.adapters.pause_admin import PauseAdmin

    async with wiring.operating(command) as (database, _):
        yield PauseAdmin(database)
