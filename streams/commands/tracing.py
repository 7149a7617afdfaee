"""`mailstreams trace`: the whole story of one message, by whatever somebody has of it."""

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from streams.commands.ending import Code, Ending
from streams.commands.operating import Row, Tenant, decision, tell
from streams.commands.running import Json, run_async
from streams.commands.showing import plain, show_table
from streams.domain.addresses import recipient_key
from streams.domain.asking import Asked, asked
from streams.domain.errors import Misconfigured
from streams.domain.partitioner import partition_of
from streams.domain.topics import Lane, Topics

if TYPE_CHECKING:
    from streams.adapters.message_stories import MessageStories
    from streams.domain.addresses import RecipientKey
    from streams.domain.by_hand import Decision
    from streams.runtime.settings import Settings


def trace(
    what: Annotated[
        str,
        typer.Argument(
            metavar="ID|ADDRESS|KEY",
            help="Outbox id, attempt id, provider's message id, mail address, recipient key or dedup key.",
        ),
    ],
    *,
    tenant: Tenant = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, help="Of several messages the newest ones.")
    ] = 20,
    show_addresses: Annotated[
        bool,
        typer.Option("--show-addresses", help="Addresses in full; needs --by and --reason."),
    ] = False,
    by: Annotated[str, typer.Option("--by", help="Who looks.")] = "",
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the audit log.")] = "",
    as_json: Json = False,
) -> None:
    """Tells the whole story of one message: row, pointer, attempts, events, facts, suppressions, what holds it now.
    Exit code 4: several messages are meant, which are listed; 3: none is known."""
    meant, shown_to = asked(what), decision(by, reason) if show_addresses else None
    if not show_addresses and (by or reason):
        raise Misconfigured("--by and --reason belong to --show-addresses")

    async def work() -> None:
        from streams import wiring
        from streams.adapters.message_stories import MessageStories

        async with wiring.operating("trace") as (database, config):
            stories = MessageStories(database)
            if meant.address:
                await wiring.check_own_salt(database, config)
            key = _key(meant, config)
            found = await stories.find(meant, key, tenant=tenant, limit=limit + 1)
            if not found:
                raise Ending(Code.UNKNOWN, "there is no message of this id, recipient or dedup key")
            if len(found) > 1:
                _list(found, limit, as_json=as_json)
            await _story(stories, found[0], config, shown_to, as_json=as_json)

    run_async(work)


def _key(meant: Asked, config: "Settings") -> "RecipientKey | None":
    return recipient_key(meant.address, config.salt()) if meant.address else meant.key


def _list(found: list[Row], limit: int, *, as_json: bool) -> None:
    """Several messages, newest first; ends the command."""
    rows, more = found[:limit], len(found) > limit
    if as_json:
        tell({"messages": rows, "more": more}, (), as_json=True)
        raise typer.Exit(Code.SEVERAL)
    names = ("id", "is_its", "tenant", "lane", "template", "created", "state", "attempts")
    show_table(names, [[row[name] for name in names] for row in rows])
    counted = f"the newest {limit}" if more else str(len(rows))
    raise Ending(Code.SEVERAL, f"several messages are meant, {counted} are listed: trace one id")


async def _story(
    stories: "MessageStories",
    row: Row,
    config: "Settings",
    shown_to: "Decision | None",
    *,
    as_json: bool,
) -> None:
    lines = await stories.story(UUID(row["id"]), shown_to)
    for place, line in enumerate(lines):
        if line["what"] == "committed":
            lines.insert(place + 1, {"at": line["at"]} | _pointer(row, config))
            break
    texts = [
        f"{plain(line['at']):<27}  {line['what']:<22}  {plain(line['detail'] or '')}"
        for line in lines
    ]
    tell({"outbox_id": row["id"], "is_its": row["is_its"], "story": lines}, texts, as_json=as_json)


def _pointer(row: Row, config: "Settings") -> Row:
    """Where its pointers are; their offsets are kept nowhere."""
    topic = Topics(prefix=config.topic_prefix).outbox(Lane(row["lane"]))
    number = partition_of(row["recipient_key"].encode(), config.partitions)
    detail = f"topic {topic}, partition {number} of {config.partitions}, key {row['recipient_key']}"
    return {"what": "pointer", "detail": detail}
