"""Events under every disturbance that SNS is capable of, while `events` and `recipients` are killed again and again.

`python -m demo.events_chaos --messages 20000`: exit code 0 if every fact of the simulator's ledger is in PostgreSQL exactly once.
A fifth of the events comes twice, a fifth of the messages' events out of order, a tenth an hour late, some before the send was
recorded, in both shapes that SES has. The last line is one JSON object.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Final

import psycopg

from demo.events_truth import COLUMNS, Cause, Fact, Held, differences, read_ledger
from demo.proof import prove
from demo.system import NotWorking, System

KILLED: Final = ("events", "recipients")
SENDER: Final = "mail@example.com"
RULES: Final = [
    {"match": "*@example.com", "share": 0.05, "outcome": "bounce", "bounce_type": "Permanent", "bounce_subtype": "NoEmail"},
    {"match": "*@example.com", "share": 0.03, "outcome": "bounce", "bounce_type": "Transient", "bounce_subtype": "MailboxFull"},
    {"match": "*@example.com", "share": 0.02, "outcome": "auto-reply"},
    {"match": "*@example.com", "share": 0.02, "outcome": "complaint", "feedback_type": "abuse"},
    {"match": "*@example.com", "share": 0.01, "outcome": "complaint", "feedback_type": "not-spam"},
    {"match": "*@example.com", "share": 0.05, "outcome": "delay"},
    {"match": "*@example.com", "share": 0.01, "outcome": "reject"},
    {"match": "*@example.com", "share": 0.10, "outcome": "open"},
    {"match": "*@example.com", "share": 0.05, "outcome": "click"},
    {"match": "*@example.com", "share": 0.02, "outcome": "subscription"},
]  # fmt: skip
DISTURBANCES: Final = {
    "duplicate_share": 0.2,
    "reorder_share": 0.2,
    "late_share": 0.1,
    "late_ms": [1000, 20000],
    "late_age_s": 3600.0,
    "early_share": 0.05,
}
# Notifications of identities beside the events, instead of them, and not at all. They have no tags: one that comes alone and
# early has no message until the answer is recorded.
SHAPES: Final = ("beside", "instead", "off")
# Long enough for every answer, since nothing else could tell what became of a message without tags.
SETTINGS: Final = {
    "MAILSTREAMS_SENDER_READ_TIMEOUT_S": "60",
    "MAILSTREAMS_SENDER_LEASE_S": "120",
}
# As docs/events.md recommends: an endpoint may be away for most of an hour.
DELIVERY_POLICY: Final = {
    "healthyRetryPolicy": {
        "numRetries": 40,
        "numMinDelayRetries": 3,
        "minDelayTarget": 5,
        "maxDelayTarget": 120,
        "numMaxDelayRetries": 15,
        "backoffFunction": "exponential",
    }
}
A_TRANSACTION: Final = 200
BETWEEN_KILLS_S: Final = (0.5, 4.0)
SECONDS_A_MESSAGE: Final = 0.08
PATIENCE_S: Final = 180.0

Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Chaos:
    """One run on a running system."""

    system: System
    messages: int
    seed: int
    say: Say
    kills: Counter[str] = field(default_factory=Counter)
    unmatched_at_most: int = 0

    def run(self) -> tuple[list[str], dict[str, Any]]:
        """What is wrong, in words, and the numbers."""
        started = time.monotonic()
        self._disturb()
        self._commit()
        self._kill_until_quiet(started + PATIENCE_S + self.messages * SECONDS_A_MESSAGE)
        faults = self._judged()
        state = self.system.simulator_state()
        numbers = self._numbers(state) | {"seconds": round(time.monotonic() - started, 1)}
        return faults + self._undisturbed(state), numbers

    def _disturb(self) -> None:
        self.system.control("rules", rules=RULES, seed=f"chaos-{self.seed}")
        self.system.control("events", **DISTURBANCES)
        _set_delivery_policy(self.system.simulator_url)

    def _commit(self) -> None:
        """Every tenth message has a copy, every third is bulk mail."""
        with psycopg.connect(self.system.dsn) as connection:
            for first in range(0, self.messages, A_TRANSACTION):
                numbers = range(first, min(first + A_TRANSACTION, self.messages))
                connection.cursor().executemany(
                    "SELECT enqueue_email(recipient => %s, sender => %s, subject => %s, body_text => 'Hi', "
                    "tenant => %s, lane => %s, cc => %s)",
                    [
                        (
                            f"user-{n}@example.com",
                            SENDER,
                            f"Message {n}",
                            f"tenant-{n % 3}",
                            "bulk" if n % 3 == 0 else "transactional",
                            [f"copy-{n}@example.com"] if n % 10 == 0 else None,
                        )
                        for n in numbers
                    ],
                )
                connection.commit()
        self.say(f"{self.messages} messages committed")

    def _kill_until_quiet(self, deadline: float) -> None:
        """Kills one stage after the other while there is anything left to tell; then waits until all is folded."""
        rng = random.Random(self.seed)  # noqa: S311 moments, no secrets
        for stage, shape in zip(cycle(KILLED), cycle(SHAPES), strict=False):
            if self._is_told() and self.kills.total() >= 2 * len(KILLED):
                break
            if time.monotonic() > deadline:
                raise NotWorking(f"not everything was told in time: {self._progress()}")
            self.system.control("events", legacy=shape)
            self.system.kill(stage)
            self.kills[stage] += 1
            self.system.start(stage)
            self.system.wait_ready(stage)
            self.say(f"{stage} was killed and started again; {self._progress()}")
            _until(self._is_told, rng.uniform(*BETWEEN_KILLS_S))
        if not _until(lambda: self._is_told() and not self._differences(), PATIENCE_S):
            self.say("the facts are not all there, and no more is coming")

    def _is_told(self) -> bool:
        """Everything is sent, and SNS has nothing left."""
        self._unmatched()
        unsent = self._count(
            "SELECT count(*) FROM email_outbox WHERE state IN ('pending', 'sending', 'ambiguous')"
        )
        return not unsent and not self.system.simulator_state()["events"]["pending"]

    def _progress(self) -> str:
        pending = self.system.simulator_state()["events"]["pending"]
        facts = self._count("SELECT count(*) FROM email_event")
        unmatched = self._unmatched()
        sent = self._count("SELECT count(*) FROM email_outbox WHERE state = 'submitted'")
        return f"{sent} sent, {facts} facts, {unmatched} unmatched, {pending} still to come"

    def _unmatched(self) -> int:
        count = self._count("SELECT count(*) FROM email_event WHERE outbox_id IS NULL")
        self.unmatched_at_most = max(self.unmatched_at_most, count)
        return count

    def _count(self, sql: str) -> int:
        with psycopg.connect(self.system.dsn) as connection:
            row = connection.execute(sql).fetchone()
        return 0 if row is None else int(row[0])

    # Judging ------------------------------------------------------------------------------------------------------

    def _judged(self) -> list[str]:
        unsent = self._count("SELECT count(*) FROM email_outbox WHERE state <> 'submitted'")
        dead = self.system.simulator_state()["events"]["dead"]
        return [
            *([f"{unsent} messages did not end as submitted"] if unsent else []),
            *([f"SNS gave up {dead} notifications"] if dead else []),
            *self._differences(),
        ]

    def _differences(self) -> list[str]:
        ledger = self.system.ledger()
        addresses = sorted({address for call in ledger for address in call["recipients"]})
        with psycopg.connect(self.system.dsn) as connection:
            keys = connection.execute(
                "SELECT a, recipient_key(a) FROM unnest(%s::text[]) AS a", (addresses,)
            ).fetchall()
            held = _held(connection)
        return differences(read_ledger(ledger, dict(keys)), held)

    def _undisturbed(self, state: dict[str, Any]) -> list[str]:
        """A run that was not disturbed proves nothing."""
        names = ("duplicates_same_id", "duplicates_new_id", "early", "late", "retries")
        return [f"no event was disturbed by {n}" for n in names if not state["events"][n]]

    def _numbers(self, state: dict[str, Any]) -> dict[str, Any]:
        events = state["events"]
        names = ("published", "duplicates_same_id", "duplicates_new_id", "early", "late", "retries")
        return {
            "messages": self.messages,
            "accepted": state["accepted"],
            **{name: events[name] for name in names},
            "facts": self._count("SELECT count(*) FROM email_event"),
            "suppressions": self._count("SELECT count(*) FROM suppression"),
            "unmatched": self._unmatched(),
            "unmatched_at_most": self.unmatched_at_most,
            "kills": dict(self.kills),
        }


def _held(connection: psycopg.Connection[tuple[Any, ...]]) -> Held:
    events = connection.execute(
        "SELECT outbox_id::text, recipient_key, type, count(*) FROM email_event WHERE outbox_id IS NOT NULL GROUP BY 1, 2, 3"
    )
    unmatched = connection.execute("SELECT count(*) FROM email_event WHERE outbox_id IS NULL")
    columns = sorted(COLUMNS.values())
    outcomes = connection.execute(
        f"SELECT outbox_id::text, recipient_key, bounce_type, {', '.join(columns)} FROM recipient_outcome"  # noqa: S608 names of ours
    ).fetchall()
    causes = connection.execute(
        "SELECT recipient_key, reason FROM suppression WHERE reason <> 'provider-suppression'"
    )
    row = unmatched.fetchone()
    return Held(
        events=Counter({Fact(o, k, t): n for o, k, t, n in events.fetchall()}),
        unmatched=0 if row is None else row[0],
        filled={
            (o, k): frozenset(c for c, at in zip(columns, times, strict=True) if at is not None)
            for o, k, _, *times in outcomes
        },
        bounce_types={(o, k): kind for o, k, kind, *_ in outcomes if kind is not None},
        suppressions=frozenset(Cause(k, r) for k, r in causes.fetchall()),
    )


def _set_delivery_policy(simulator_url: str) -> None:
    import boto3

    client = boto3.client(
        "sns",
        endpoint_url=simulator_url,
        region_name="eu-central-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    for subscription in client.list_subscriptions()["Subscriptions"]:
        client.set_subscription_attributes(
            SubscriptionArn=subscription["SubscriptionArn"],
            AttributeName="DeliveryPolicy",
            AttributeValue=json.dumps(DELIVERY_POLICY),
        )


def _until(condition: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.events_chaos", description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.messages < 100:
        parser.error("--messages has to be 100 or more, so that every disturbance meets some")

    def run(system: System) -> tuple[list[str], dict[str, Any]]:
        return Chaos(system=system, messages=options.messages, seed=options.seed, say=_say).run()

    return prove("chaos", run, settings=SETTINGS)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
