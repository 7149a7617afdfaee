"""`mailstreams erase`: forgets a recipient; only suppressions stay, under the key."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from streams.commands.ending import Code, Ending
from streams.commands.operating import By, DryRun, Reason, decision, tell
from streams.commands.running import Json, run_async
from streams.commands.showing import Steps, progress
from streams.domain.address_lists import recipient_named
from streams.domain.by_hand import Page
from streams.domain.erasure import Erased, Kind
from streams.domain.errors import BadMessage, Misconfigured

if TYPE_CHECKING:
    from streams.adapters.erasure import Erasure

BATCH = 200


def erase(
    whom: Annotated[
        str, typer.Argument(metavar="ADDRESS|KEY", help="A mail address or a recipient key.")
    ],
    *,
    reason: Reason,
    by: By,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Removes contents, addresses, events and facts of a recipient, a batch a transaction; what waits is cancelled first.
    Suppressions stay under the key. It may be broken off at any time, and given again.
    Exit code 1: some messages are not ended yet: give it again later; 3: nothing is kept of this recipient."""
    who = decision(by, reason)

    async def work() -> None:
        from streams import wiring
        from streams.adapters.erasure import Erasure

        async with wiring.operating("erase") as (database, config):
            try:
                recipient = recipient_named(whom, salt=config.salt())
            except BadMessage as error:
                raise Misconfigured(str(error)) from error
            await wiring.check_own_salt(database, config)
            store = Erasure(database, recipient.key, who)
            with progress("messages", quiet=as_json) as told:
                done = await _erase(store, told, dry_run=dry_run)
        if done.nothing:
            raise Ending(Code.UNKNOWN, _nothing(done))
        document = {"recipient_key": recipient.key, "dry_run": dry_run} | asdict(done)
        tell(document, _lines(recipient.key, done, dry_run=dry_run), as_json=as_json)
        if done.left:
            raise typer.Exit(Code.FAILED)

    run_async(work)


async def _erase(store: "Erasure", told: Steps, *, dry_run: bool) -> Erased:
    done = Erased()
    for kind in Kind:
        at = Page(limit=BATCH)
        while page := await store.page(kind, at):
            if dry_run:
                store.count(kind, page, done)
            else:
                await store.erase(kind, page, done)
            told(done.messages + done.copies)
            at = Page(after=page[-1]["id"], limit=BATCH)
    await store.rest(done, dry_run=dry_run)
    return done


def _nothing(done: Erased) -> str:
    kept = f", but {done.suppressions} suppressions, which stay" if done.suppressions else ""
    return f"nothing is kept of this recipient{kept}"


def _lines(key: str, done: Erased, *, dry_run: bool) -> list[str]:
    lines = [
        f"{done.cancelled:>8}  cancelled first",
        f"{done.messages:>8}  messages emptied",
        f"{done.copies:>8}  addresses taken out of messages to others",
        f"{done.events + done.states:>8}  other events and facts removed",
        f"{done.addresses:>8}  addresses taken out of the list of what SES is to forget",
        f"{done.suppressions:>8}  suppressions stay under key {key}",
    ]
    if done.left:
        lines.append(
            f"{done.left:>8}  left: a call is under way, or they wait for others; give it again later"
        )
    return [*lines, *(["nothing was changed"] if dry_run else [])]
