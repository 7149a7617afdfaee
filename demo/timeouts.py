"""`python -m demo.timeouts`: SES takes every message and keeps the answer to 5 % of the calls to itself.

Real processes: every stage, two senders. The policy is `hold`. The last line is one JSON object; exit code 1 if a message was
sent twice or lost, or if one whose answer never came did not end `submitted` by the events of its own attempt.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg

from demo import backlog
from demo.proof import prove
from demo.system import System

STAGES: Final = ("relay", "sender", "sender-2", "events", "recipients", "scheduler")
SENDERS: Final = ("sender", "sender-2")
PATIENCE_S: Final = 900.0
_ATTEMPTS: Final = (
    "SELECT a.id::text, a.outcome, o.state, EXISTS (SELECT FROM email_event AS e WHERE e.attempt_id = a.id) "
    "FROM email_attempt AS a JOIN email_outbox AS o ON o.id = a.outbox_id"
)


def run(system: System, *, messages: int, share: float) -> dict[str, Any]:
    """Commits, waits until everything has ended, and counts."""
    system.control("faults", faults=[{"when": "after", "lie": "hang", "share": share}])
    started = time.monotonic()
    backlog.commit(system.dsn, messages, "ann")
    system.wait_for(
        lambda: not backlog.states(system.dsn).keys() & {"pending", "sending", "ambiguous"},
        "everything to end",
        timeout_s=PATIENCE_S,
    )
    with psycopg.connect(system.dsn) as connection:
        attempts = connection.execute(_ATTEMPTS).fetchall()
    return {
        **counts(system.ledger(), {attempt: tuple(rest) for attempt, *rest in attempts}),
        "messages": messages,
        "share": share,
        "ever_ambiguous": sum(backlog.unknown_outcomes(system, sender) for sender in SENDERS),
        "lost": messages - backlog.states(system.dsn)["submitted"],
        "possible_duplicates": backlog.value(system.dsn, "SELECT count(*) FROM email_duplicate"),
        "seconds": round(time.monotonic() - started, 1),
    }


def counts(
    ledger: Sequence[Mapping[str, Any]], attempts: Mapping[str, tuple[str, str, bool]]
) -> dict[str, int]:
    """attempts: by id, the outcome, the state of the message, and whether an event of that attempt has come."""
    unanswered = [call["attempt"] for call in ledger if call["answer"] == "lost"]
    known = {attempt: attempts.get(attempt, ("", "", False)) for attempt in unanswered}
    return {
        "unanswered": len(unanswered),
        "settled_by_events": sum(
            known[attempt] == ("accepted", "submitted", True) for attempt in unanswered
        ),
        "sent_twice": sum(
            times > 1 for times in Counter(call["outbox"] for call in ledger).values()
        ),
    }


def faults(found: Mapping[str, Any]) -> list[str]:
    """What is wrong with what was found."""
    zero = ("lost", "sent_twice", "possible_duplicates")
    wrong = [f"{found[name]} {name}" for name in zero if found[name]]
    if found["settled_by_events"] != found["unanswered"]:
        wrong.append(
            f"{found['unanswered'] - found['settled_by_events']} messages were not settled by events"
        )
    if found["unanswered"] < found["messages"] * found["share"] / 2:
        wrong.append("too few calls were left without an answer, so that nothing is shown")
    if found["ever_ambiguous"] < found["unanswered"]:
        wrong.append("the senders counted fewer unknown outcomes than answers were kept back")
    return wrong


def main() -> int:
    options = _options()

    def judged(system: System) -> tuple[list[str], dict[str, Any]]:
        found = run(system, messages=options.messages, share=options.share)
        return faults(found), found

    return prove("timeouts", judged, stages=STAGES)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo.timeouts", description=__doc__)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--share", type=float, default=0.05, help="of the calls, 0.01 to 0.5")
    options = parser.parse_args()
    if options.messages < 100:
        parser.error("--messages has to be 100 or more, so that some calls are left unanswered")
    if not 0.01 <= options.share <= 0.5:
        parser.error("--share has to be between 0.01 and 0.5")
    return options


if __name__ == "__main__":
    sys.exit(main())
