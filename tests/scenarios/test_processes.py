"""Cases D01, D02, D03, D09, D14 and D20: senders as processes, real servers, one broker.

SCENARIOS=long runs them as they are written; without it they are as short as shows the same.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from devservers.errors import PortBusy
from devservers.kafka import LocalKafka
from devservers.tcp_proxy import PRODUCE
from streams.domain.partitioner import partition_of
from streams.domain.records import Record
from streams.domain.topics import Lane
from tests.scenarios.conftest import Place
from tests.scenarios.group import history, members_when_stable
from tests.scenarios.load import Application, Readiness, Watch
from tests.scenarios.scene import LONG, MAX_IN_FLIGHT, Scene, scene_on
from tests.scenarios.topics import ends_of, newest_records, write_suppressions

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800 if LONG else 900)]

# What the text allows, and what a busy machine may need to be asked.
BOUND_S = 60.0
LATE_S = 5.0
CLAIMS = "mailstreams_sender_claims_total"


@pytest.fixture(scope="module")
def scene(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Three partitions and every stage but the sender, all of them behind the proxy."""
    with scene_on(place.servers, tmp_path_factory.mktemp("scene"), kafka=place.by_proxy) as made:
        made.run_around()
        yield made


def started(broker: LocalKafka) -> None:
    """One of its ports may be taken for a moment after it has ended."""
    deadline = time.monotonic() + 90
    while True:
        try:
            broker.start()
        except PortBusy:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            return


def test_d01_after_each_restart_of_the_broker_consumption_goes_on_and_nothing_is_sent_twice(
    place: Place, scene: Scene
) -> None:
    rounds, pause_s = (20, 30.0) if LONG else (2, 0.0)
    names = ["sender-1", "sender-2", "sender-3"]
    probes: list[str] = []
    with (
        scene.senders(*names),
        Watch(scene, ["around", *names]) as watch,
        Application(scene) as application,
    ):
        for number in range(rounds):
            place.broker.stop()
            started(place.broker)
            watch.excused()
            back = time.monotonic()
            # Twice the bound: time for a process that is started again, since its liveness failed, to go on.
            probes += consumed_within(scene, 2 * BOUND_S, f"restart-{number}")
            time.sleep(max(0.0, back + pause_s - time.monotonic()))  # the case's own pace
        application.stop()
        if watch.restarts:
            scene.wait_settled_after_kills([*application.ids, *probes], 120)
        else:
            scene.wait_submitted([*application.ids, *probes], 120)
    assert watch.longest["rows"] <= BOUND_S + LATE_S, watch.restarts
    scene.assert_none_accepted_twice()


def consumed_within(scene: Scene, seconds: float, mark: str) -> list[str]:
    """A mail by each partition is sent within so many seconds from now; their ids."""
    wanted = [scene.addresses(n, 1, f"{mark}-{n}")[0] for n in range(scene.partitions)]
    ids = scene.commit(wanted)
    scene.wait_submitted(ids, seconds)
    return ids


def test_d02_slow_calls_do_not_throw_a_sender_out_of_its_group_and_each_row_is_accepted_once(
    scene: Scene,
) -> None:
    poll_s, answer_s, rows = (10, 15, 200) if LONG else (5, 7, 60)
    settings = {
        "MAILSTREAMS_SENDER_MAX_POLL_INTERVAL_S": str(poll_s),
        "MAILSTREAMS_SENDER_READ_TIMEOUT_S": str(answer_s + 15),
        "MAILSTREAMS_SENDER_LEASE_S": str(answer_s + 30),
    }
    names = ["sender-1", "sender-2"]
    with scene.senders(*names, **settings):
        wait_for_shares(scene, names)
        before = asyncio.run(history(scene.kafka, scene.sender_group))
        with slow_answers(scene, answer_s):
            ids = scene.commit(f"slow-{n}@example.com" for n in range(rows))
            scene.wait_submitted(ids, 300)
        after = asyncio.run(history(scene.kafka, scene.sender_group))
        assert after.generations[-1] == before.generations[-1]
        wait_for_shares(scene, names)
        for name in names:
            assert scene.metric(name, "mailstreams_sender_outcomes_total", kind="unknown") == 0
    scene.assert_each_accepted_once(ids)


