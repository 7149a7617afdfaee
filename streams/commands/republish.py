"""`mailstreams suppressions republish`: everything into the topic again."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streams.commands.running import Json, run_async
from streams.domain.address_lists import is_recipient_key, recipient_named
from streams.domain.errors import BadMessage, Misconfigured

if TYPE_CHECKING:
    from streams.republish import Republished


PATIENCE_S: Final = 600.0


def republish(
    *,
    why: Annotated[str, typer.Option("--why", help="Why; kept for good. No personal data.")],
    by: Annotated[str, typer.Option("--by", help="Who decided it.")],
    everybody: Annotated[bool, typer.Option("--all", help="All recipients.")] = False,
    recipient: Annotated[
        str | None, typer.Option(help="Only this one: a mail address or a recipient key.")
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(help="Only the recipients of this partition; repeatable.")
    ] = None,
    after: Annotated[str, typer.Option(help="Go on behind this recipient key.")] = "",
    as_json: Json = False,
) -> None:
    """Puts suppressions into the topic again, as PostgreSQL knows them: when the topic lost records or got partitions.

    Through the feed, a page of 1000 recipients a transaction. Lifted ones are told too, since the topic may say otherwise.
    Senders that wait for it go on when the relay has carried its end.
    """
    chosen = [everybody, recipient is not None, bool(partition)]
    if sum(chosen) != 1:
        raise Misconfigured("give one of --all, --recipient and --partition")
    if after and (recipient is not None or not is_recipient_key(after)):
        raise Misconfigured(
            f"--after {after!r}: a recipient key has 32 hex digits, 0-9 and a-f, and goes with --all or --partition"
        )
    if not (by.strip() and why.strip()):
        raise Misconfigured("--by and --why: whoever looks at this later has to understand it")

    def told(done: "Republished") -> None:
        if sys.stderr.isatty():
            print(f"\r{done.recipients} recipients, up to {done.last}", end="", file=sys.stderr)

    async def work() -> None:
        whom = recipient if recipient is not None else (partition or None)
        done = await _republish((by.strip(), why.strip()), whom, after, told)
        if sys.stderr.isatty():
            print(file=sys.stderr)
        print(json.dumps(done) if as_json else f"{done['recipients']} recipients told again")

    run_async(work)


async def _republish(
    who: tuple[str, str], whom: "str | list[int] | None", after: str, told: Any
) -> dict[str, Any]:
    """Of a recipient, of some partitions, or of all."""
    from streams import wiring
    from streams.adapters.suppression_admin import By
    from streams.republish import republish as run

    partitions = wiring.number_of_partitions()
    by = By(whom=who[0], why=who[1])
    async with wiring.suppression_admin(PATIENCE_S) as (admin, salt):
        if isinstance(whom, str):
            try:
                key = recipient_named(whom, salt=salt).key
            except BadMessage as error:
                raise Misconfigured(str(error)) from error
            await admin.note_republish(by, key, {})
            await admin.announce_again([key])
            return {"recipients": 1, "last": key}
        if unknown := [n for n in whom or () if not 0 <= n < partitions]:
            raise Misconfigured(f"--partition {unknown[0]}: MAILSTREAMS_PARTITIONS is {partitions}")
        await admin.note_republish(by, None, {"partitions": whom, "after": after or None})
        done = await run(admin, partitions=partitions, only=whom, after=after, told=told)
        return {"recipients": done.recipients, "last": done.last}
