"""The control API: what the simulator is told, and what it says about itself."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
from aiohttp import web

from streams.simulator.event_publisher import EventPublisher
from streams.simulator.faults import read_faults
from streams.simulator.ledger import Acceptance
from streams.simulator.outcomes import Outcome, outcome_for, read_rules
from streams.simulator.send_api import SendingState
from streams.simulator.settings import SignatureVersions
from streams.simulator.sns_delivery import SnsDeliveries, split_credentials
from streams.simulator.sns_topic import Subscription, Topic
from streams.simulator.strict import BadDocumentError, Fields, read_document

LINES_A_CHUNK = 200
_STATUSES = ("HEALTHY", "PROBATION", "SHUTDOWN")


class ControlApi:
    """Everything under /control/; changes are read whole before any of them is made."""

    def __init__(
        self,
        *,
        state: SendingState,
        events: EventPublisher,
        deliveries: SnsDeliveries,
        topic: Topic,
        subscribe: Callable[[str], None],
        seed: str,
    ) -> None:
        self._state = state
        self._events = events
        self._deliveries = deliveries
        self._topic = topic
        self._subscribe = subscribe
        self._seed = seed

    def routes(self) -> list[web.AbstractRouteDef]:
        changes = {
            "rules": self._set_rules,
            "account": self._set_account,
            "events": self._set_events,
            "hold": self._set_hold,
            "faults": self._set_faults,
            "topic": self._set_topic,
            "subscriptions": self._add_subscription,
            "outcomes": self._tell_outcomes,
        }
        return [
            web.get("/control/state", self._get_state),
            web.get("/control/ledger", self._get_ledger),
            web.get("/control/messages/{message_id}", self._get_message),
            web.get("/control/dead-letters", self._get_dead_letters),
            *(web.post(f"/control/{name}", _change(change)) for name, change in changes.items()),
        ]

    async def _get_state(self, _request: web.Request) -> web.Response:
        account = self._state.account
        state = {
            **self._state.ledger.counts(),
            "held": self._state.answers.held,
            "holding": self._holding(),
            "events": self._event_counts(),
            "subscriptions": [
                _subscription_json(item) for item in self._topic.subscriptions.values()
            ],
            "account": {
                "rate": account.rate,
                "burst_s": account.burst_s,
                "quota": account.daily_quota,
                "sending_enabled": account.sending_enabled,
                "enforcement_status": account.enforcement_status,
                "production_access": account.production_access,
                "suspended": account.suspended,
            },
            "suppressed": len(self._state.suppression),
            "fault_script": self._state.faults.as_json(),
        }
        return _json(state)

    async def _get_ledger(self, request: web.Request) -> web.StreamResponse:
        """One accepted call a line; `?after=<sequence>` leaves out what is known."""
        after = request.query.get("after", "0")
        if set(request.query) - {"after"} or not after.isdecimal():
            return _json({"error": "The only parameter is 'after', a sequence number."}, 400)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        chunk: list[bytes] = []
        for acceptance in self._state.ledger.after(int(after)):
            chunk.append(orjson.dumps(acceptance.as_json()))
            if len(chunk) == LINES_A_CHUNK:
                await response.write(b"\n".join(chunk) + b"\n")
                chunk.clear()
        if chunk:
            await response.write(b"\n".join(chunk) + b"\n")
        await response.write_eof()
        return response

    async def _get_message(self, request: web.Request) -> web.Response:
        acceptance = self._state.ledger.find(request.match_info["message_id"])
        if acceptance is None:
            return _json({"error": "No accepted message has this id."}, 404)
        return _json({**acceptance.as_json(), "request": self._request_of(acceptance)})

    def _request_of(self, acceptance: Acceptance) -> Any:
        kept = self._state.ledger.request_of(acceptance.message_id)
        return None if kept is None else orjson.loads(kept)

    async def _get_dead_letters(self, _request: web.Request) -> web.Response:
        letters = [letter.as_json() for letter in self._deliveries.dead_letters]
        return _json({"dead_letters": letters})

    def _holding(self) -> dict[str, bool]:
        return {"answers": self._state.answers.holding, "events": self._events.holding}

    def _event_counts(self) -> dict[str, int]:
        """`pending` is what is still to come or on its way: zero means quiet."""
        events, deliveries = self._events, self._deliveries
        return {
            "pending": events.planned + deliveries.pending,
            "planned": events.planned,
            "published": events.published,
            "unheard": events.unheard,
            "duplicates_same_id": events.duplicates_same_id,
            "duplicates_new_id": events.duplicates_new_id,
            "delivering": deliveries.pending,
            "delivered": deliveries.delivered,
            "retries": deliveries.retries,
            "dead": len(deliveries.dead_letters),
            "dropped": deliveries.dropped,
        }

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
        account = self._state.account
        rate = fields.number("rate", account.rate)
        burst_s = fields.number("burst_s", account.burst_s)
        quota = fields.number("quota", account.daily_quota, least=-1.0)
        enabled = fields.flag("sending_enabled", account.sending_enabled)
        status = fields.choice("enforcement_status", _STATUSES, account.enforcement_status)
        production = fields.flag("production_access", account.production_access)
        suspended = fields.flag("suspended", account.suspended)
        fields.done()
        account.change_rate(rate=rate, burst_s=burst_s)
        account.daily_quota = quota
        account.sending_enabled = enabled
        account.enforcement_status = status
        account.production_access = production
        account.suspended = suspended
        return {}

    def _set_events(self, fields: Fields) -> dict[str, Any]:
        now = self._events.times
        times = replace(
            now,
            send_ms=fields.range_ms("send_ms", now.send_ms),
            outcome_ms=fields.range_ms("outcome_ms", now.outcome_ms),
            feedback_ms=fields.range_ms("feedback_ms", now.feedback_ms),
            duplicate_share=fields.share("duplicate_share", now.duplicate_share),
            reorder_share=fields.share("reorder_share", now.reorder_share),
        )
        fields.done()
        self._events.times = times
        return {}

    def _set_hold(self, fields: Fields) -> dict[str, Any]:
        answers = fields.flag("answers", self._state.answers.holding)
        events = fields.flag("events", self._events.holding)
        fields.done()
        for held, gate in ((answers, self._state.answers), (events, self._events)):
            if held:
                gate.hold()
            else:
                gate.release()
        return {"holding": self._holding(), "held": self._state.answers.held}

    def _set_faults(self, fields: Fields) -> dict[str, Any]:
        faults = read_faults(fields.documents("faults"), self._seed)
        fields.done()
        self._state.faults.replace(faults)
        return {"faults": len(faults)}

    def _set_topic(self, fields: Fields) -> dict[str, Any]:
        version = fields.choice("signature_version", list(SignatureVersions))
        fields.done()
        self._topic.versions.versions = SignatureVersions(version)
        return {}

    def _add_subscription(self, fields: Fields) -> dict[str, Any]:
        endpoint = fields.text("endpoint")
        fields.done()
        if not endpoint.startswith(("http://", "https://")):
            raise BadDocumentError("Field 'endpoint' must be an http or https URL.")
        self._subscribe(endpoint)
        return {}


def _change(
    change: Callable[[Fields], dict[str, Any]],
) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.Response:
        try:
            return _json(change(Fields(read_document(await request.read()))))
        except BadDocumentError as error:
            return _json({"error": str(error)}, 400)

    return handle


def _json(document: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(document), content_type="application/json")


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    match outcome.fate.value:
        case "bounce" | "auto-reply":
            details = {
                "bounce_type": outcome.bounce_type,
                "bounce_subtype": outcome.bounce_subtype,
            }
        case "complaint":
            details = {"feedback_type": outcome.feedback_type or "none"}
        case "delay":
            details = {"delay_type": outcome.delay_type}
        case _:
            details = {}
    return {"outcome": outcome.fate, **details}


def _subscription_json(subscription: Subscription) -> dict[str, Any]:
    return {
        "arn": subscription.arn,
        "endpoint": str(split_credentials(subscription.endpoint)[0]),
        "state": subscription.state,
        "delivered": subscription.delivered,
        "dead": subscription.dead,
    }
