"""Compares what a sns_http variant led to with its expectations."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from tests.cases import http_client
from tests.cases.differences import Difference
from tests.cases.envelopes import Made, sns_host
from tests.cases.event_checks import key_of, named
from tests.cases.http_client import Answer
from tests.cases.internet import Behaviour, same_url
from tests.cases.loading import Variant
from tests.cases.network import Network
from tests.cases.observation import Logs
from tests.cases.records import published
from tests.cases.words import HTTP_REASONS, fits

_CERTIFICATE: Final = re.compile(r"/SimpleNotificationService-[0-9A-Fa-f]+\.pem")
_WORDS: Final = frozenset({"accepted", *(r for r in HTTP_REASONS if r is not None)})


@dataclass(slots=True, kw_only=True)
class Asked:
    """What was sent and answered in one variant. `first` answers of requests that were repeated count only for metrics."""

    made: list[Made] = field(default_factory=list)
    last: list[Answer] = field(default_factory=list)
    first: list[Answer] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)


def answers(expect: Variant, asked: Asked, *, endless: bool) -> list[Difference]:
    found = []
    if asked.silent:
        found.append(Difference(key="answer", expected="every request", found=asked.silent))
    statuses = Counter(answer.status for answer in asked.last)
    allowed = expect["status"]
    if allowed is not None and set(statuses) - set(allowed):
        found.append(
            Difference(key="status", expected=f"one of {allowed}", found=_counts(statuses))
        )
    slow = [round(a.seconds, 1) for a in [*asked.first, *asked.last]]
    if not endless and slow and max(slow) > http_client.ANSWER_WITHIN_S:
        found.append(Difference(key="seconds", expected="at most 15", found=max(slow)))
    for name, start in (expect.get("headers") or {}).items():
        values = {answer.headers.get(name.lower()) for answer in asked.last}
        if any(value is None or not value.startswith(start) for value in values):
            found.append(
                Difference(
                    key=f"headers: {name}", expected=f"{start}…", found=sorted(map(str, values))
                )
            )
    return found


def reasons(expect: Variant, asked: Asked, counted: Counter[str]) -> list[Difference]:
    """By the metric; the text of an answer tells which of the counted ones was its own."""
    texts = [answer.text.strip() for answer in [*asked.first, *asked.last]]
    known = Counter(text for text in texts if text in _WORDS)
    if known - counted:
        return [Difference(key="reason counted", expected=_counts(known), found=_counts(counted))]
    others = counted - known
    last = Counter(a.text.strip() for a in asked.last if a.text.strip() in _WORDS) + others
    words = {None if word == "accepted" else word for word in last}
    uncounted = len(texts) - counted.total()
    if uncounted > 0:
        words.add("uncounted")
    allowed = expect["reason"]
    if allowed is not None and words - set(allowed):
        found = sorted(words, key=str)
        return [Difference(key="reason", expected=f"one of {allowed}", found=found)]
    return []


def _counts(counter: Mapping[Any, int]) -> dict[str, int]:
    return {str(key): number for key, number in counter.items()}


def events(expect: Variant, records: Sequence[Any]) -> list[Difference]:
    if expect["published"] is None:
        return []
    names = {key_of(e["recipient"]): e["recipient"] for e in expect["published"]}
    wanted = Counter((e["type"], key_of(e["recipient"])) for e in expect["published"])
    events = published(records)
    there = Counter((event.type, event.key) for event in events)
    if wanted == there:
        return []
    lines = [
        [{"type": kind, "recipient": named(key, names)} for kind, key in sorted(side.elements())]
        for side in (wanted, there)
    ]
    return [Difference(key="published", expected=lines[0], found=lines[1])]


def outside(expect: Variant, behaviour: Behaviour, asked: Asked) -> list[Difference]:
    counts = {
        "certificate_fetches": len(behaviour.fetched),
        "confirmations": len(behaviour.confirmed),
    }
    found = [
        Difference(key=key, expected=expect[key], found=number)
        for key, number in counts.items()
        if expect[key] is not None and not fits(number, expect[key])
    ]
    calls = {
        (sns_host(e.get("TopicArn")), e.get("TopicArn"), e.get("Token"))
        for e in (m.envelope for m in asked.made)
        if e is not None
    }
    for call in behaviour.confirmed:
        own = (call.host, call.topic, call.token)
        region = call.topic.split(":")[3:4]
        if own not in calls or [call.region] != region:
            found.append(
                Difference(
                    key="confirmation",
                    expected="a call to the region of TopicArn, with TopicArn and Token of the envelope",
                    found=call,
                )
            )
    return found


def strangers(network: Network, behaviour: Behaviour, asked: Asked) -> list[Difference]:
    """Requests that nobody may make us send."""
    envelopes = [made.envelope for made in asked.made if made.envelope is not None]
    allowed = {same_url(url) for e in envelopes if (url := _allowed_url(e)) is not None}
    hosts = {urlsplit(url).hostname for url in allowed}
    hosts |= {sns_host(e.get("TopicArn")) for e in envelopes}
    strange = [url for url in behaviour.fetched if same_url(url) not in allowed]
    strange += behaviour.strange
    strange += [n for n in network.names if n.rsplit(":", 1)[0].lower() not in hosts]
    strange += network.refused
    if not strange:
        return []
    return [
        Difference(key="outgoing requests", expected="none of these", found=sorted(set(strange)))
    ]


def _allowed_url(envelope: Mapping[str, Any]) -> str | None:
    """SigningCertURL, if it is that of SNS in the region and partition of TopicArn."""
    url, host = envelope.get("SigningCertURL"), sns_host(envelope.get("TopicArn"))
    if not isinstance(url, str) or host is None:
        return None
    origin, rest = url[: len(host) + 8], url[len(host) + 8 :]
    return url if origin.lower() == f"https://{host}" and _CERTIFICATE.fullmatch(rest) else None


def crashes(logs: Logs, unforeseen_errors: float) -> list[Difference]:
    found = []
    if logs.tracebacks:
        found.append(Difference(key="log", expected="no traceback", found=logs.tracebacks[:3]))
    if unforeseen_errors:
        found.append(Difference(key="errors nobody foresaw", expected=0, found=unforeseen_errors))
    return found
