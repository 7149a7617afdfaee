"""`mailstreams trace`: the whole story of one message, by whatever somebody has of it."""

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer

from streams.commands.ending import Code, Ending
from streams.commands.operating import Row, Tenant, decision, tell
from streams.commands.running import Json, run_async
from streams.commands.showing import plain, show_table
from streams.domain.addresses import recipient_key
from streams.domain.asking import Asked, asked
from streams.domain.errors import MailstreamsError, Misconfigured
from streams.domain.topics import Lane, Topics

if TYPE_CHECKING:
    from streams.adapters.message_stories import MessageStories
    from streams.domain.addresses import RecipientKey
    from streams.domain.by_hand import Decision
    from streams.runtime.settings import Settings

# The longest that a topic is read for the sake of one message.
LOOK_S: Final = 10.0


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
    positions: Annotated[
        bool,
        typer.Option("--positions", help="Look the pointers up in Kafka too, for 10 s at most."),
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
            lines = await _story(stories, found[0], config, shown_to)
            if positions:
                lines += await _positions(found[0], config)
        _tell(found[0], lines, as_json=as_json)

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
    stories: "MessageStories", row: Row, config: "Settings", shown_to: "Decision | None"
) -> list[Row]:
    lines = await stories.story(UUID(row["id"]), shown_to)
    for place, line in enumerate(lines):
        if line["what"] == "committed":
            lines.insert(place + 1, {"at": line["at"]} | _pointer(row, config))
            break
    return lines


def _tell(row: Row, lines: list[Row], *, as_json: bool) -> None:
    texts = [
        f"{plain(line['at']):<27}  {line['what']:<22}  {plain(line['detail'] or '')}"
        for line in lines
    ]
    tell({"outbox_id": row["id"], "is_its": row["is_its"], "story": lines}, texts, as_json=as_json)


def _place(row: Row, config: "Settings") -> tuple[str, int]:
    from streams.domain.partitioner import partition_of

    topic = Topics(prefix=config.topic_prefix).outbox(Lane(row["lane"]))
    return topic, partition_of(row["recipient_key"].encode(), config.partitions)


async def _positions(row: Row, config: "Settings") -> list[Row]:
    """One line a pointer that is found in the topic; what keeps Kafka from telling is a line too."""
    from aiokafka import TopicPartition

    from streams.adapters.pointer_positions import PointerPositions, Sought

    if row["lane"] is None:
        return []
    group = f"{config.topic_prefix}sender"
    place = TopicPartition(*_place(row, config))
    sought = Sought(place, UUID(row["id"]), row["created"], group)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        kafka = PointerPositions(config.kafka_bootstrap_servers)
        found = await kafka.find(sought, seconds=LOOK_S)
    except MailstreamsError as error:
        return [{"at": None, "what": "in the topic", "detail": str(error)}]
    lines = [
        {
            "at": f"{datetime.fromtimestamp(one.written, UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
            "what": "in the topic",
            "detail": f"offset {one.offset}, {'read' if one.read else 'not read'} by {group}",
        }
        for one in found.positions
    ]
    if lines and found.whole:
        return lines
    text = "no other pointer" if lines else "no pointer"
    span = "up to the end of the partition" if found.whole else f"within {LOOK_S:g} s of reading"
    return [*lines, {"at": None, "what": "in the topic", "detail": f"{text} was found {span}"}]


def _pointer(row: Row, config: "Settings") -> Row:
    """Where its pointers are; their offsets are kept nowhere."""
    topic, number = _place(row, config)
    detail = f"topic {topic}, partition {number} of {config.partitions}, key {row['recipient_key']}"
    return {"what": "pointer", "detail": detail}
