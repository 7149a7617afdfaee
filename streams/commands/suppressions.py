"""`mailstreams suppressions`: what an operator sees and changes of the suppressions."""

import json
import re
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import typer

from streams.commands.republish import republish
from streams.commands.running import Json, run_async
from streams.domain.address_lists import (
    BadLine,
    Recipient,
    is_recipient_key,
    read_keys,
    recipient_named,
)
from streams.domain.addresses import RecipientKey
from streams.domain.bounce_rules import SuppressionReason
from streams.domain.errors import BadMessage, Misconfigured
from streams.domain.topics import Lane

if TYPE_CHECKING:
    from streams.adapters.suppression_admin import By, Row, Search, SuppressionAdmin, Where

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Lists, adds, lifts, imports and republishes suppressions.",
)

# A file of millions is one statement.
PATIENCE_S: Final = 3600.0
_TENANT: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
Whom = Annotated[
    str, typer.Argument(metavar="ADDRESS|KEY", help="A mail address or a recipient key.")
]
Why = Annotated[str, typer.Option("--why", help="Why; kept for good. No personal data.")]
By_ = Annotated[str, typer.Option("--by", help="Who decided it.")]
Tenant = Annotated[str, typer.Option("--tenant", help='Of this tenant only; "*": of all.')]
InLane = Annotated[str, typer.Option("--lane", help='transactional or bulk; "*": both.')]
Days = Annotated[
    float | None, typer.Option("--days", help="For so many days; without it until it is lifted.")
]


@app.command("list")
def list_(
    whom: Annotated[
        str | None,
        typer.Argument(metavar="[ADDRESS|KEY]", help="One recipient, with all evidence."),
    ] = None,
    *,
    reason: Annotated[str | None, typer.Option(help="Only those of this reason.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only those of this tenant.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000)] = 100,
    after: Annotated[str, typer.Option(help="Go on behind this recipient key.")] = "",
    as_json: Json = False,
) -> None:
    """Tells who is suppressed, and on what evidence."""
    from streams.adapters.suppression_admin import Search

    if reason is not None:
        _known_reason(reason)
    if after and not is_recipient_key(after):
        raise Misconfigured(f"--after {after!r}: a recipient key has 32 hex digits, 0-9 and a-f")

    async def work() -> None:
        async with _admin() as (admin, salt):
            if whom is None:
                search = Search(after=after, reason=reason, tenant=tenant, limit=limit)
                rows = await admin.find(search)
                following = await _following(admin, search, rows)
                _tell({"suppressions": rows, "next": following}, _table(rows), as_json)
                if not as_json:
                    _tell_rest(rows, following)
                return
            key = _recipient(whom, salt).key
            found = {
                "recipient_key": key,
                "suppressions": await admin.find(
                    Search(key=key, reason=reason, tenant=tenant, limit=100_000)
                ),
                "lifts": await admin.lifts(key),
                "unlisting": next(iter(await admin.unlistings(key)), None),
            }
            _tell(found, _story(found), as_json)

    run_async(work)


@app.command()
def add(
    whom: Whom,
    *,
    reason: Annotated[str, typer.Option(help="Only manual: every other reason rests on an event.")],
    why: Why,
    by: By_,
    tenant: Tenant = "*",
    lane: InLane = "*",
    days: Days = None,
    as_json: Json = False,
) -> None:
    """Suppresses a recipient by hand."""
    if reason != SuppressionReason.MANUAL:
        raise Misconfigured(
            f"--reason {reason}: only manual can be put in by hand, every other reason rests on an event of the provider"
        )
    where, who, lasting = _where(tenant, lane), _by(by, why), _lasting(days)

    async def work() -> None:
        async with _admin() as (admin, salt):
            key = _recipient(whom, salt).key
            outcome = await admin.add(key, where, who, lasting)
            lines = [f"{key}  {outcome}"]
            _tell({"recipient_key": key, "outcome": outcome}, lines, as_json)

    run_async(work)


@app.command()
def lift(
    whom: Whom,
    *,
    why: Why,
    by: By_,
    tenant: Tenant = "*",
    lane: InLane = "*",
    reason: Annotated[str, typer.Option(help='Only this reason; "*": every one.')] = "*",
    as_json: Json = False,
) -> None:
    """Lifts suppressions of a recipient: no evidence of before now suppresses again. SES's own list is cleared too.

    Give the address where you have it: without it SES's list can only be cleared if mail of ours tells the address.
    """
    where, who = _where(tenant, lane), _by(by, why)
    if reason != "*":
        _known_reason(reason)

    async def work() -> None:
        async with _admin() as (admin, salt):
            recipient = _recipient(whom, salt)
            lifted = await admin.lift(recipient, where, who, reason=reason)
            unlisting = next(iter(await admin.unlistings(recipient.key)), None)
            done = {"recipient_key": recipient.key, "lifted": lifted, "unlisting": unlisting}
            lines = [f"{recipient.key}  {len(lifted)} lifted", *_table(lifted)]
            _tell(done, [*lines, *_unlisting(unlisting)], as_json)

    run_async(work)


@app.command("import")
def import_(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="One address a line, or CSV; - for standard input."),
    ],
    *,
    why: Why,
    by: By_,
    column: Annotated[str | None, typer.Option(help="The CSV's column of addresses.")] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out lines that have no address.")
    ] = False,
    tenant: Tenant = "*",
    lane: InLane = "*",
    days: Days = None,
    as_json: Json = False,
) -> None:
    """Suppresses every address of a file by hand, in one transaction: all of it or nothing. Made for millions."""
    where, who, lasting = _where(tenant, lane), _by(by, why), _lasting(days)

    async def work() -> None:
        async with _admin() as (admin, salt):
            with _opened(file) as lines:
                source = _Keys(lines, salt=salt, column=column, skip_bad=skip_bad, name=file)
                done = await admin.import_keys(
                    source, where, who, lasting=lasting, left_out=lambda: source.left_out
                )
        text = f"{done.recipients} recipients: {done.added} added, {done.extended} extended, {done.left_out} lines left out"
        _tell(asdict(done), [text], as_json)

    run_async(work)


