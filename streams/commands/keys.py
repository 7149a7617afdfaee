"""`mailstreams keys`: the keys of the accept API. Several a tenant may be in use, so that one takes over before another is revoked."""

import re
import secrets
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from streams.commands.operating import By, Reason, Row, decision, tell
from streams.commands.running import Json, run_async
from streams.domain.api_keys import RANDOM_BYTES, Scope, new_key
from streams.domain.errors import Misconfigured

TENANT: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
app = typer.Typer(no_args_is_help=True, help="Keys of the accept API.")


@app.command()
def create(
    *,
    tenant: Annotated[str, typer.Option(help="Whose key; made if there is no such tenant.")],
    label: Annotated[str, typer.Option(help="What uses it, for those who look at it later.")],
    by: By,
    test: Annotated[bool, typer.Option("--test", help="Nothing that it posts is sent.")] = False,
    scope: Annotated[
        list[Scope] | None, typer.Option(help="What it may do; repeat it. All by default.")
    ] = None,
    days: Annotated[
        float | None, typer.Option(help="It expires after so many days; never by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Makes a key and prints it, once: only its hash is kept."""
    from streams import wiring

    _check(tenant, label)
    if days is not None and not 0 < days <= 36_500:
        raise Misconfigured(f"--days {days:g}: give more than 0 and at most 36500 days")
    who = decision(by, label)
    key = new_key(secrets.token_bytes(RANDOM_BYTES), test=test)
    expires = None if days is None else datetime.now(UTC) + timedelta(days=days)

    async def work() -> None:
        async with wiring.api_admin() as admin:
            await admin.create_key(
                key,
                tenant=tenant,
                label=who.why,
                test=test,
                scopes=sorted(set(scope or Scope)),
                expires=expires,
                by_whom=who.by_whom,
            )
        document = {"id": key.id, "key": key.text, "tenant": tenant, "expires": expires}
        tell(document, [key.text], as_json=as_json)

    run_async(work)


@app.command("list")
def list_(
    *,
    tenant: Annotated[str | None, typer.Option(help="Only those of this tenant.")] = None,
    as_json: Json = False,
) -> None:
    """Tells which keys there are, and which of them are over."""
    from streams import wiring

    async def work() -> None:
        async with wiring.api_admin() as admin:
            rows = await admin.keys(tenant)
        tell({"keys": rows}, [_line(row) for row in rows] or ["none"], as_json=as_json)

    run_async(work)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id, not the key itself.")],
    *,
    by: By,
    reason: Reason,
    as_json: Json = False,
) -> None:
    """Ends a key for good; every process of the API refuses it within 5 s."""
    from streams import wiring

    who = decision(by, reason)

    async def work() -> None:
        async with wiring.api_admin() as admin:
            row = await admin.revoke(key_id, who)
        if row is None:
            raise Misconfigured(f"there is no key {key_id}: look at mailstreams keys list")
        tell(row, [f"{row['id']} of {row['tenant']} is revoked"], as_json=as_json)

    run_async(work)


def _check(tenant: str, label: str) -> None:
    if not TENANT.fullmatch(tenant):
        raise Misconfigured(
            f"--tenant {tenant!r}: a tenant has 1 to 64 letters, digits, underscores and hyphens"
        )
    if not label.strip():
        raise Misconfigured("--label is empty: whoever looks at this later has to understand it")


def _line(row: Row) -> str:
    over = f"revoked {row['revoked']}" if row["revoked"] else ""
    if row["expires"] and not over:
        over = f"expires {row['expires']}"
    kind = "test" if row["test"] else "live"
    return f"{row['id']}  {kind}  {row['tenant']:<12}  {row['label']:<20}  {','.join(row['scopes'])}  {over}"
