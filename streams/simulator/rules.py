"""Rules from JSON: the outcome of an address, or the script of its events."""

from typing import Any

import orjson

from streams.simulator.configuration_sets import EventType
from streams.simulator.outcomes import (
    AUTO_REPLY,
    BOUNCE_SUBTYPES,
    DELAY_TYPES,
    FEEDBACK_TYPES,
    Fate,
    Outcome,
    Rule,
    Step,
)
from streams.simulator.strict import BadDocumentError, Document, Fields

MAX_COPIES = 1000
_STEPS = {
    "send": (EventType.SEND, Fate.DELIVERED),
    "delivery": (EventType.DELIVERY, Fate.DELIVERED),
    "bounce": (EventType.BOUNCE, Fate.BOUNCE),
    "auto-reply": (EventType.BOUNCE, Fate.AUTO_REPLY),
    "complaint": (EventType.COMPLAINT, Fate.COMPLAINT),
    "delay": (EventType.DELIVERY_DELAY, Fate.DELAY),
    "reject": (EventType.REJECT, Fate.REJECT),
    "rendering-failure": (EventType.RENDERING_FAILURE, Fate.RENDERING_FAILURE),
    "open": (EventType.OPEN, Fate.OPEN),
    "click": (EventType.CLICK, Fate.CLICK),
    "subscription": (EventType.SUBSCRIPTION, Fate.SUBSCRIPTION),
}
_FATES = [fate for fate in Fate if fate is not Fate.SCRIPT]


def read_rules(documents: list[Document], seed: str) -> tuple[Rule, ...]:
    """Rules from JSON; the seed of rule n is `<seed>-<n>`, counted from 0, unless it has its own."""
    return tuple(_read_rule(document, f"{seed}-{n}", n) for n, document in enumerate(documents))


def _read_rule(document: Document, seed: str, number: int) -> Rule:
    where = f"rule {number}"
    fields = Fields(document, where=where)
    rule = Rule(
        match=fields.text("match").lower(),
        share=fields.share("share", 1.0),
        seed=fields.text("seed", seed),
        outcome=_read_script(fields, where) if "script" in fields else _read_fate(fields, where),
    )
    fields.done()
    return rule


def _read_script(fields: Fields, where: str) -> Outcome:
    steps = [
        _read_step(document, f"step {n} of {where}")
        for n, document in enumerate(fields.documents("script"))
    ]
    return Outcome(fate=Fate.SCRIPT, steps=tuple(steps), suppresses=False)


def _read_step(document: Document, where: str) -> Step:
    fields = Fields(document, where=where)
    event, fate = _STEPS[fields.choice("event", _STEPS)]
    copies = fields.whole("copies", 1, least=1)
    if copies > MAX_COPIES:
        raise BadDocumentError(f"Field 'copies' in {where} must be at most {MAX_COPIES}.")
    step = Step(
        event=event,
        outcome=_read_details(fields, fate, where),
        after_ms=fields.moment_ms("after_ms", 0),
        occurs_ms=fields.whole("occurs_ms") if "occurs_ms" in fields else None,
        early=fields.flag("early", False),
        age_s=fields.number("age_s", 0.0),
        copies=copies,
        same_id=fields.flag("same_id", True),
        copies_ms=fields.whole("copies_ms", 0),
        legacy=fields.flag("legacy", False),
    )
    fields.done()
    if step.legacy and event not in (EventType.BOUNCE, EventType.COMPLAINT, EventType.DELIVERY):
        raise BadDocumentError(
            f"Field 'legacy' in {where} is possible for bounces, complaints and deliveries only."
        )
    return step


def _read_fate(fields: Fields, where: str) -> Outcome:
    return _read_details(fields, Fate(fields.choice("outcome", _FATES)), where)


def _read_details(fields: Fields, fate: Fate, where: str) -> Outcome:
    extra: dict[str, Any] = {
        "fields": orjson.dumps(fields.document("fields")).decode() if "fields" in fields else "",
        "omit": tuple(fields.texts("omit")) if "omit" in fields else (),
    }
    match fate:
        case Fate.BOUNCE:
            return _read_bounce(fields, where, extra)
        case Fate.COMPLAINT:
            return _read_complaint(fields, extra)
        case Fate.DELAY:
            delay_type = fields.choice("delay_type", DELAY_TYPES, "General")
            return Outcome(
                fate=fate,
                delay_type=delay_type,
                status=fields.text("status", "") or None,
                diagnostic=fields.text("diagnostic", "") or None,
                **extra,
            )
        case Fate.AUTO_REPLY:
            return Outcome(
                fate=fate,
                bounce_type=AUTO_REPLY.bounce_type,
                bounce_subtype=AUTO_REPLY.bounce_subtype,
                suppresses=False,
                **extra,
            )
        case Fate.RENDERING_FAILURE:
            return Outcome(
                fate=fate,
                template_name=fields.text("template_name", ""),
                error=fields.text(
                    "error", "Attribute 'name' is not present in the rendering data."
                ),
                **extra,
            )
        case Fate.CLICK:
            return Outcome(fate=fate, link=fields.text("link", "https://example.com/"), **extra)
        case _:
            return Outcome(fate=fate, **extra)


def _read_complaint(fields: Fields, extra: dict[str, Any]) -> Outcome:
    feedback = fields.choice("feedback_type", FEEDBACK_TYPES, "abuse")
    subtype = fields.choice("complaint_subtype", ("OnAccountSuppressionList", "none"), "none")
    return Outcome(
        fate=Fate.COMPLAINT,
        feedback_type=None if feedback == "none" else feedback,
        complaint_subtype=None if subtype == "none" else subtype,
        suppresses=feedback != "not-spam" and subtype == "none",
        **extra,
    )


def _read_bounce(fields: Fields, where: str, extra: dict[str, Any]) -> Outcome:
    bounce_type = fields.choice("bounce_type", BOUNCE_SUBTYPES, "Permanent")
    subtypes = BOUNCE_SUBTYPES[bounce_type]
    subtype = fields.text("bounce_subtype", subtypes[0])
    if subtype not in subtypes:
        raise BadDocumentError(
            f"Field 'bounce_subtype' in {where} must be one of {', '.join(subtypes)}."
        )
    return Outcome(
        fate=Fate.BOUNCE,
        bounce_type=bounce_type,
        bounce_subtype=subtype,
        status=fields.text("status", "") or None,
        diagnostic=fields.text("diagnostic", "") or None,
        suppresses=subtype in ("General", "NoEmail") and bounce_type == "Permanent",
        **extra,
    )
