"""Rules of `mailstreams doctor` on the topics, their partitions and the heartbeats in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from streams.domain.diagnosis import Finding, error, listed, ok, seconds_text, warning
from streams.domain.topics import LARGEST_SET_ASIDE, Topics

_UNREADABLE: Final = ".unreadable"
# Records of the other topics are far smaller; a limit below this is no default of Kafka's.
_LEAST_BYTES: Final = 1_000_000
_HOUR_MS: Final = 3_600_000
_UNLIMITED: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """leader: the broker's number, or None without one."""

    number: int
    leader: int | None
    replicas: Sequence[int]
    in_sync: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """settings: those in force, the brokers' defaults among them; None if they may not be read."""

    partitions: Sequence[Partition]
    settings: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """brokers: the numbers of those that are up. Only topics of ours, only those that exist."""

    brokers: Sequence[int]
    topics: Mapping[str, Topic]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeats:
    """Seconds since the newest heartbeat of each partition, None where none was found. empty: no record at all."""

    ages_s: Mapping[int, float | None]
    empty: bool


def judge_topics(cluster: Cluster, names: Topics, *, partitions: int) -> list[Finding]:
    wanted = names.configurations()
    missing = [name for name in wanted if name not in cluster.topics]
    there = {name: topic for name, topic in cluster.topics.items() if name in wanted}
    findings = [
        ok("kafka.reach", f"brokers that are up: {len(cluster.brokers)}"),
        error("kafka.topics", f"missing: {listed(missing, 10)}")
        if missing
        else ok("kafka.topics", f"all {len(wanted)} topics exist"),
    ]
    if not there:
        return findings
    findings.append(_partitions(there, partitions))
    findings.append(_replicas(there, cluster.brokers))
    hidden = [name for name, topic in there.items() if topic.settings is None]
    if hidden:
        findings.append(
            warning(
                "kafka.cleanup",
                f"the settings of {listed(hidden)} may not be read",
                "allow DescribeConfigs on the topics to this user",
            )
        )
    read = {name: topic for name, topic in there.items() if topic.settings is not None}
    if read:
        findings += [
            _cleanup(read, wanted),
            _retention(read, wanted),
            _copies(read),
            _unclean(read),
            _message_bytes(read),
        ]
    return findings


def _partitions(topics: Mapping[str, Topic], expected: int) -> Finding:
    counts = {
        name: len(topic.partitions)
        for name, topic in topics.items()
        if not name.endswith(_UNREADABLE)
    }
    wrong = [f"{name} has {count}" for name, count in counts.items() if count != expected]
    if wrong:
        return error("kafka.partitions", f"MAILSTREAMS_PARTITIONS is {expected}, {listed(wrong)}")
    return ok("kafka.partitions", f"every topic keyed by recipient has {expected}")


def _replicas(topics: Mapping[str, Topic], brokers: Sequence[int]) -> Finding:
    leaderless = _where(topics, lambda p: p.leader is None)
    behind = _where(topics, lambda p: set(p.in_sync) < set(p.replicas))
    lacking = {
        number
        for topic in topics.values()
        for partition in topic.partitions
        for number in set(partition.replicas) - set(partition.in_sync)
    }
    away = sorted(lacking - set(brokers))
    lag = f"brokers that are away: {listed(map(str, away))}" if away else "replicas are behind"
    if leaderless:
        return error("kafka.replicas", f"without a leader: {listed(leaderless)}; {lag}")
    if behind:
        return warning("kafka.replicas", f"not all in sync: {listed(behind)}; {lag}")
    return ok("kafka.replicas", "every partition has a leader and all its replicas")


def _where(topics: Mapping[str, Topic], is_so: Callable[[Partition], bool]) -> list[str]:
    return [
        f"{name}/{partition.number}"
        for name, topic in topics.items()
        for partition in topic.partitions
        if is_so(partition)
    ]


def _cleanup(topics: Mapping[str, Topic], wanted: Mapping[str, Mapping[str, str]]) -> Finding:
    wrong = [
        f"{name} has cleanup.policy = {found}, not {wanted[name]['cleanup.policy']}"
        for name, topic in topics.items()
        if (found := _setting(topic, "cleanup.policy")) != wanted[name]["cleanup.policy"]
    ]
    if wrong:
        return error("kafka.cleanup", "; ".join(wrong))
    return ok("kafka.cleanup", "the suppressions are compacted, the others deleted by age")


