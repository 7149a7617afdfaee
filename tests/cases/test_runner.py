"""A wrong expectation turns a case red, whichever key it stands under; so does the breach of what always holds."""

import copy
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import devservers
from tests.cases import event_checks, event_runner, http_checks
from tests.cases.conftest import RunEvent, RunHttp
from tests.cases.envelopes import TOPIC, Urls, make
from tests.cases.event_runner import orders
from tests.cases.http_client import Answer
from tests.cases.internet import Behaviour, Confirmation
from tests.cases.literal_times import with_recent_times
from tests.cases.loading import OWN_DATA, Group, groups, read_file
from tests.cases.matching import unmatched
from tests.cases.network import Network
from tests.cases.records import Published
from tests.sns_signing import NOW

SUPPRESSED = {"recipient": "user1@example.com", "reason": ["hard-bounce"]}


def group(name: str, number: int = 0) -> Group:
    """A group of one of our cases that may be changed."""
    kept = read_file(OWN_DATA / f"{name}.json")
    assert kept.kind is not None
    return copy.deepcopy(groups([kept], kept.kind)[number])


def with_expect(original: Group, **keys: Any) -> Group:
    """The same with other expectations for its last variant."""
    changed = copy.deepcopy(original)
    changed.variants[-1]["expect"].update(keys)
    return changed


@pytest.mark.servers
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("status", {"status": [503]}),
        ("reason", {"reason": ["stale"]}),
        ("published", {"published": []}),
        ("published", {"published": [{"type": "bounced", "recipient": "user1@example.com"}]}),
        ("published", {"published": [{"type": "delivered", "recipient": "user2@example.com"}]}),
        ("published", {"published": [{"type": "delivered", "recipient": "user1@example.com"}] * 2}),
        ("certificate_fetches", {"certificate_fetches": [2, 9]}),
        ("confirmations", {"confirmations": 1}),
        ("quarantined", {"quarantined": 1}),
        ("headers: Content-Type", {"headers": {"content-type": "text/plain", "Content-Type": "x"}}),
    ],
)
def test_a_wrong_expectation_of_sns_http_is_red(
    run_http: RunHttp, name: str, wrong: dict[str, Any]
) -> None:
    reports, _ = run_http(with_expect(group("A01"), **wrong))
    assert len(reports) == 1
    assert f"\n  {name}: expected " in reports[0] or f"\n    {name}:\n" in reports[0], reports[0]
    assert reports[0].startswith("A01.json: variant 'v1'")
    assert reports[0].count("expected") == 1, reports[0]


@pytest.mark.servers
def test_only_the_variant_that_failed_is_named(run_http: RunHttp) -> None:
    reports, _ = run_http(with_expect(group("A15"), published=[]))
    assert len(reports) == 1
    assert reports[0].startswith("A15.json: variant '-30min again'")


@pytest.mark.servers
def test_confirmations_and_quarantine_are_counted(run_http: RunHttp) -> None:
    (confirmed,), _ = run_http(with_expect(group("A21"), confirmations=0))
    assert "confirmations: expected 0" in confirmed
    (kept,), _ = run_http(with_expect(group("A22", 5), quarantined=0))
    assert "quarantined: expected 0" in kept


WRONG_EVENTS: list[tuple[dict[str, Any], list[str]]] = [
    (
        {
            "events": [],
            "suppressed": [],
            "not_suppressed": ["user1@example.com"],
            "quarantined": 1,
            "rates": {"hard_bounces": 0, "complaints": 1},
            "recipient_outcome": {"user1@example.com": {"bounced": "transient", "opened": True}},
            "row_states": [["ambiguous"]],
            "soft_bounce_streak": {"user1@example.com": 7},
        },
        [
            "events, those that fit left out",
            "suppressed",
            "new mail to user1@example.com",
            "quarantined",
            "rates: hard_bounces",
            "rates: complaints",
            "recipient_outcome: user1@example.com: bounced",
            "recipient_outcome: user1@example.com: opened",
            "row_states: 1",
            "soft_bounce_streak: user1@example.com",
        ],
    ),
    (
        {"suppressed": [SUPPRESSED | {"reason": ["complaint"], "for_days": 14}]},
        [
            "suppressed: user1@example.com: reason",
            "suppressed: user1@example.com: for_days",
            "new mail to user1@example.com",
        ],
    ),
    (
        {"suppressed": [SUPPRESSED | {"spellings": ["user1+x@example.com"], "for_days": 9}]},
        ["new mail to user1+x@example.com", "suppressed: user1@example.com: for_days"],
    ),
    (
        {"suppressed": [SUPPRESSED, {"recipient": "b@example.com", "reason": ["complaint"]}]},
        ["suppressed", "new mail to b@example.com"],
    ),
]