@contextmanager
def slow_answers(scene: Scene, seconds: float) -> Iterator[None]:
    """SES takes every call at once and answers so late."""
    fault = {"when": "after", "lie": "delay", "seconds": seconds, "share": 1.0}
    scene.control("faults", faults=[fault])
    yield
    scene.control("faults", faults=[])


def wait_for_shares(scene: Scene, names: Sequence[str]) -> None:
    """Until every partition has one owner, and each of them some partition."""
    scene.wait_for(
        lambda: all_owned(scene, names) and all(scene.owned(name) for name in names),
        f"{names} to share the partitions",
        timeout_s=60,
    )


def is_stable(scene: Scene, names: Sequence[str]) -> bool:
    """Whether they are all in the group, nobody moves, and all are ready."""
    members = asyncio.run(members_when_stable(scene.kafka, scene.sender_group))
    ready = all(scene.ready(name) for name in names)
    return members == len(names) and all_owned(scene, names) and ready


def all_owned(scene: Scene, names: Sequence[str]) -> bool:
    """Whether every partition has one owner among them."""
    return sorted(n for name in names for n in scene.owned(name)) == list(range(scene.partitions))


def test_d03_a_commit_that_overlaps_a_rebalance_loses_nothing_and_sends_nothing_twice(
    place: Place, tmp_path: Path
) -> None:
    rounds = 50 if LONG else 2
    probes: list[str] = []
    with scene_on(place.servers, tmp_path, partitions=2) as scene:
        scene.run_around()
        busy = Application(scene, per_second=50)  # so that a rebalance always finds calls under way
        with scene.senders("sender-1"), slow_answers(scene, 0.3), busy as application:
            for number in range(rounds):
                scene.run("sender-2")
                wait_for_shares(scene, ["sender-1", "sender-2"])
                scene.stop("sender-2")
                probes += consumed_within(scene, 30.0, f"round-{number}")
            application.stop()
            scene.wait_submitted([*application.ids, *probes], 120)
        scene.assert_each_accepted_once([*application.ids, *probes])
        told = asyncio.run(history(scene.kafka, scene.sender_group))
        assert told.commits
        assert told.went_back == {}


def test_d14_lost_answers_to_produce_requests_lose_no_row_and_send_none_twice(
    healed: Place, scene: Scene
) -> None:
    rows, seconds = (1000, 60.0) if LONG else (300, 15.0)
    pointers = [scene.topics.outbox(lane) for lane in Lane]
    before = written(scene, pointers)
    with scene.senders("sender-1"):
        healed.proxy.dropped_answers = frozenset({PRODUCE})
        until = time.monotonic() + seconds
        ids = scene.commit(f"produced-{n}@example.com" for n in range(rows))
        time.sleep(max(0.0, until - time.monotonic()))  # the trouble itself
        assert healed.proxy.lost_answers[PRODUCE] > 0
        healed.proxy.dropped_answers = frozenset()
        scene.wait_submitted(ids, 180)
        repeated = written(scene, pointers) - before - rows
        assert repeated >= 0
        scene.wait_for(
            lambda: scene.metric("sender-1", CLAIMS, verdict="settled") >= repeated,
            f"{repeated} repeated pointers to be counted",
            timeout_s=60,
        )
    scene.assert_each_accepted_once(ids)


def written(scene: Scene, topics: Sequence[str]) -> int:
    """How many records were ever written to these topics."""
    return sum(sum(asyncio.run(ends_of(scene.kafka, topic)).values()) for topic in topics)