def _retention(topics: Mapping[str, Topic], wanted: Mapping[str, Mapping[str, str]]) -> Finding:
    short: dict[str, int] = {}
    for name, topic in topics.items():
        least = int(wanted[name].get("retention.ms", 0))
        kept = _number(topic, "retention.ms", _UNLIMITED)
        if least and _UNLIMITED < kept < least:
            short[name] = kept
    told = [
        f"{name} keeps {seconds_text(kept / 1000)}, not {seconds_text(int(wanted[name]['retention.ms']) / 1000)}"
        for name, kept in short.items()
    ]
    if any(kept < _HOUR_MS for kept in short.values()):
        return error("kafka.retention", f"{listed(told)}: a pause of a stage loses records")
    if short:
        return warning("kafka.retention", listed(told))
    return ok("kafka.retention", "records are kept long enough")


def _copies(topics: Mapping[str, Topic]) -> Finding:
    impossible, single, unsafe, tight = [], [], [], []
    for name, topic in topics.items():
        replicas = min((len(p.replicas) for p in topic.partitions), default=0)
        least = _number(topic, "min.insync.replicas", 1)
        told = f"{name} ({replicas} replicas, min.insync.replicas {least})"
        if least > replicas:
            impossible.append(told)
        elif replicas == 1:
            single.append(told)
        elif least < 2:
            unsafe.append(told)
        elif least == replicas:
            tight.append(told)
    if impossible:
        return error("kafka.copies", f"nothing can be written: {listed(impossible)}")
    if single:
        return warning(
            "kafka.copies",
            f"what the disk of one broker loses is lost: {len(single)} topics have one replica",
        )
    if unsafe:
        return warning(
            "kafka.copies", f"an acknowledged record may be lost with a broker: {listed(unsafe)}"
        )
    if tight:
        return warning("kafka.copies", f"one broker that is away stops writing: {listed(tight)}")
    return ok("kafka.copies", "acknowledged records survive the loss of a broker")


def _unclean(topics: Mapping[str, Topic]) -> Finding:
    wrong = [
        name
        for name, topic in topics.items()
        if _setting(topic, "unclean.leader.election.enable") == "true"
    ]
    if wrong:
        return warning("kafka.unclean", f"acknowledged records may vanish: {listed(wrong)}")
    return ok("kafka.unclean", "no replica that is behind becomes a leader")


def _message_bytes(topics: Mapping[str, Topic]) -> Finding:
    small = []
    for name, topic in topics.items():
        least = LARGEST_SET_ASIDE if name.endswith(_UNREADABLE) else _LEAST_BYTES
        most = _number(topic, "max.message.bytes", least)
        if most < least:
            small.append(f"{name} takes {most} bytes")
    if small:
        return warning("kafka.message-bytes", listed(small))
    return ok("kafka.message-bytes", "max.message.bytes is large enough")


def judge_heartbeats(
    heartbeats: Heartbeats, *, staleness_s: float, relay_was_here: bool
) -> Finding:
    ages = heartbeats.ages_s
    if heartbeats.empty and not relay_was_here:
        return warning(
            "heartbeats.age",
            "the topic of suppressions is empty: scheduler and relay have not run yet",
            "start scheduler and relay: senders wait for a heartbeat in each of their partitions",
        )
    none = [str(number) for number, age in ages.items() if age is None]
    if none:
        return error(
            "heartbeats.age",
            f"no heartbeat at the end of partitions {listed(none)}: nothing is sent there",
        )
    oldest = max((age for age in ages.values() if age is not None), default=0.0)
    found = (
        f"the newest heartbeat of each partition is at most {seconds_text(max(oldest, 0.0))} old"
    )
    if oldest > staleness_s:
        return error("heartbeats.age", f"{found}, more than {staleness_s:g} s: nothing is sent")
    return ok("heartbeats.age", found)


def _setting(topic: Topic, name: str) -> str | None:
    return None if topic.settings is None else topic.settings.get(name)


def _number(topic: Topic, name: str, otherwise: int) -> int:
    text = _setting(topic, name)
    return int(text) if text is not None and text.lstrip("-").isdigit() else otherwise