@pytest.mark.servers
@pytest.mark.parametrize(("wrong", "keys"), WRONG_EVENTS, ids=["all", "reason", "spelling", "more"])
def test_a_wrong_expectation_of_ses_event_is_red(
    run_event: RunEvent, wrong: dict[str, Any], keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_runner, "MATCHED_WITHIN_S", 0.2)
    reports = run_event(with_expect(group("B28"), **wrong))
    assert reports
    for report in reports:
        assert report.startswith("B28.json: variant 'bare bounce'")
        assert "arrived: " in report
        found = {line.split(": expected")[0].strip().rstrip(":") for line in report.splitlines()}
        assert set(keys) <= found, report
        assert report.count(" found ") + report.count("+++ found") == len(keys), report


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "complained"},
        {"recipient": "user2@example.com"},
        {"bounce": ["transient", None]},
        {"reason": ["dns"]},
        {"time": "2026-01-15T10:00:05.001Z"},
        {"count": 2},
    ],
)
def test_each_key_of_an_expected_event_counts(entry: dict[str, Any]) -> None:
    found = Published(
        id="1",
        type="bounced",
        time=NOW,
        key=event_checks.key_of("user1@example.com"),
        bounce="permanent",
        reason="mailbox-unknown",
    )
    right = {
        "type": ["bounced", "complained"],
        "recipient": "User1@Example.com",
        "bounce": ["permanent"],
        "reason": ["mailbox-unknown", "other"],
        "time": NOW.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    assert event_checks.events({"events": [right]}, [found]) == []
    assert event_checks.events({"events": [right | entry]}, [found])


def test_a_report_names_the_wanted_key_beside_the_address() -> None:
    wanted, other = (event_checks.key_of(f"user{n}@example.com") for n in (1, 2))
    found = Published(id="1", type="delivered", time=NOW, key=other, bounce=None, reason=None)
    expect = {"events": [{"type": "delivered", "recipient": "user1@example.com"}]}
    [difference] = event_checks.events(expect, [found])
    assert difference.expected[0]["recipient"] == f"user1@example.com (key {wanted})"
    assert difference.found[0]["recipient"] == f"key {other}"


def test_optional_events_may_be_missing_and_take_none_from_the_others() -> None:
    def is_of(slot: str, item: str) -> bool:
        return item in slot

    assert unmatched([("ab", True), ("a", False)], ["a"], is_of) == ([], [])
    assert unmatched([("ab", True), ("a", False)], ["a", "b"], is_of) == ([], [])
    assert unmatched([("a", False), ("ab", False)], ["b", "a"], is_of) == ([], [])
    assert unmatched([("a", False)], ["b"], is_of) == (["a"], ["b"])
    assert unmatched([("a", True)], ["a", "a"], is_of) == ([], ["a"])


def test_the_orders_are_those_that_differ() -> None:
    assert [(order.name, order.arrivals) for order in orders(1)] == [
        ("as given", (0,)),
        ("each twice", (0,)),
    ]
    several = {order.name: order for order in orders(3)}
    assert several["as given"].arrivals == several["each twice"].arrivals == (0, 1, 2)
    assert [order.name for order in several.values() if order.goes_on] == ["each twice"]
    assert several["reversed"].arrivals == (2, 1, 0)
    assert sorted(several["shuffled, each twice"].arrivals) == [0, 0, 1, 1, 2, 2]


def test_an_address_in_a_topic_a_log_or_a_label_is_red() -> None:
    variant = group("B28").variants[0]
    clean = {"topics": ["key 123"], "logs": ["user1"], "labels": []}
    assert event_checks.leaks(variant, clean) == []
    for place in clean:
        (found,) = event_checks.leaks(variant, {**clean, place: ["x USER1@Example.com x"]})
        assert (found.key, found.found) == (place, ["user1@example.com"])


def asked(**envelope: Any) -> http_checks.Asked:
    variant = copy.deepcopy(dict(group("A01").variants[0]))
    variant["envelope"] = {**variant["envelope"], **envelope}
    return http_checks.Asked(made=[make(variant, Urls(name="0" * 32), NOW)])


CERTIFICATE = f"https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-{'0' * 32}.pem"


def network(names: list[str] | None = None, refused: list[str] | None = None) -> Network:
    return Network(https_port=1, http_port=2, names=names or [], refused=refused or [])


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(fetched=["https://evil.example/x.pem"]),
        Behaviour(fetched=[CERTIFICATE.replace("https", "http")]),
        Behaviour(fetched=[CERTIFICATE.replace("0.pem", "1.pem")]),
        Behaviour(fetched=[CERTIFICATE + "?x"]),
        Behaviour(strange=["PUT https://sns.eu-central-1.amazonaws.com/"]),
    ],
)
def test_a_request_that_nobody_may_cause_is_red(behaviour: Behaviour) -> None:
    assert http_checks.strangers(network(), Behaviour(fetched=[CERTIFICATE]), asked()) == []
    assert http_checks.strangers(network(), behaviour, asked())


