"""The variants of kind ses_send against FORMAT.md."""

from collections.abc import Callable
from typing import Any, Final

from tests.cases import placeholders, words
from tests.cases.checker import Checker
from tests.cases.checking_event import check_deliveries

_MUST: Final = frozenset({"name", "row", "stub", "expect"})
_MAY: Final = frozenset(
    {
        "rows",
        "senders",
        "idle_s",
        "limits",
        "account",
        "observe_s",
        "disturb",
        "cycle",
        "deliveries",
    }
)
_EXPECT: Final = frozenset(
    {"calls", "outcomes", "attempts_charged", "pauses", "retry_after_s", "suppressed"}
)
_EXPECT_MAY: Final = frozenset(
    {"request", "row_state_after", "events", "windows", "throttled_calls"}
)


def check_send(at: Checker, variant: dict[str, Any], _: bool) -> None:
    if not at.keys(variant, _MUST, _MAY):
        return
    _check_row(at.at("row"), variant["row"])
    for key, check in _VARIANT_KEYS.items():
        if key in variant:
            check(at.at(key), variant[key])
    for number, answer in enumerate(at.at("stub").list_of(variant["stub"]), 1):
        _check_answer(at.at("stub").at(str(number)), answer)
    many = type(variant.get("rows")) is int and variant.get("rows", 1) > 1
    _check_expect(at.at("expect"), variant["expect"], many=many)
    _check_together(at, variant)


def _check_row(at: Checker, row: Any) -> None:
    must = {"recipient", "sender", "subject", "text"}
    if not at.keys(row, must, {"headers", "reply_to", "tags"}):
        return
    for key in must | ({"reply_to"} & row.keys()):
        at.at(key).text(row[key], empty=True)
    for key in {"headers", "tags"} & row.keys():
        if not isinstance(row[key], dict):
            at.at(key).wrong("must be an object")
            continue
        for name, value in row[key].items():
            at.at(key).at(name).text(value, empty=True)


def _check_limits(at: Checker, limits: Any) -> None:
    if at.keys(limits, (), {"max_send_rate", "enforced"}):
        for key, value in limits.items():
            _check_seconds(at.at(key), value)
            if value == 0:
                at.at(key).wrong("must be more than 0")


def _check_disturb(at: Checker, disturb: Any) -> None:
    if at.keys(disturb, {"signal", "after_accepted"}):
        at.at("signal").word(disturb["signal"], words.SIGNALS)
        at.at("after_accepted").positive(disturb["after_accepted"])


