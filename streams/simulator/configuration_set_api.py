"""SES v2 calls on configuration sets and their event destinations."""

from collections.abc import Callable
from typing import Any

from streams.simulator.configuration_sets import (
    BY_MATCHING_NAME,
    ConfigurationSet,
    ConfigurationSets,
    EventDestination,
)
from streams.simulator.members import (
    Members,
    boolean,
    missing,
    required_text,
    structure,
    structures,
    text,
    texts,
    whole,
)
from streams.simulator.refusals import bad_request, not_found
from streams.simulator.ses_api import Operation, SesCall, page
from streams.simulator.sns_topic import Topics
from streams.simulator.suppression_list import Reason

_PATH = "/v2/email/configuration-sets"
_NOT_SIMULATED = ("VdmOptions", "ArchivingOptions")
_OTHER_DESTINATIONS = (
    "KinesisFirehoseDestination",
    "CloudWatchDestination",
    "EventBridgeDestination",
    "PinpointDestination",
)


class ConfigurationSetApi:
    """`created` is told the topic of each new event destination: SES then validates it."""

    def __init__(
        self, *, sets: ConfigurationSets, topics: Topics, created: Callable[[str], None]
    ) -> None:
        self._sets = sets
        self._topics = topics
        self._created = created

    def operations(self) -> list[Operation]:
        one = _PATH + "/{name}"
        destinations = one + "/event-destinations"
        return [
            Operation("POST", _PATH, self._create),
            Operation("GET", _PATH, self._list),
            Operation("GET", one, self._get),
            Operation("DELETE", one, self._delete),
            Operation("PUT", one + "/sending", self._put_sending),
            Operation("PUT", one + "/suppression-options", self._put_suppression),
            Operation("PUT", one + "/delivery-options", self._put_delivery),
            Operation("PUT", one + "/tracking-options", self._put_tracking),
            Operation("PUT", one + "/reputation-options", self._put_reputation),
            Operation("POST", destinations, self._create_destination),
            Operation("GET", destinations, self._get_destinations),
            Operation("PUT", destinations + "/{destination}", self._update_destination),
            Operation("DELETE", destinations + "/{destination}", self._delete_destination),
        ]

    def _create(self, call: SesCall) -> Members:
        members = call.members
        for name in _NOT_SIMULATED:
            if structure(members, name) is not None:
                raise bad_request(f"{name} is not simulated.")
        made = ConfigurationSet(name=required_text(members, "ConfigurationSetName"))
        made.tags = structures(members, "Tags")
        changes = {
            "SendingOptions": _change_sending,
            "SuppressionOptions": _change_suppression,
            "DeliveryOptions": _change_delivery,
            "TrackingOptions": _change_tracking,
            "ReputationOptions": _change_reputation,
        }
        for name, change in changes.items():
            options = structure(members, name)
            if options is not None:
                change(made, options)
        self._sets.create(made)
        return {}

    def _list(self, call: SesCall) -> Members:
        return page(call, "ConfigurationSets", sorted(self._sets))

    def _get(self, call: SesCall) -> Members:
        found = self._set(call)
        shown: Members = {
            "ConfigurationSetName": found.name,
            "DeliveryOptions": {"TlsPolicy": "OPTIONAL"},
            "ReputationOptions": {"ReputationMetricsEnabled": False},
            "SendingOptions": {"SendingEnabled": found.sending_enabled},
            "Tags": found.tags,
            **found.options,
        }
        if found.suppressed_reasons is not None:
            shown["SuppressionOptions"] = {"SuppressedReasons": list(found.suppressed_reasons)}
        return shown

    def _delete(self, call: SesCall) -> Members:
        self._sets.delete(call.path("name"))
        return {}

    def _put_sending(self, call: SesCall) -> Members:
        _change_sending(self._set(call), call.members)
        return {}

    def _put_suppression(self, call: SesCall) -> Members:
        _change_suppression(self._set(call), call.members)
        return {}

    def _put_delivery(self, call: SesCall) -> Members:
        _change_delivery(self._set(call), call.members)
        return {}

    def _put_tracking(self, call: SesCall) -> Members:
        _change_tracking(self._set(call), call.members)
        return {}

    def _put_reputation(self, call: SesCall) -> Members:
        _change_reputation(self._set(call), call.members)
        return {}

    def _create_destination(self, call: SesCall) -> Members:
        name = required_text(call.members, "EventDestinationName")
        destination = self._read_destination(call, name)
        self._set(call).add(destination)
        self._created(destination.topic_arn)
        return {}

    def _get_destinations(self, call: SesCall) -> Members:
        found = self._set(call).destinations.values()
        return {"EventDestinations": [destination.as_json() for destination in found]}

    def _update_destination(self, call: SesCall) -> Members:
        name = self._set(call).destination(call.path("destination")).name
        self._set(call).destinations[name] = self._read_destination(call, name)
        return {}

    def _delete_destination(self, call: SesCall) -> Members:
        found = self._set(call)
        del found.destinations[found.destination(call.path("destination")).name]
        return {}

    def _read_destination(self, call: SesCall, name: str) -> EventDestination:
        definition = structure(call.members, "EventDestination")
        if definition is None:
            raise missing("EventDestination")
        for other in _OTHER_DESTINATIONS:
            if structure(definition, other) is not None:
                raise bad_request(f"{other} is not simulated: use SnsDestination.")
        destination = structure(definition, "SnsDestination")
        if destination is None:
            raise missing("SnsDestination")
        topic = required_text(destination, "TopicArn")
        if self._topics.find(topic) is None:
            raise bad_request(f"Could not publish to SNS topic <{topic}>: it does not exist.")
        names = texts(definition, "MatchingEventTypes")
        unknown = sorted(set(names) - set(BY_MATCHING_NAME))
        if not names or unknown:
            raise bad_request(
                f"MatchingEventTypes must be one or more of {', '.join(sorted(BY_MATCHING_NAME))}."
            )
        return EventDestination(
            name=name,
            topic_arn=topic,
            event_types=tuple(BY_MATCHING_NAME[item] for item in names),
            enabled=bool(boolean(definition, "Enabled")),
        )

    def _set(self, call: SesCall) -> ConfigurationSet:
        return self._sets.get(call.path("name"))