@app.command("import-provider")
def import_provider(
    *,
    status: Annotated[
        bool, typer.Option("--status", help="Only tell how far it is, ask for nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Asks the scheduler to import SES's account-level list again, from its beginning; tells how far it is."""

    async def work() -> None:
        async with _admin() as (admin, _):
            if not status:
                await admin.request_provider_import(_region())
            imports = await admin.provider_imports()
            _tell({"imports": imports}, [_progress(one) for one in imports], as_json)

    run_async(work)


@app.command()
def unlistings(*, as_json: Json = False) -> None:
    """Tells which lifted recipients a person has to delete from SES's list, since nobody knows their address."""

    async def work() -> None:
        async with _admin() as (admin, _):
            rows = await admin.unlistings()
            lines = [f"{row['recipient_key']}  since {row['requested']}" for row in rows]
            _tell({"without_address": rows}, lines or ["none"], as_json)

    run_async(work)


app.command()(republish)


class _Keys:
    """The recipient keys of a file, once through. Without skip_bad the first line without an address ends it all."""

    def __init__(
        self, lines: IO[str], *, salt: bytes, column: str | None, skip_bad: bool, name: str
    ) -> None:
        self._found = read_keys(lines, salt=salt, column=column)
        self._skip_bad = skip_bad
        self._name = name
        self.left_out = 0

    def __iter__(self) -> Iterator[RecipientKey]:
        try:
            for found in self._found:
                if not isinstance(found, BadLine):
                    yield found
                    continue
                self.left_out += 1
                if not self._skip_bad:
                    raise Misconfigured(
                        f"{self._name}: line {found.number} has no mail address, nothing was imported; "
                        "mend it, or leave such lines out with --skip-bad"
                    )
        except BadMessage as error:
            raise Misconfigured(f"{self._name}: {error}") from error
        except UnicodeDecodeError as error:
            raise Misconfigured(f"{self._name} is not UTF-8 text, nothing was imported") from error


def _opened(file: str) -> IO[str]:
    try:
        # Standard input as a file, too: what Python makes of it by itself depends on the locale, and bytes that are no
        # text would pass.
        source = sys.stdin.fileno() if file == "-" else Path(file)
        return open(source, encoding="utf-8-sig", newline="", closefd=file != "-")
    except OSError as error:
        raise Misconfigured(f"{file} cannot be read: {error.strerror}") from error


@asynccontextmanager
async def _admin() -> AsyncIterator[tuple["SuppressionAdmin", bytes]]:
    """The store, and the salt of the recipient keys, which is compared with the database's."""
    from streams import wiring

    async with wiring.suppression_admin(PATIENCE_S) as opened:
        yield opened


def _region() -> str:
    from streams import wiring

    return wiring.provider_region()


def _recipient(text: str, salt: bytes) -> Recipient:
    try:
        return recipient_named(text, salt=salt)
    except BadMessage as error:
        raise Misconfigured(str(error)) from error


def _where(tenant: str, lane: str) -> "Where":
    from streams.adapters.suppression_admin import Where

    if tenant != "*" and not _TENANT.fullmatch(tenant):
        raise Misconfigured(
            f"--tenant {tenant!r}: a tenant has 1 to 64 letters, digits, underscores and hyphens"
        )
    if lane != "*" and lane not in tuple(Lane):
        raise Misconfigured(f"--lane {lane!r}: the lanes are {', '.join(Lane)}")
    return Where(tenant=tenant, lane=lane)


def _by(whom: str, why: str) -> "By":
    from streams.adapters.suppression_admin import By

    for name, text in (("--by", whom), ("--why", why)):
        if not text.strip():
            raise Misconfigured(
                f"{name} is empty: whoever looks at this later has to understand it"
            )
    return By(whom=whom.strip(), why=why.strip())


def _lasting(days: float | None) -> timedelta | None:
    if days is None:
        return None
    if not 0 < days <= 36_500:
        raise Misconfigured(f"--days {days:g}: give more than 0 and at most 36500 days")
    return timedelta(days=days)


def _known_reason(reason: str) -> None:
    if reason not in tuple(SuppressionReason):
        raise Misconfigured(f"--reason {reason}: the reasons are {', '.join(SuppressionReason)}")


def _tell(document: dict[str, Any], lines: Sequence[str], as_json: bool) -> None:
    if as_json:
        print(json.dumps(document))
        return
    for line in lines:
        print(line.rstrip())


async def _following(
    admin: "SuppressionAdmin", search: "Search", rows: Sequence["Row"]
) -> str | None:
    """The key to go on behind, if there is anything behind it."""
    if len(rows) < search.limit:
        return None
    last: str = rows[-1]["recipient_key"]
    return last if await admin.find(replace(search, after=last, limit=1)) else None


def _tell_rest(rows: Sequence["Row"], following: str | None) -> None:
    if following is not None:
        print(f"more follow: go on with --after {following}", file=sys.stderr)
    elif not rows:
        print("no suppression was found", file=sys.stderr)


def _table(rows: Sequence["Row"]) -> list[str]:
    return [
        "  ".join(
            (
                row["recipient_key"],
                f"{row['tenant']:<12}",
                f"{row['lane']:<13}",
                f"{row['reason']:<20}",
                row["evidence_at"] or row.get("created") or "-",
                _until(row),
                row["evidence_id"] or "no evidence",
                f"{row['by_whom']}: {row['why']}" if row.get("by_whom") else "",
            )
        )
        for row in rows
    ]


def _until(row: "Row") -> str:
    if row.get("expires") is None:
        return ""
    return f"{'was over' if row.get('is_over') else 'until'} {row['expires']}"


def _story(found: dict[str, Any]) -> list[str]:
    """Everything that is known of one recipient."""
    rows = found["suppressions"]
    lines = _table(rows) or [f"{found['recipient_key']}  is not suppressed"]
    for one in found["lifts"]:
        who = "everybody" if one["of_everybody"] else "lifted"
        scope = f"tenant {one['tenant']}, lane {one['lane']}, reason {one['reason']}"
        lines.append(f"{who} {one['at']} ({scope}) by {one['by_whom']}: {one['why']}")
    return [*lines, *_unlisting(found["unlisting"])]


def _unlisting(row: "Row | None") -> list[str]:
    if row is None:
        return []
    if row["has_address"]:
        return [f"to be deleted from SES's list, {row['tries']} tries so far"]
    return [
        "SES's list may hold the recipient too, and nobody here knows the address: lift it again by its address"
    ]


def _progress(one: "Row") -> str:
    state = f"finished {one['finished']}" if one["finished"] else "waits for the scheduler"
    if one["started"] and not one["finished"]:
        state = f"under way since {one['started']}"
    counts = ", ".join(
        f"{one[n]} {n}" for n in ("pages", "entries", "suppressed", "lifted", "unusable")
    )
    return f"{one['scope']}  {state}: {counts}"
