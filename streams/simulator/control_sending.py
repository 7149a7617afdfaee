"""Changes that the control API makes to sending: rules, account, events, faults, held answers."""

from collections.abc import Callable
from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Any

from streams.simulator.acceptance import SendingState
from streams.simulator.bulk_script import read_statuses
from streams.simulator.event_publisher import EventPublisher
from streams.simulator.faults import read_faults
from streams.simulator.outcomes import Fate, Outcome, outcome_for
from streams.simulator.rules import read_rules
from streams.simulator.settings import EventTimes, Legacy
from streams.simulator.strict import Fields

Change = Callable[[Fields], dict[str, Any]]
STATUSES = ("HEALTHY", "PROBATION", "SHUTDOWN")


class SendingControl:
    """`changes` by name; each reads its document whole before it changes anything."""

    def __init__(self, *, state: SendingState, events: EventPublisher, seed: str) -> None:
        self._state = state
        self._events = events
        self._seed = seed
        self.changes: dict[str, Change] = {
            "rules": self._set_rules,
            "account": self._set_account,
            "events": self._set_events,
            "hold": self._set_hold,
            "faults": self._set_faults,
            "bulk": self._set_bulk,
            "outcomes": self._tell_outcomes,
        }

    def holding(self) -> dict[str, bool]:
        return {"answers": self._state.answers.holding, "events": self._events.schedule.holding}

    def _set_rules(self, fields: Fields) -> dict[str, Any]:
        rules = read_rules(fields.documents("rules"), fields.text("seed", self._seed))
        fields.done()
        self._state.rules = rules
        return {"rules": len(rules)}

    def _tell_outcomes(self, fields: Fields) -> dict[str, Any]:
        """What the rules of now would do to each address."""
        addresses = fields.texts("addresses")
        fields.done()
        return {
            "outcomes": {
                address: _outcome_json(outcome_for(address, self._state.rules))
                for address in addresses
            }
        }

    def _set_account(self, fields: Fields) -> dict[str, Any]:
        account, identities = self._state.account, self._state.identities
        rate = fields.number("rate", account.rate)
        burst_s = fields.number("burst_s", account.burst_s)
        quota = fields.number("quota", account.daily_quota, least=-1.0)
        enabled = fields.flag("sending_enabled", account.sending_enabled)
        status = fields.choice("enforcement_status", STATUSES, account.enforcement_status)
        production = fields.flag("production_access", account.production_access)
        suspended = fields.flag("suspended", account.suspended)
        checked = fields.flag("verify_identities", identities.checked)
        fields.done()
        account.change_rate(rate=rate, burst_s=burst_s)
        account.daily_quota = quota
        account.sending_enabled = enabled
        account.enforcement_status = status
        account.production_access = production
        account.suspended = suspended
        identities.checked = checked
        return {}

    def _set_events(self, fields: Fields) -> dict[str, Any]:
        now = self._events.times
        changed: dict[str, Any] = {}
        for field in fields_of(EventTimes):
            default = getattr(now, field.name)
            if field.name == "late_ms":
                changed[field.name] = fields.moment_ms("late_ms", default)
            elif field.name.endswith("_ms"):
                changed[field.name] = fields.range_ms(field.name, default)
            elif field.name.endswith("_share"):
                changed[field.name] = fields.share(field.name, default)
            elif isinstance(default, bool):
                changed[field.name] = fields.flag(field.name, default)
        changed["late_age_s"] = fields.number("late_age_s", now.late_age_s)
        changed["legacy"] = Legacy(fields.choice("legacy", list(Legacy), now.legacy))
        fields.done()
        self._events.times = replace(now, **changed)
        return {}

    def _set_hold(self, fields: Fields) -> dict[str, Any]:
        answers = fields.flag("answers", self._state.answers.holding)
        events = fields.flag("events", self._events.schedule.holding)
        fields.done()
        for held, gate in ((answers, self._state.answers), (events, self._events.schedule)):
            if held:
                gate.hold()
            else:
                gate.release()
        return {"holding": self.holding(), "held": self._state.answers.held}

    def _set_faults(self, fields: Fields) -> dict[str, Any]:
        faults = read_faults(fields.documents("faults"), self._seed)
        fields.done()
        self._state.faults.replace(faults)
        return {"faults": len(faults)}

    def _set_bulk(self, fields: Fields) -> dict[str, Any]:
        statuses = read_statuses(fields.documents("entries"))
        fields.done()
        self._state.bulk.replace(statuses)
        return {"entries": len(statuses)}


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    details: dict[str, Any] = {}
    match outcome.fate:
        case Fate.BOUNCE | Fate.AUTO_REPLY:
            details = {
                "bounce_type": outcome.bounce_type,
                "bounce_subtype": outcome.bounce_subtype,
            }
        case Fate.COMPLAINT:
            details = {"feedback_type": outcome.feedback_type or "none"}
        case Fate.DELAY:
            details = {"delay_type": outcome.delay_type}
        case Fate.SCRIPT:
            details = {"events": [step.event for step in outcome.steps]}
        case _:
            pass
    return {"outcome": outcome.fate, **details}
