"""Rows of the feed for the relay and for Debezium, from a seed: every kind of value, and every kind of transaction around them."""

import json
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import asyncpg

AGGREGATES: Final = ("outbox.transactional", "outbox.bulk", "suppressions", "delivery-events")
# Kafka takes batches of 1 MiB, and Java's producer records of a little less; this payload leaves room for the rest of the record.
NEAR_THE_LIMIT: Final = 1_047_000
TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OLD_DAY: Final = "2020-01-01"
# From every length of a character in UTF-8, with what JSON, Java and property files escape.
_CHARACTERS: Final = "aZ09 _-.,:;=/\\\"'\t\n\r\b\f{}[]%$#!\x01\x1f\x7f\x80ßéü\u00a0\u07ffसक€\u2028\u2029\ufeff\ufffd\uffff𐍈😀\U0010ffff"
_NUMBERS: Final = (
    *(
        "0",
        "-0",
        "1.50",
        "-1.0e-7",
        "1E400",
        "9007199254740993",
        "0.1000000000000000055511151231257827",
    ),
    *("1e-30", "12345678901234567890123456789.000"),
)
# A context as java.util.Properties writes it, and the traceparent in it.
CONTEXTS: Final[tuple[tuple[str | None, str | None], ...]] = (
    (None, None),
    ("", None),
    (f"traceparent={TRACE}", TRACE),
    (f"traceparent={TRACE}\n", TRACE),
    (f"#Tue Dec 01 04:05:06 UTC 2026\ntracestate=a\\=1,b\\=2\ntraceparent={TRACE}\n", TRACE),
    ("baggage=user\\=ann", None),
)


