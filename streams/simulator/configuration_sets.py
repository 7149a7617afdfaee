"""Configuration sets and their event destinations: state and its changes, no I/O."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from streams.simulator.refusals import RefusedError, already_exists, bad_request, not_found

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_DESTINATIONS = 10


class EventType(StrEnum):
    """What event publishing calls the records."""

    SEND = "Send"
    DELIVERY = "Delivery"
    BOUNCE = "Bounce"
    COMPLAINT = "Complaint"
    REJECT = "Reject"
    DELIVERY_DELAY = "DeliveryDelay"
    RENDERING_FAILURE = "Rendering Failure"
    OPEN = "Open"
    CLICK = "Click"
    SUBSCRIPTION = "Subscription"

    @property
    def matching_name(self) -> str:
        """What MatchingEventTypes calls it."""
        if self is EventType.DELIVERY_DELAY:
            return "DELIVERY_DELAY"
        return self.value.replace(" ", "_").upper()


BY_MATCHING_NAME = {event.matching_name: event for event in EventType}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDestination:
    """Where events of some types are published."""

    name: str
    topic_arn: str
    event_types: tuple[EventType, ...]
    enabled: bool

    def as_json(self) -> dict[str, Any]:
        return {
            "Name": self.name,
            "Enabled": self.enabled,
            "MatchingEventTypes": [event.matching_name for event in self.event_types],
            "SnsDestination": {"TopicArn": self.topic_arn},
        }


@dataclass(slots=True, kw_only=True)
class ConfigurationSet:
    """One set; `options` are structures of the API that are kept and shown."""

    name: str
    sending_enabled: bool = True
    suppressed_reasons: tuple[str, ...] | None = None
    """Reasons that override those of the account; None: the account's."""
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    tags: list[dict[str, Any]] = field(default_factory=list)
    destinations: dict[str, EventDestination] = field(default_factory=dict)

    def topics_for(self, event: EventType) -> list[str]:
        return [
            destination.topic_arn
            for destination in self.destinations.values()
            if destination.enabled and event in destination.event_types
        ]

    def add(self, destination: EventDestination) -> None:
        if destination.name in self.destinations:
            raise already_exists(
                f"An event destination named <{destination.name}> already exists "
                f"in the configuration set <{self.name}>."
            )
        if len(self.destinations) >= MAX_DESTINATIONS:
            raise RefusedError(
                code="LimitExceededException",
                status=400,
                message=f"At most {MAX_DESTINATIONS} event destinations are allowed.",
            )
        self.destinations[destination.name] = destination

    def destination(self, name: str) -> EventDestination:
        found = self.destinations.get(name)
        if found is None:
            raise not_found(
                f"No event destination named <{name}> exists in the configuration set <{self.name}>."
            )
        return found


class ConfigurationSets:
    """The sets of the account, by name."""

    def __init__(self) -> None:
        self._sets: dict[str, ConfigurationSet] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._sets

    def __iter__(self) -> Iterator[str]:
        return iter(self._sets)

    def __len__(self) -> int:
        return len(self._sets)

    def create(self, configuration_set: ConfigurationSet) -> None:
        check_set_name(configuration_set.name)
        if configuration_set.name in self._sets:
            raise already_exists(f"Configuration set <{configuration_set.name}> already exists.")
        self._sets[configuration_set.name] = configuration_set

    def get(self, name: str) -> ConfigurationSet:
        found = self._sets.get(name)
        if found is None:
            raise not_found(f"Configuration set <{name}> does not exist.")
        return found

    def find(self, name: str) -> ConfigurationSet | None:
        return self._sets.get(name)

    def delete(self, name: str) -> None:
        del self._sets[self.get(name).name]

    def publish_to(self, topic_arn: str) -> bool:
        """Whether some destination names the topic."""
        return any(
            destination.topic_arn == topic_arn
            for item in self._sets.values()
            for destination in item.destinations.values()
        )


def check_set_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise bad_request("ConfigurationSetName must be 1 to 64 characters of [A-Za-z0-9_-].")