def test_a_fetch_is_red_if_the_envelope_may_not_name_it() -> None:
    evil = "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-00.pem"
    found = http_checks.strangers(network(), Behaviour(fetched=[evil]), asked(SigningCertURL=evil))
    assert found
    for names, refused in ((["evil.example:443"], []), ([], ["169.254.169.254:80"])):
        assert http_checks.strangers(network(names, refused), Behaviour(), asked())


@pytest.mark.parametrize(
    "change",
    [
        {"host": "sns.us-east-1.amazonaws.com"},
        {"region": "us-east-1"},
        {"token": "x"},
        {"topic": "x"},
    ],
)
def test_a_confirmation_with_anything_else_than_the_envelope_says_is_red(
    change: dict[str, str],
) -> None:
    right = {"host": "sns.eu-central-1.amazonaws.com", "region": "eu-central-1"}
    right |= {"topic": TOPIC, "token": "T"}
    expect = {"certificate_fetches": None, "confirmations": None}
    for fields, is_red in ((right, False), (right | change, True)):
        behaviour = Behaviour(confirmed=[Confirmation(**fields)])
        assert bool(http_checks.outside(expect, behaviour, asked(Token="T"))) is is_red


def test_slow_missing_and_uncounted_answers_are_red() -> None:
    expect = {"status": [200], "reason": [None]}
    good = Answer(status=200, text="accepted\n")
    slow = http_checks.Asked(last=[Answer(status=200, seconds=15.1)])
    assert [d.key for d in http_checks.answers(expect, slow, endless=False)] == ["seconds"]
    assert http_checks.answers(expect, slow, endless=True) == []
    silent = http_checks.Asked(last=[good], silent=["closed"])
    assert [d.key for d in http_checks.answers(expect, silent, endless=False)] == ["answer"]
    answered = http_checks.Asked(last=[good])
    assert http_checks.reasons(expect, answered, Counter({"accepted": 1})) == []
    assert http_checks.reasons(expect, answered, Counter())
    assert http_checks.reasons(expect, answered, Counter({"stale": 1}))
    cut_off = http_checks.Asked(last=[Answer(status=413, cut_off=True)])
    too_large = {"status": [413], "reason": ["too-large"]}
    assert http_checks.reasons(too_large, cut_off, Counter({"too-large": 1})) == []
    assert http_checks.reasons(too_large, cut_off, Counter())


def test_literal_times_are_moved_only_where_their_age_would_end_a_suppression() -> None:
    five_in_96_h = json.dumps(group("B33", 1).variants[0])
    for hours in (97, 73, 49, 25, 1):
        five_in_96_h = five_in_96_h.replace(
            f"<now-{hours}h>", f"2026-01-{15 - hours // 24:02}T10:00:00.000Z"
        )
    for hours in (111, 87, 63, 39, 15):
        five_in_96_h = five_in_96_h.replace(f"<now-{hours}h>", "2026-01-10T10:00:00.000Z")
    literal = json.loads(five_in_96_h)
    assert "2026-01-15" not in json.dumps(dict(with_recent_times(literal)))
    hard = group("B28").variants[0]
    assert with_recent_times(hard) is hard


@pytest.mark.servers
def test_files_of_another_folder_are_run_and_told_apart(
    servers: devservers.Servers, tmp_path: Path
) -> None:
    right = json.loads((OWN_DATA / "A03.json").read_text()) | {"id": "Z1"}
    wrong = copy.deepcopy(right) | {"id": "Z2"}
    wrong["variants"][1]["expect"] |= {"status": [200], "reason": [None]}
    later = {"id": "Z4", "kind": "scenario", "title": "t", "sources": ["s"], "right": "r"}
    later |= {"naive": "n", "given": "g", "do": ["d"]}
    files = {"Z1": right, "Z2": wrong, "Z3": {"kind": "sns_http", "id": "Z3"}, "Z4": later}
    for name, case in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(case))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/cases", "-q", "-rs", "-p", "no:cacheprovider"],
        env={**os.environ, **servers.environment(), "CASES_DIR": str(tmp_path)},
        cwd=OWN_DATA.parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "2 failed, 6 passed, 1 skipped" in done.stdout
    assert "Z2.json: variant 'signed without final newline'" in done.stdout
    assert "Z3.json: title: key is missing" in done.stdout
    assert "Z4 is told in prose (kind scenario) and has no test here" in done.stdout