def _check_seconds(at: Checker, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        at.wrong(f"must be a number of at least 0, is {value!r:.80}")


def _check_answer(at: Checker, answer: Any) -> None:
    if isinstance(answer, dict) and "fault" in answer:
        _check_fault(at, answer)
    elif at.keys(answer, {"status", "body"}, {"headers", "delay_s", "accepted"}):
        _check_content(at, answer)
        if "delay_s" in answer:
            _check_seconds(at.at("delay_s"), answer["delay_s"])
        if "accepted" in answer:
            at.at("accepted").word(answer["accepted"], [True, False])


def _check_fault(at: Checker, answer: dict[str, Any]) -> None:
    fault = answer["fault"]
    may = {"status", "body", "headers"} if fault == "truncated-body" else set()
    if not at.keys(answer, {"fault", "accepted"}, may):
        return
    at.at("fault").word(fault, words.FAULTS)
    at.at("accepted").word(answer["accepted"], [True, False])
    if isinstance(fault, str) and fault in words.CONNECTION_FAULTS and answer["accepted"]:
        at.at("accepted").wrong(f"cannot be, after {fault}")
    if fault == "truncated-body" and at.keys(answer, {"fault", "accepted", "status", "body"}, may):
        _check_content(at, answer)


def _check_content(at: Checker, answer: dict[str, Any]) -> None:
    status, body = answer["status"], answer["body"]
    if not isinstance(status, int) or isinstance(status, bool) or not 200 <= status < 600:
        at.at("status").wrong(f"must be a status of HTTP, is {status!r:.80}")
    if isinstance(body, dict):
        at.at("body").keys(body, (), {"MessageId", "message", "__type"})
    else:
        at.at("body").text(body, empty=True)
    headers = answer.get("headers", {})
    if not isinstance(headers, dict):
        at.at("headers").wrong("must be an object")
        return
    for name, value in headers.items():
        at.at("headers").at(name).text(value, empty=True)


def _check_expect(at: Checker, expect: Any, *, many: bool) -> None:
    state = "row_states" if many else "row_state"
    if not at.keys(expect, _EXPECT | {state}, _EXPECT_MAY):
        return
    for key, value in expect.items():
        if value is not None and key in _EXPECT_KEYS:
            _EXPECT_KEYS[key](at.at(key), value)


def _check_outcomes(at: Checker, value: Any) -> None:
    for number, outcome in enumerate(at.list_of(value), 1):
        if outcome is not None:
            at.at(str(number)).one_of(outcome, words.CALL_OUTCOMES)


def _check_states(at: Checker, value: Any) -> None:
    if not isinstance(value, dict):
        at.wrong("must be an object")
        return
    for state, count in value.items():
        at.at(state).word(state, words.ROW_STATES)
        at.at(state).count(count)


def _check_request(at: Checker, value: Any) -> None:
    if not at.keys(value, (), {"to", "subject", "one_line", "tags_valid"}):
        return
    if "to" in value:
        at.at("to").texts(value["to"])
    if "subject" in value:
        at.at("subject").text(value["subject"], empty=True)
    for key in {"one_line", "tags_valid"} & value.keys():
        at.at(key).word(value[key], [True, False])


def _check_windows(at: Checker, value: Any) -> None:
    for number, window in enumerate(at.list_of(value), 1):
        where = at.at(str(number))
        if where.keys(window, {"seconds", "max"}):
            _check_seconds(where.at("seconds"), window["seconds"])
            where.at("max").count(window["max"])


def _check_events(at: Checker, value: Any) -> None:
    for number, event in enumerate(at.list_of(value), 1):
        at.at(str(number)).word(event, words.LIFE_CYCLE)


def _texts_or_none(at: Checker, value: Any) -> None:
    if value != []:
        at.texts(value)


def _check_together(at: Checker, variant: dict[str, Any]) -> None:
    """What is right only beside something else."""
    expect = variant["expect"]
    if not isinstance(expect, dict):
        return
    if ("row_state_after" in expect) != ("deliveries" in variant):
        at.at("expect").at("row_state_after").wrong("and deliveries belong together")
    calls, outcomes = expect.get("calls"), expect.get("outcomes")
    if isinstance(calls, list) and calls and words.is_count(calls):
        calls = calls[1]
    if isinstance(calls, int | float) and isinstance(outcomes, list):
        if len(outcomes) > calls:
            at.at("expect").at("outcomes").wrong("has more entries than there may be calls")
        elif calls and not outcomes:
            at.at("expect").at("outcomes").wrong("says nothing of any call")
    for number in sorted(placeholders.attempts(variant.get("deliveries"))):
        if number < 1:
            at.at("deliveries").wrong(f"<attempt-{number}> has no call")


_VARIANT_KEYS: Final[dict[str, Callable[[Checker, Any], None]]] = {
    "rows": Checker.positive,
    "senders": Checker.positive,
    "idle_s": _check_seconds,
    "limits": _check_limits,
    "account": lambda at, value: at.word(value, words.ACCOUNTS),
    "observe_s": _check_seconds,
    "disturb": _check_disturb,
    "cycle": lambda at, value: at.word(value, [True, False]),
    "deliveries": check_deliveries,
}
_EXPECT_KEYS: Final[dict[str, Callable[[Checker, Any], None]]] = {
    "calls": Checker.count,
    "outcomes": _check_outcomes,
    "row_state": lambda at, value: at.one_of(value, words.ROW_STATES),
    "row_states": _check_states,
    "attempts_charged": Checker.count,
    "pauses": lambda at, value: at.one_of(value, words.PAUSES),
    "retry_after_s": Checker.count,
    "suppressed": _texts_or_none,
    "request": _check_request,
    "row_state_after": lambda at, value: at.one_of(value, words.ROW_STATES),
    "events": _check_events,
    "windows": _check_windows,
    "throttled_calls": Checker.count,
}
