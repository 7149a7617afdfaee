"""What the control API tells about the simulator."""

import asyncio
from collections.abc import Callable
from typing import Any

from streams.simulator.acceptance import SendingState
from streams.simulator.event_publisher import EventPublisher
from streams.simulator.sns_delivery import SnsDeliveries
from streams.simulator.sns_http import split_credentials
from streams.simulator.sns_topic import Subscription, Topics
from streams.simulator.sqs_queue import Queue, Queues


class ControlState:
    """Everything countable, in one document."""

    def __init__(
        self,
        *,
        state: SendingState,
        events: EventPublisher,
        deliveries: SnsDeliveries,
        topics: Topics,
        queues: Queues,
        holding: Callable[[], dict[str, bool]],
    ) -> None:
        self._state = state
        self._events = events
        self._deliveries = deliveries
        self._topics = topics
        self._queues = queues
        self._holding = holding

    def state(self) -> dict[str, Any]:
        account, state = self._state.account, self._state
        now = asyncio.get_running_loop().time()
        return {
            **state.ledger.counts(),
            "held": state.answers.held,
            "holding": self._holding(),
            "events": self._event_counts(),
            "subscriptions": [_subscription_json(item) for item in self._topics.subscriptions()],
            "topics": [topic.arn for topic in self._topics],
            "queues": [_queue_json(queue, now) for queue in self._queues],
            "configuration_sets": list(state.sets),
            "account": {
                "rate": account.rate,
                "burst_s": account.burst_s,
                "quota": account.daily_quota,
                "sending_enabled": account.sending_enabled,
                "enforcement_status": account.enforcement_status,
                "production_access": account.production_access,
                "suspended": account.suspended,
                "verify_identities": state.identities.checked,
            },
            "suppressed": len(state.suppression),
            "fault_script": state.faults.as_json(),
            "bulk_script": state.bulk.as_json(),
        }

    def dead_letters(self) -> list[dict[str, Any]]:
        return [letter.as_json() for letter in self._deliveries.dead_letters.letters]

    def queue(self, name: str) -> dict[str, Any] | None:
        """One queue with what is in it; looking receives nothing."""
        for queue in self._queues:
            if queue.name == name:
                shown = _queue_json(queue, asyncio.get_running_loop().time())
                return {**shown, "bodies": list(queue.bodies())}
        return None

    def _event_counts(self) -> dict[str, int]:
        """`pending` is what is still to come or on its way: zero means quiet."""
        events, deliveries = self._events, self._deliveries
        planned = len(events.schedule)
        return {
            "pending": planned + deliveries.pending,
            "planned": planned,
            "published": events.published,
            "unheard": events.unheard,
            "duplicates_same_id": events.duplicates_same_id,
            "duplicates_new_id": events.duplicates_new_id,
            "early": events.early,
            "late": events.late,
            "delivering": deliveries.pending,
            "delivered": deliveries.delivered,
            "retries": deliveries.retries,
            "dead": len(deliveries.dead_letters),
            "dropped": deliveries.dropped,
        }


def _subscription_json(subscription: Subscription) -> dict[str, Any]:
    return {
        "arn": subscription.arn,
        "topic": subscription.topic_arn,
        "endpoint": _without_credentials(subscription),
        "state": subscription.state,
        "delivered": subscription.delivered,
        "dead": subscription.dead,
    }


def _without_credentials(subscription: Subscription) -> str:
    if subscription.protocol == "sqs":
        return subscription.endpoint
    return str(split_credentials(subscription.endpoint)[0])


def _queue_json(queue: Queue, now: float) -> dict[str, Any]:
    return {
        "name": queue.name,
        "arn": queue.arn,
        **queue.counts(now),
        "sent": queue.sent,
        "deleted": queue.deleted,
    }
