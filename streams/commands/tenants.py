"""`mailstreams tenants`: what the tenants of the accept API may post."""

from typing import Annotated, Literal

import typer

from streams.commands.keys import TENANT
from streams.commands.operating import By, Reason, Row, decision, tell
from streams.commands.running import Json, run_async
from streams.domain.errors import Misconfigured

app = typer.Typer(no_args_is_help=True, help="Limits of the tenants of the accept API.")


@app.command("set")
def set_(
    name: str,
    *,
    by: By,
    reason: Reason,
    rate: Annotated[
        float | None, typer.Option(min=0, help="E-mails a second; 0: no bound.")
    ] = None,
    burst: Annotated[
        int | None, typer.Option(min=1, help="So many at once after a silence; 100 by default.")
    ] = None,
    quota: Annotated[
        int | None, typer.Option(min=-1, help="E-mails a period; -1: no bound.")
    ] = None,
    period: Annotated[
        Literal["day", "month"] | None, typer.Option(help="Of the quota, in UTC.")
    ] = None,
    sender: Annotated[
        list[str] | None,
        typer.Option(help="Address or domain that it may write as sender; repeat it."),
    ] = None,
    any_sender: Annotated[
        bool, typer.Option("--any-sender", help="It may write any sender.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Makes a tenant, or changes the limits that are given."""
    from streams import wiring

    if not TENANT.fullmatch(name):
        raise Misconfigured(
            f"{name!r}: a tenant has 1 to 64 letters, digits, underscores and hyphens"
        )
    if any_sender and sender:
        raise Misconfigured("--sender and --any-sender contradict each other: give one of them")

    who = decision(by, reason)

    async def work() -> None:
        async with wiring.api_admin() as admin:
            row = await admin.set_tenant(
                name,
                who,
                senders=[] if any_sender else sender or None,
                per_second=rate,
                burst=burst,
                quota=quota,
                quota_period=period,
            )
        tell(row, [_line(row)], as_json=as_json)

    run_async(work)


@app.command("list")
def list_(
    name: Annotated[str | None, typer.Argument(help="Only this one.")] = None,
    *,
    as_json: Json = False,
) -> None:
    """Tells the tenants and their limits."""
    from streams import wiring

    async def work() -> None:
        async with wiring.api_admin() as admin:
            rows = await admin.tenants(name)
        tell({"tenants": rows}, [_line(row) for row in rows] or ["none"], as_json=as_json)

    run_async(work)


def _line(row: Row) -> str:
    rate = f"{row['per_second']:g} a second, {row['burst']} at once" if row["per_second"] else "any"
    quota = "any"
    if row["quota"] is not None:
        quota = f"{row['quota']} a {row['quota_period']}, {row['quota_used']} used since {row['quota_since']}"
    senders = ", ".join(row["senders"]) if row["senders"] else "any"
    return f"{row['name']:<16}  rate: {rate}; quota: {quota}; senders: {senders}"
