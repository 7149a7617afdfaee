"""For those who subscribe to mail.delivery-events: an async iterator over typed events, at least once, each fact once.

    async with Subscriber(Subscription(bootstrap_servers="localhost:9092", group="billing")) as events:
        async for event in events:
            ...  # asking for the next event says that this one is done

docs/contract.md tells the contract. Nothing here reads a setting of mailstreams or needs its database. faust_models, the
models for Faust, needs the extra `faust` and is imported by nothing else.
"""

from streams.domain.delivery_events import (
    Bounce,
    BounceReason,
    BounceType,
    Complaint,
    DeliveryEvent,
    EventId,
    EventType,
    UnknownEvent,
)
from streams.subscribers.reading import Skipped, Why
from streams.subscribers.subscriber import Counts, Subscriber
from streams.subscribers.subscription import Subscription

__all__ = [
    "Bounce",
    "BounceReason",
    "BounceType",
    "Complaint",
    "Counts",
    "DeliveryEvent",
    "EventId",
    "EventType",
    "Skipped",
    "Subscriber",
    "Subscription",
    "UnknownEvent",
    "Why",
]
