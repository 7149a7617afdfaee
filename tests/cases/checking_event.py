"""The variants of kind ses_event against FORMAT.md."""

from collections.abc import Callable
from typing import Any, Final

from streams.domain.addresses import normalise
from tests.cases import placeholders, words
from tests.cases.checker import Checker

_EXPECT: Final = frozenset({"events", "suppressed", "not_suppressed", "quarantined", "rates"})
_MAY: Final = frozenset(
    {"may_be_suppressed", "recipient_outcome", "row_states", "soft_bounce_streak"}
)


def check_deliveries(at: Checker, deliveries: Any) -> None:
    listed = at.list_of(deliveries)
    if not listed:
        at.wrong("there is none")
    for number, delivery in enumerate(listed, 1):
        where = at.at(str(number))
        if not where.keys(delivery, (), {"ses", "message", "times", "concurrent"}):
            continue
        if ("ses" in delivery) == ("message" in delivery):
            where.wrong("has exactly one of ses and message")
        if "ses" in delivery and not isinstance(delivery["ses"], dict):
            where.at("ses").wrong("must be an object")
        if "message" in delivery:
            where.at("message").text(delivery["message"], empty=True)
        for key in ("times", "concurrent"):
            if key in delivery:
                where.at(key).positive(delivery[key])


def check_event(at: Checker, variant: dict[str, Any], _: bool) -> None:
    if not at.keys(variant, {"name", "sent", "deliveries", "expect"}):
        return
    sent = at.at("sent").list_of(variant["sent"])
    for number, row in enumerate(sent, 1):
        where = at.at("sent").at(str(number))
        if where.keys(row, {"recipient", "state", "provider_message_id"}):
            where.at("recipient").text(row["recipient"])
            where.at("state").word(row["state"], words.SENT_STATES)
            if row["provider_message_id"] is not None:
                where.at("provider_message_id").text(row["provider_message_id"])
    check_deliveries(at.at("deliveries"), variant["deliveries"])
    for number in sorted(placeholders.attempts(variant["deliveries"])):
        if not 1 <= number <= len(sent):
            at.at("deliveries").wrong(f"<attempt-{number}> has no sent row")
    _check_event_expect(at.at("expect"), variant["expect"], len(sent))


def _check_event_expect(at: Checker, expect: Any, rows: int) -> None:
    if not at.keys(expect, _EXPECT, _MAY):
        return
    present = {key: value for key, value in expect.items() if value is not None}
    for key, value in present.items():
        if key in _EVENT_KEYS:
            _EVENT_KEYS[key](at.at(key), value)
    if isinstance(present.get("row_states"), list) and len(present["row_states"]) != rows:
        at.at("row_states").wrong("has not one entry for each sent row")
    _check_no_contradiction(at, present)


def _check_no_contradiction(at: Checker, expect: dict[str, Any]) -> None:
    suppressed = set()
    for entry in _listed(expect.get("suppressed")):
        if isinstance(entry, dict):
            suppressed |= _addresses([entry.get("recipient"), *_listed(entry.get("spellings"))])
    others = _listed(expect.get("not_suppressed")) + _listed(expect.get("may_be_suppressed"))
    for both in sorted(suppressed & _addresses(others)):
        at.at("suppressed").wrong(f"{both} is in another list too")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _addresses(values: list[Any]) -> set[str]:
    return {normalise(value) for value in values if isinstance(value, str)}


def _check_expected_events(at: Checker, value: Any) -> None:
    for number, event in enumerate(at.list_of(value), 1):
        where = at.at(str(number))
        may = {"bounce", "reason", "time", "count", "optional"}
        if not where.keys(event, {"type", "recipient"}, may):
            continue
        kinds = event["type"] if isinstance(event["type"], list) else [event["type"]]
        where.at("type").one_of(kinds, words.EVENT_TYPES)
        where.at("recipient").text(event["recipient"])
        if "bounce" in event:
            where.at("bounce").one_of(event["bounce"], [*words.BOUNCES, None])
        if "reason" in event:
            where.at("reason").one_of(event["reason"], [*words.BOUNCE_REASONS, None])
        if "count" in event:
            where.at("count").positive(event["count"])
        if "optional" in event and not isinstance(event["optional"], bool):
            where.at("optional").wrong("must be true or false")
        if "time" in event and not (
            isinstance(event["time"], str) and words.TIME.fullmatch(event["time"])
        ):
            where.at("time").wrong("must be UTC with milliseconds")


def _check_suppressed(at: Checker, value: Any) -> None:
    for number, entry in enumerate(at.list_of(value), 1):
        where = at.at(str(number))
        if not where.keys(entry, {"recipient", "reason"}, {"spellings", "for_days"}):
            continue
        where.at("recipient").text(entry["recipient"])
        where.at("reason").one_of(entry["reason"], words.SUPPRESSION_REASONS)
        if "spellings" in entry:
            where.at("spellings").texts(entry["spellings"])
        if "for_days" in entry:
            where.at("for_days").positive(entry["for_days"])


def _check_rates(at: Checker, value: Any) -> None:
    if at.keys(value, {"hard_bounces", "complaints"}):
        for key, number in value.items():
            at.at(key).count(number)


def _check_outcome(at: Checker, value: Any) -> None:
    if not isinstance(value, dict):
        at.wrong("must be an object")
        return
    for recipient, facts in value.items():
        where = at.at(recipient)
        if not where.keys(facts, (), words.OUTCOMES | {"bounced"}):
            continue
        for fact, is_so in facts.items():
            allowed = [False, *words.BOUNCES] if fact == "bounced" else [True, False]
            where.at(fact).word(is_so, allowed)


def _check_row_states(at: Checker, value: Any) -> None:
    for number, states in enumerate(at.list_of(value), 1):
        at.at(str(number)).one_of(states, words.ROW_STATES)


def _check_streaks(at: Checker, value: Any) -> None:
    if not isinstance(value, dict):
        at.wrong("must be an object")
        return
    for recipient, streak in value.items():
        at.at(recipient).count(streak)


_EVENT_KEYS: Final[dict[str, Callable[[Checker, Any], None]]] = {
    "events": _check_expected_events,
    "suppressed": _check_suppressed,
    "not_suppressed": Checker.texts,
    "may_be_suppressed": Checker.texts,
    "quarantined": Checker.count,
    "rates": _check_rates,
    "recipient_outcome": _check_outcome,
    "row_states": _check_row_states,
    "soft_bounce_streak": _check_streaks,
}