def test_d20_idle_senders_are_ready_and_take_over_from_killed_ones(scene: Scene) -> None:
    session_s = 10.0 if LONG else 6.0
    names = [f"sender-{n}" for n in range(1, 6)]
    settings = {"MAILSTREAMS_KAFKA_SESSION_TIMEOUT_S": str(session_s)}
    with scene.senders(*names, **settings), Application(scene) as application:
        scene.wait_for(lambda: is_stable(scene, names), "a stable group", timeout_s=60)
        owners = [name for name in names if scene.owned(name)]
        idle = [name for name in names if name not in owners]
        assert len(idle) == 2
        with Readiness(scene, idle) as idle_ones:
            scene.wait_submitted(scene.commit(["while-idle@example.com"]), 60)
            asked = idle_ones.asked
            scene.wait_for(lambda: idle_ones.asked > asked + 20, "readiness to be asked")
            assert idle_ones.missing == []
            killed = time.monotonic()
            for name in owners[:2]:
                scene.kill(name)
            left = [name for name in names if name not in owners[:2]]
            scene.wait_for(
                lambda: all_owned(scene, left),
                "the partitions of the killed to be owned",
                timeout_s=session_s + 10.0 + LATE_S,
            )
            assert time.monotonic() - killed <= session_s + 10.0
            assert {name for name in idle if scene.owned(name)}
        # Whoever owns new partitions says so while it reads their suppressions; nothing else was ever missing.
        assert [
            m for _, _, m in idle_ones.missing if m.keys() != {"sender.suppression_table"}
        ] == []
        application.stop()
        scene.wait_settled_after_kills(application.ids, 120)
        assert scene.states(application.ids)["ambiguous"] <= 2 * MAX_IN_FLIGHT
    scene.assert_none_accepted_twice()


def test_d09_nothing_is_decided_before_the_suppressions_are_read_up_to_their_end(
    healed: Place, tmp_path: Path
) -> None:
    records, late_s = (1_000_000, 2.0) if LONG else (30_000, 1.0)
    known, later = "known@example.com", "later@example.com"
    by_proxy = {"MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS": healed.by_proxy}
    with scene_on(healed.servers, tmp_path) as scene:
        topic = scene.topics.suppressions
        asyncio.run(write_suppressions(scene.kafka, topic, records, scene.partitions))
        scene.run_around()
        suppress(scene, known)
        wait_for_record(scene, known)
        ends = asyncio.run(ends_of(scene.kafka, topic))
        others = [a for n in range(scene.partitions) for a in scene.addresses(n, 20, "other")]
        partition = {i: n // 20 for n, i in enumerate(scene.commit(others))}
        to_known = scene.commit([known])
        healed.proxy.answer_delay_s = late_s
        scene.run("sender-1", **by_proxy)
        early: list[str] = []

        def ready() -> bool:
            called = set(scene.accepted())
            applied = applied_offsets(scene, "sender-1")
            early.extend(i for i in called if applied[partition[i]] < ends[partition[i]])
            return scene.ready("sender-1")

        scene.wait_for(ready, "the sender to be ready", alive="sender-1", timeout_s=240)
        suppress(scene, later)
        written = time.monotonic()
        at = wait_for_record(scene, later)
        scene.wait_for(
            lambda: applied_offsets(scene, "sender-1")[at.partition] > at.offset,
            "the later record to be applied",
            timeout_s=5.0,
        )
        time.sleep(max(0.0, written + 5.0 - time.monotonic()))  # as the case has it
        to_later = scene.commit([later])
        scene.wait_submitted(list(partition), 120)
        for outbox_id in (*to_known, *to_later):
            scene.wait_for(
                lambda i=outbox_id: scene.states([i]) == {"suppressed": 1},  # type: ignore[misc]
                "mail to a suppressed address to be stopped",
                timeout_s=60,
            )
        assert early == []
        assert scene.accepted().keys() == partition.keys()
        scene.kill("sender-1")


def suppress(scene: Scene, address: str) -> None:
    scene.rows(
        "INSERT INTO suppression (recipient_key, reason) VALUES (recipient_key(%s), 'manual') RETURNING 1",
        address,
    )


def wait_for_record(scene: Scene, address: str) -> Record:
    """The suppression of this address in the topic."""
    key = scene.key(address).encode()
    found: list[Record] = []

    def there() -> bool:
        numbers = [partition_of(key, scene.partitions)]
        found[:] = asyncio.run(
            newest_records(scene.kafka, scene.topics.suppressions, numbers, key=key)
        )
        return bool(found)

    scene.wait_for(there, "a suppression to be in the topic", timeout_s=60)
    return found[-1]


def applied_offsets(scene: Scene, name: str) -> Counter[int]:
    """Up to where a sender has read the suppressions, by partition."""
    return Counter(
        {
            int(labels["partition"]): int(value)
            for series, labels, value in scene.metrics(name)
            if series == "mailstreams_sender_suppression_offset"
        }
    )
