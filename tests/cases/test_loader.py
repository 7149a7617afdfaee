"""The loader takes what FORMAT.md says, and names file, variant and key of everything else."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.cases.loading import OWN_DATA, groups, nothing_to_run, read_file, read_folder
from tests.cases.scenarios import covering_test

Case = dict[str, Any]
Change = Callable[[Case], object]


def own(name: str) -> Case:
    case: Case = json.loads((OWN_DATA / f"{name}.json").read_text(encoding="utf-8"))
    return case


def written(folder: Path, case: Any, name: str = "Z01") -> Path:
    path = folder / f"{name}.json"
    path.write_text(case if isinstance(case, str) else json.dumps(case), encoding="utf-8")
    return path


def changed(name: str, change: Change) -> Case:
    case = copy.deepcopy(own(name)) | {"id": "Z01"}
    change(case)
    return case


def first(case: Case) -> Case:
    variant: Case = case["variants"][0]
    return variant


@pytest.mark.parametrize("file", read_folder(OWN_DATA), ids=lambda file: file.id)
def test_every_case_of_ours_is_taken(file: Any) -> None:
    assert not file.errors
    assert bool(file.variants) is (file.kind != "scenario")


HTTP: dict[str, tuple[Change, str]] = {
    "unknown key": (lambda c: first(c).update(colour="red"), "colour: unknown key"),
    "key of a file": (lambda c: c.update(extra=1), "extra: unknown key"),
    "missing": (lambda c: first(c).pop("headers"), "headers: key is missing"),
    "expect": (lambda c: first(c).pop("expect"), "expect: key is missing"),
    "status": (lambda c: first(c)["expect"].update(status=[418]), "expect: status: unknown word"),
    "status no list": (lambda c: first(c)["expect"].update(status=200), "must be a list"),
    "true is no status": (lambda c: first(c)["expect"].update(status=[True]), "unknown word True"),
    "reason": (lambda c: first(c)["expect"].update(reason=["odd"]), "reason: unknown word 'odd'"),
    "agreement": (lambda c: first(c)["expect"].update(reason=["stale"]), "no reason comes with"),
    "count": (lambda c: first(c)["expect"].update(confirmations=-1), "confirmations: must be a"),
    "range": (lambda c: first(c)["expect"].update(quarantined=[3, 1]), "quarantined: must be a"),
    "published": (
        lambda c: first(c)["expect"].update(published=[{"type": "flown", "recipient": "a@b"}]),
        "published: 1: type: unknown word 'flown'",
    ),
    "sign": (lambda c: first(c).update(sign="magic"), "sign: unknown word 'magic'"),
    "signature": (
        lambda c: first(c)["envelope"].pop("Signature"),
        "envelope: Signature: must be <signature>",
    ),
    "two bodies": (lambda c: first(c).update(body="x"), "exactly one of envelope and body"),
    "continues": (lambda c: first(c).update(continues=True), "continues: is true only"),
    "repeat": (lambda c: first(c).update(repeat=0), "repeat: must be a positive whole number"),
    "needs": (lambda c: first(c).update(needs="luck"), "needs: unknown word 'luck'"),
    "kafka": (lambda c: first(c).update(setup={"kafka": "slow"}), "setup: kafka: unknown word"),
    "certificates": (
        lambda c: first(c).update(setup={"certificates": {"*": "odd"}}),
        "setup: certificates: *: unknown word 'odd'",
    ),
    "placeholder": (
        lambda c: first(c)["headers"].update(x="<tomorrow>"),
        "unknown placeholder <tomorrow>",
    ),
    "header": (lambda c: first(c)["headers"].update(x=5), "headers: x: must be a text"),
    "name": (lambda c: first(c).update(name=5), "name: must be a text"),
    "twice": (lambda c: c["variants"].append(first(c)), "name: is not unique"),
    "no variants": (lambda c: c.update(variants=[]), "variants: there is none"),
    "variants": (lambda c: c.update(variants={"a": 1}), "variants: must be a list"),
    "variant": (lambda c: c.update(variants=[5]), "variant 1: must be an object"),
    "id": (lambda c: c.update(id="A01"), "id: is 'A01', but the file is Z01.json"),
    "kind": (lambda c: c.update(kind="sms"), "kind: unknown kind 'sms'"),
    "sources": (lambda c: c.update(sources=[5]), "sources: 1: must be a text"),
}
EVENT: dict[str, tuple[Change, str]] = {
    "state": (lambda c: first(c)["sent"][0].update(state="lost"), "sent: 1: state: unknown word"),
    "both": (lambda c: first(c)["deliveries"][0].update(message="x"), "exactly one of ses and"),
    "none": (lambda c: first(c).update(deliveries=[]), "deliveries: there is none"),
    "attempt": (
        lambda c: first(c)["deliveries"][0].update(ses={"x": "<attempt-9>"}),
        "<attempt-9> has no sent row",
    ),
    "bounce": (
        lambda c: first(c)["expect"]["events"][0].update(bounce=["hard"]),
        "events: 1: bounce: unknown word 'hard'",
    ),
    "time": (
        lambda c: first(c)["expect"]["events"][0].update(time="2026-01-15"),
        "events: 1: time: must be UTC with milliseconds",
    ),
    "rates": (lambda c: first(c)["expect"].update(rates={}), "rates: hard_bounces: key is missing"),
    "outcome": (
        lambda c: first(c)["expect"].update(recipient_outcome={"a@b": {"bounced": True}}),
        "recipient_outcome: a@b: bounced: unknown word True",
    ),
    "row states": (
        lambda c: first(c)["expect"].update(row_states=[["submitted"]] * 9),
        "row_states: has not one entry for each sent row",
    ),
    "contradiction": (
        lambda c: first(c)["expect"].update(
            not_suppressed=[first(c)["expect"]["suppressed"][0]["recipient"].upper()]
        ),
        "is in another list too",
    ),
    "suppressed": (
        lambda c: first(c)["expect"]["suppressed"][0].update(reason=["bad luck"]),
        "suppressed: 1: reason: unknown word 'bad luck'",
    ),
}


SEND: dict[str, tuple[Change, str]] = {
    "key": (lambda c: first(c).update(colour="red"), "colour: unknown key"),
    "no row": (lambda c: first(c).pop("row"), "row: key is missing"),
    "row": (lambda c: first(c)["row"].update(bcc="x"), "row: bcc: unknown key"),
    "header": (lambda c: first(c)["row"].update(headers={"X": 1}), "row: headers: X: must be a"),
    "rows": (lambda c: first(c).update(rows=0), "rows: must be a positive whole number"),
    "senders": (lambda c: first(c).update(senders="2"), "senders: must be a positive whole"),
    "idle": (lambda c: first(c).update(idle_s=-1), "idle_s: must be a number of at least 0"),
    "observe": (lambda c: first(c).update(observe_s=True), "observe_s: must be a number"),
    "limits": (lambda c: first(c).update(limits={"burst": 1}), "limits: burst: unknown key"),
    "rate": (lambda c: first(c).update(limits={"enforced": 0}), "enforced: must be more than 0"),
    "account": (lambda c: first(c).update(account="rich"), "account: unknown word 'rich'"),
    "cycle": (lambda c: first(c).update(cycle=1), "cycle: unknown word 1"),
    "signal": (
        lambda c: first(c).update(disturb={"signal": "SIGHUP", "after_accepted": 1}),
        "disturb: signal: unknown word 'SIGHUP'",
    ),
    "after": (lambda c: first(c).update(disturb={"signal": "SIGKILL"}), "after_accepted: key is"),
    "status": (lambda c: first(c)["stub"][0].update(status=99), "stub: 1: status: must be a"),
    "body": (lambda c: first(c)["stub"][0].update(body={"id": "x"}), "body: id: unknown key"),
    "no body": (lambda c: first(c)["stub"][0].pop("body"), "stub: 1: body: key is missing"),
    "delay": (lambda c: first(c)["stub"][0].update(delay_s="8"), "delay_s: must be a number"),
    "fault": (
        lambda c: first(c).update(stub=[{"fault": "fire", "accepted": False}]),
        "stub: 1: fault: unknown word 'fire'",
    ),
    "fault without accepted": (
        lambda c: first(c).update(stub=[{"fault": "no-answer"}]),
        "stub: 1: accepted: key is missing",
    ),
    "fault with a body": (
        lambda c: first(c).update(stub=[{"fault": "no-answer", "accepted": True, "body": ""}]),
        "stub: 1: body: unknown key",
    ),
    "accepted unseen": (
        lambda c: first(c).update(stub=[{"fault": "refuse-connection", "accepted": True}]),
        "accepted: cannot be, after refuse-connection",
    ),
    "truncated": (
        lambda c: first(c).update(stub=[{"fault": "truncated-body", "accepted": True}]),
        "stub: 1: status: key is missing",
    ),
    "placeholder": (
        lambda c: first(c)["row"].update(text="<signature>"),
        "unknown placeholder <signature>",
    ),
    "expect": (lambda c: first(c)["expect"].pop("calls"), "expect: calls: key is missing"),
    "expect key": (lambda c: first(c)["expect"].update(cost=1), "expect: cost: unknown key"),
    "outcome": (
        lambda c: first(c)["expect"].update(outcomes=[["fine"]]),
        "outcomes: 1: unknown word 'fine'",
    ),
    "many outcomes": (
        lambda c: first(c)["expect"].update(outcomes=[["accepted"]] * 3),
        "outcomes: has more entries than there may be calls",
    ),
    "no outcomes": (
        lambda c: first(c)["expect"].update(outcomes=[]),
        "outcomes: says nothing of any call",
    ),
    "state": (
        lambda c: first(c)["expect"].update(row_state=["sent"]),
        "row_state: unknown word 'sent'",
    ),
    "states of one": (
        lambda c: first(c)["expect"].update(row_states={"submitted": 1}),
        "row_states: unknown key",
    ),
    "states of many": (lambda c: first(c).update(rows=2), "expect: row_states: key is missing"),
    "pause": (lambda c: first(c)["expect"].update(pauses=["world"]), "pauses: unknown word"),
    "retry": (lambda c: first(c)["expect"].update(retry_after_s=[2, 1]), "retry_after_s: must be"),
    "suppressed": (
        lambda c: first(c)["expect"].update(suppressed=[5]),
        "suppressed: 1: must be a text",
    ),
    "request": (
        lambda c: first(c)["expect"].update(request={"cc": []}),
        "request: cc: unknown key",
    ),
    "after without deliveries": (
        lambda c: first(c)["expect"].update(row_state_after=["submitted"]),
        "row_state_after: and deliveries belong together",
    ),
    "deliveries without after": (
        lambda c: first(c).update(deliveries=[{"ses": {}}]),
        "row_state_after: and deliveries belong together",
    ),
    "event": (lambda c: first(c)["expect"].update(events=["flown"]), "events: 1: unknown word"),
    "window": (
        lambda c: first(c)["expect"].update(windows=[{"max": 1}]),
        "seconds: key is missing",
    ),
    "throttled": (
        lambda c: first(c)["expect"].update(throttled_calls="1"),
        "throttled_calls: must be a count",
    ),
}


@pytest.mark.parametrize(("change", "error"), HTTP.values(), ids=HTTP)
def test_a_wrong_sns_http_file_is_told(tmp_path: Path, change: Change, error: str) -> None:
    found = read_file(written(tmp_path, changed("A01", change)))
    assert "Z01.json: " in found.report
    assert error in found.report, found.report


@pytest.mark.parametrize(("change", "error"), EVENT.values(), ids=EVENT)
def test_a_wrong_ses_event_file_is_told(tmp_path: Path, change: Change, error: str) -> None:
    found = read_file(written(tmp_path, changed("B01", change)))
    assert "Z01.json: variant 'both shapes': " in found.report
    assert error in found.report, found.report


@pytest.mark.parametrize(("change", "error"), SEND.values(), ids=SEND)
def test_a_wrong_ses_send_file_is_told(tmp_path: Path, change: Change, error: str) -> None:
    found = read_file(written(tmp_path, changed("C01", change)))
    assert "Z01.json: variant '429 TooManyRequestsException': " in found.report
    assert error in found.report, found.report


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "5", "\ufeff{}", '{"kind": []}'])
def test_what_is_no_case_at_all_is_told(tmp_path: Path, text: str) -> None:
    assert read_file(written(tmp_path, text)).errors


SCENARIO: Case = {"id": "Z01", "kind": "scenario", "title": "t", "sources": ["s"]}
SCENARIO |= {"right": "r", "naive": "n", "given": "g", "do": ["d"]}


def test_a_folder_that_proves_nothing_is_told(tmp_path: Path) -> None:
    def told(path: Path) -> str:
        return str(nothing_to_run(path, read_folder(path)))

    assert "there is no folder" in told(tmp_path / "absent")
    assert "no case file" in told(tmp_path)
    written(tmp_path, SCENARIO)
    assert "only cases of kind scenario" in told(tmp_path)
    written(tmp_path, {"kind": "scenario"}, "Z02")
    assert nothing_to_run(tmp_path, read_folder(tmp_path)) is None, "its errors are told"


def test_one_case_with_a_runner_is_enough(tmp_path: Path) -> None:
    written(tmp_path, SCENARIO)
    written(tmp_path, own("A01") | {"id": "Z02"}, "Z02")
    assert nothing_to_run(tmp_path, read_folder(tmp_path)) is None


@pytest.mark.parametrize("name", ["absent", ""])
def test_a_run_that_would_prove_nothing_ends_at_once_and_is_not_green(
    tmp_path: Path, name: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/cases", "-q", "-p", "no:cacheprovider"],
        env={**os.environ, "CASES_DIR": str(tmp_path / name)},
        cwd=OWN_DATA.parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert done.stderr.startswith("ERROR: CASES_DIR: there is no ")
    assert "Traceback" not in done.stdout + done.stderr


def test_wrong_types_anywhere_stop_nothing(tmp_path: Path) -> None:
    """Every value of two good cases, replaced by values of other types one after the other."""
    others: list[Any] = [None, 5, True, "x", [], {}, [[]], {"x": {}}]
    for name in ("A25", "B25", "C02", "C25"):
        for path in _paths(own(name)):
            for wrong in others:
                case = copy.deepcopy(own(name)) | {"id": "Z01"}
                _put(case, path, wrong)
                read_file(written(tmp_path, case))


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        items = enumerate(value)
    return [p for key, item in items for p in [(*path, key), *_paths(item, (*path, key))]]


def _put(case: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        case = case[key]
    case[path[-1]] = value


def test_a_file_that_is_wrong_does_not_hide_the_others(tmp_path: Path) -> None:
    written(tmp_path, "{", "A")
    written(tmp_path, own("A15") | {"id": "B"}, "B")
    files = read_folder(tmp_path)
    assert [bool(file.errors) for file in files] == [True, False]
    assert [group.id for group in groups(files, "sns_http")] == [
        "B[-30min, -30min again]",
        "B[-59min]",
        "B[-2h]",
        "B[+10min]",
    ]


def test_a_case_told_in_prose_names_its_test() -> None:
    found = covering_test("C25")
    assert found is not None
    assert found.startswith("tests/cases/test_c25_old_sdk.py::test_c25_")
    assert covering_test("Z99") is None