class Ending(StrEnum):
    """How a transaction ends."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row; payload is JSON as it is written, not as PostgreSQL prints it."""

    id: uuid.UUID
    aggregatetype: str
    aggregateid: str
    type: str
    payload: str | None
    context: str | None
    traceparent: str | None
    old: bool = False  # of a day long ago, which has a partition of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of one sub-transaction, or of the transaction itself where kept and alone."""

    rows: tuple[Row, ...]
    kept: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One transaction: definitions before its rows, its parts, its end."""

    parts: tuple[Part, ...] = ()
    ending: Ending = Ending.COMMIT
    definitions: tuple[str, ...] = ()
    many: int = 0  # further small rows, made by the server

    def committed(self) -> Iterator[Row]:
        if self.ending is Ending.COMMIT:
            for part in self.parts:
                yield from part.rows if part.kept else ()


class Generator:
    """The changes of some writers."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 rows to be made again from the seed

    def writers(self, rows: int, *, writers: int) -> list[list[Change]]:
        """For each writer its changes in their order; about `rows` rows are committed, the big transactions apart."""
        made = [list(self._changes(rows // writers)) for _ in range(writers)]
        made[0][len(made[0]) // 2 : len(made[0]) // 2] = self._definitions()
        made[-1].insert(len(made[-1]) // 3, Change(many=3000, parts=(Part(rows=(self.row(),)),)))
        made[1].append(Change(many=3000, ending=Ending.ROLLBACK))
        made[1].append(Change(parts=(Part(rows=(self.large(),)), Part(rows=(self.row(),)))))
        return made

    def _changes(self, rows: int) -> Iterator[Change]:
        done = 0
        while done < rows:
            count = self._random.choices((1, 2, 7, 40), (60, 20, 15, 5))[0]
            found = tuple(self.row() for _ in range(count))
            kind = self._random.random()
            if kind < 0.1:
                yield Change(parts=(Part(rows=found),), ending=Ending.ROLLBACK)
                continue
            cut = self._random.randint(0, count)
            if kind < 0.3:
                lost = tuple(self.row() for _ in range(3))
                yield Change(
                    parts=(
                        Part(rows=found[:cut]),
                        Part(rows=lost, kept=False),
                        Part(rows=found[cut:]),
                    )
                )
            else:
                yield Change(parts=(Part(rows=found),))
            done += count

    def _definitions(self) -> list[Change]:
        """Columns and partitions that come and go between rows, and in one transaction with them."""
        old = tuple(self.row(old=True) for _ in range(5))
        return [
            Change(
                definitions=(
                    f"CREATE TABLE outbox_feed_old PARTITION OF outbox_feed FOR VALUES FROM ('{OLD_DAY}') TO ('2020-01-02')",
                )
            ),
            Change(parts=(Part(rows=old[:3]), Part(rows=(self.row(old=True),), kept=False))),
            Change(
                definitions=(
                    "ALTER TABLE outbox_feed ADD COLUMN note text NOT NULL DEFAULT 'new'",
                ),
                parts=(Part(rows=(self.row(), *old[3:])),),
            ),
            Change(
                definitions=(
                    "ALTER TABLE outbox_feed DETACH PARTITION outbox_feed_old",
                    "DROP TABLE outbox_feed_old",
                ),
                parts=(Part(rows=(self.row(), self.row())),),
            ),
            Change(definitions=("ALTER TABLE outbox_feed ADD COLUMN score numeric",)),
            Change(parts=(Part(rows=(self.row(),)),)),
            Change(
                definitions=("ALTER TABLE outbox_feed DROP COLUMN note",), ending=Ending.ROLLBACK
            ),
            Change(definitions=("ALTER TABLE outbox_feed DROP COLUMN note, DROP COLUMN score",)),
        ]

    def row(self, *, old: bool = False) -> Row:
        """One row of any kind but a large one."""
        context, traceparent = self._random.choice(CONTEXTS)
        return Row(
            id=uuid.UUID(int=self._random.getrandbits(128)),
            aggregatetype=self._random.choice(AGGREGATES),
            aggregateid=self._key(),
            type=self._random.choice(("pointer", "suppressions", "", "a type", self.text(30))),
            payload=self._payload(),
            context=context,
            traceparent=traceparent,
            old=old,
        )

    def large(self) -> Row:
        """A row whose record is almost as large as Kafka takes, and does not compress well."""
        filling = self._random.randbytes(NEAR_THE_LIMIT // 2).hex()
        return Row(
            id=uuid.UUID(int=self._random.getrandbits(128)),
            aggregatetype="suppressions",
            aggregateid="large",
            type="suppressions",
            payload=json.dumps(filling),
            context=None,
            traceparent=None,
        )

    def _key(self) -> str:
        kind = self._random.random()
        if kind < 0.6:  # as mailstreams has them, from a few, so that they repeat
            return f"{self._random.randint(0, 40):032x}"
        if kind < 0.61:
            return ""
        return self.text(self._random.choice((1, 2, 3, 4, 5, 17, 100, 3000))) or "k"

    def text(self, length: int) -> str:
        return "".join(self._random.choices(_CHARACTERS, k=self._random.randint(0, length)))

    def _payload(self) -> str | None:
        kind = self._random.random()
        if kind < 0.15:
            return None
        if kind < 0.18:
            return json.dumps({"large": self.text(1) + "x" * self._random.choice((2_100, 70_000))})
        return self._json(0)

    def _json(self, depth: int) -> str:
        """JSON with its own spaces, order, repeated names and ways to write numbers and characters."""
        kinds = ["null", "true", "false", "number", "text", "{}", "[]", '""']
        kind = self._random.choice(kinds + (["array", "object"] * 4 if depth < 5 else []))
        if kind == "number":
            return self._random.choice(_NUMBERS)
        if kind == "text":
            return json.dumps(self.text(60), ensure_ascii=self._random.random() < 0.5)
        if kind == "array":
            return (
                f"[{' , '.join(self._json(depth + 1) for _ in range(self._random.randint(1, 4)))}]"
            )
        if kind == "object":
            names = (self._random.choice(("a", "b", "n", self.text(8))) for _ in range(4))
            return f"{{{','.join(f'{json.dumps(n)} :{self._json(depth + 1)}' for n in names)}}}"
        return kind


async def write(dsn: str, changes: list[Change]) -> None:
    """Carries the changes of one writer out, on a connection of its own."""
    connection = await asyncpg.connect(dsn, timeout=60)
    try:
        for change in changes:
            await _carry_out(connection, change)
    finally:
        await connection.close()


async def _carry_out(connection: Any, change: Change) -> None:
    transaction = connection.transaction()
    await transaction.start()
    if (
        change.definitions
    ):  # the first lock that it takes, so that no two writers wait for each other
        await connection.execute("LOCK TABLE outbox_feed IN ACCESS EXCLUSIVE MODE")
    for definition in change.definitions:
        await connection.execute(definition)
    for part in change.parts:
        inner = connection.transaction()
        if len(change.parts) > 1:
            await inner.start()
        await connection.executemany(
            "INSERT INTO outbox_feed (id, aggregatetype, aggregateid, type, payload, tracingspancontext, ts) "
            f"VALUES ($1, $2, $3, $4, $5, $6, CASE WHEN $7 THEN timestamp '{OLD_DAY}' ELSE clock_timestamp() AT TIME ZONE 'UTC' END)",
            [
                (r.id, r.aggregatetype, r.aggregateid, r.type, r.payload, r.context, r.old)
                for r in part.rows
            ],
        )
        if len(change.parts) > 1:
            await (inner.commit() if part.kept else inner.rollback())
    if change.many:
        await connection.execute(
            "INSERT INTO outbox_feed (aggregatetype, aggregateid, type, payload) "
            "SELECT 'outbox.bulk', md5((n % 50)::text), 'pointer', jsonb_build_object('n', n) FROM generate_series(1, $1::int) AS n",
            change.many,
        )
    await (transaction.commit() if change.ending is Ending.COMMIT else transaction.rollback())
