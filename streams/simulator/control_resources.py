"""Resources that the control API makes: topics, queues, subscriptions, sets, identities, templates."""

import time
from collections.abc import Callable
from typing import Any

import orjson

from streams.simulator.acceptance import SendingState
from streams.simulator.configuration_sets import (
    BY_MATCHING_NAME,
    ConfigurationSet,
    EventDestination,
)
from streams.simulator.control_sending import Change
from streams.simulator.identities import Identity
from streams.simulator.settings import SignatureVersions
from streams.simulator.sns_attributes import read_attribute
from streams.simulator.sns_subscription_actions import check_endpoint
from streams.simulator.sns_topic import SubscriptionAttributes, Topic, Topics
from streams.simulator.sqs_attributes import QueueAttributes, changed
from streams.simulator.sqs_queue import Queues
from streams.simulator.strict import BadDocumentError, Fields
from streams.simulator.templates import Template

Subscribe = Callable[[Topic, str, str, SubscriptionAttributes], None]


class ResourceControl:
    """`changes` by name; `subscribe` keeps asking an endpoint until it confirms."""

    def __init__(
        self,
        *,
        state: SendingState,
        topics: Topics,
        default_topic: str,
        queues: Queues,
        subscribe: Subscribe,
        validate_topic: Callable[[str], None],
    ) -> None:
        self._state = state
        self._topics = topics
        self._default_topic = default_topic
        self._queues = queues
        self._subscribe = subscribe
        self._validate_topic = validate_topic
        self.changes: dict[str, Change] = {
            "topic": self._set_topic,
            "topics": self._add_topic,
            "queues": self._add_queue,
            "subscriptions": self._add_subscription,
            "configuration-sets": self._add_set,
            "identities": self._put_identity,
            "templates": self._add_template,
        }

    def topic(self, fields: Fields) -> Topic:
        """The topic that field `topic` names, by name or ARN; without it the default one."""
        arn = self._topics.arn_of(fields.text("topic", self._default_topic))
        topic = self._topics.find(arn)
        if topic is None:
            raise BadDocumentError("Field 'topic' must name a topic that exists.")
        return topic

    def _set_topic(self, fields: Fields) -> dict[str, Any]:
        topic = self.topic(fields)
        version = _version(fields)
        fields.done()
        topic.versions.versions = version
        return {}

    def _add_topic(self, fields: Fields) -> dict[str, Any]:
        name = fields.text("name")
        version = _version(fields, SignatureVersions.V1)
        fields.done()
        return {"arn": self._topics.create(name, version).arn}

    def _add_queue(self, fields: Fields) -> dict[str, Any]:
        name = fields.text("name")
        attributes = changed(QueueAttributes(), _attributes(fields))
        fields.done()
        return {"arn": self._queues.create(name, attributes, time.time()).arn}

    def _add_subscription(self, fields: Fields) -> dict[str, Any]:
        topic, endpoint = self.topic(fields), fields.text("endpoint")
        attributes = SubscriptionAttributes()
        for name, value in _attributes(fields).items():
            attributes = read_attribute(attributes, name, value)
        fields.done()
        if not endpoint.startswith(("http://", "https://", "arn:")):
            raise BadDocumentError(
                "Field 'endpoint' must be an http or https URL or the ARN of a queue."
            )
        protocol = "sqs" if endpoint.startswith("arn:") else endpoint.partition(":")[0]
        check_endpoint(protocol, endpoint)
        self._subscribe(topic, protocol, endpoint, attributes)
        return {}

    def _add_set(self, fields: Fields) -> dict[str, Any]:
        """A configuration set that publishes to one topic."""
        topic = self.topic(fields)
        made = ConfigurationSet(name=fields.text("name"))
        names = fields.texts("event_types") if "event_types" in fields else list(BY_MATCHING_NAME)
        enabled = fields.flag("enabled", True)
        made.sending_enabled = fields.flag("sending_enabled", True)
        fields.done()
        if set(names) - set(BY_MATCHING_NAME):
            raise BadDocumentError(
                f"Field 'event_types' must hold some of {', '.join(BY_MATCHING_NAME)}."
            )
        made.add(
            EventDestination(
                name="sns",
                topic_arn=topic.arn,
                event_types=tuple(BY_MATCHING_NAME[name] for name in names),
                enabled=enabled,
            )
        )
        self._state.sets.create(made)
        self._validate_topic(topic.arn)
        return {}

    def _put_identity(self, fields: Fields) -> dict[str, Any]:
        name = fields.text("identity").lower()
        verified = fields.flag("verified", True)
        fields.done()
        self._state.identities.put(Identity(name=name, verified=verified))
        return {}

    def _add_template(self, fields: Fields) -> dict[str, Any]:
        name = fields.text("name")
        template = Template(
            subject=fields.text("subject"),
            text=fields.text("text") if "text" in fields else None,
            html=fields.text("html") if "html" in fields else None,
        )
        fields.done()
        self._state.templates.create(name, template, time.time())
        return {}


def _version(fields: Fields, default: SignatureVersions | None = None) -> SignatureVersions:
    return SignatureVersions(fields.choice("signature_version", list(SignatureVersions), default))


def _attributes(fields: Fields) -> dict[str, str]:
    """Attributes as AWS takes them, as texts; a policy may be an object here."""
    given = fields.document("attributes") if "attributes" in fields else {}
    return {
        name: value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in given.items()
    }