def _change_sending(found: ConfigurationSet, members: Members) -> None:
    found.sending_enabled = bool(boolean(members, "SendingEnabled"))


def _change_suppression(found: ConfigurationSet, members: Members) -> None:
    """An empty list suppresses nothing; no list follows the account."""
    if members.get("SuppressedReasons") is None:
        found.suppressed_reasons = None
        return
    reasons = texts(members, "SuppressedReasons")
    if set(reasons) - set(Reason):
        raise bad_request("SuppressedReasons must be BOUNCE or COMPLAINT.")
    found.suppressed_reasons = tuple(reasons)


def _change_delivery(found: ConfigurationSet, members: Members) -> None:
    policy = text(members, "TlsPolicy") or "OPTIONAL"
    if policy not in ("REQUIRE", "OPTIONAL"):
        raise bad_request("TlsPolicy must be REQUIRE or OPTIONAL.")
    pool = text(members, "SendingPoolName")
    if pool is not None:
        raise not_found(f"Dedicated IP pool <{pool}> does not exist.")
    options: dict[str, Any] = {"TlsPolicy": policy}
    seconds = whole(members, "MaxDeliverySeconds")
    if seconds is not None:
        if not 300 <= seconds <= 50_400:
            raise bad_request("MaxDeliverySeconds must be from 300 to 50400.")
        options["MaxDeliverySeconds"] = seconds
    found.options["DeliveryOptions"] = options


def _change_tracking(found: ConfigurationSet, members: Members) -> None:
    domain = text(members, "CustomRedirectDomain")
    found.options.pop("TrackingOptions", None)
    if domain is not None:
        found.options["TrackingOptions"] = {"CustomRedirectDomain": domain}


def _change_reputation(found: ConfigurationSet, members: Members) -> None:
    enabled = bool(boolean(members, "ReputationMetricsEnabled"))
    found.options["ReputationOptions"] = {"ReputationMetricsEnabled": enabled}
