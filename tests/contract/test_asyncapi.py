"""schemas/asyncapi.yaml keeps to AsyncAPI 3.0, and describes exactly the topics that are created.

No package brings the JSON Schema of AsyncAPI, so its rules that this document can break are written down here.
"""

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import yaml
from jsonschema import Draft202012Validator

from streams.adapters.kafka import _new_topic
from streams.domain.delivery_events import CONTENT_TYPE
from streams.domain.feed_rows import HEADERS
from streams.domain.heartbeats import heartbeat_keys
from streams.domain.topics import Topics
from streams.runtime.settings import Settings
from tests.contract.schema_files import SCHEMAS, load

DOCUMENT: Final[dict[str, Any]] = yaml.safe_load((SCHEMAS / "asyncapi.yaml").read_text())
BINDING: Final = "0.5.0"
MEMBERS: Final = {
    "document": {
        "asyncapi",
        "id",
        "info",
        "defaultContentType",
        "servers",
        "channels",
        "operations",
        "components",
    },
    "info": {"title", "version", "description", "license"},
    "server": {"host", "protocol", "description"},
    "channel": {"address", "description", "servers", "messages", "bindings"},
    "operation": {"action", "channel", "summary", "messages"},
    "message": {"name", "title", "summary", "contentType", "headers", "payload", "bindings"},
    "components": {"messages", "messageBindings", "schemas"},
    "schema with a format": {"schemaFormat", "schema"},
    "kafka channel": {"partitions", "topicConfiguration", "bindingVersion"},
    "kafka message": {"key", "bindingVersion"},
}


def resolve(document: dict[str, Any], reference: str) -> Any:
    """What a reference points to, in this document or in a file beside it; KeyError or OSError if there is nothing."""
    file, _, pointer = reference.partition("#")
    found: Any = load(SCHEMAS / file) if file else document
    for part in pointer.split("/")[1:]:
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return found


def followed(document: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in value:
        value = resolve(document, value["$ref"])
    return value


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for member in value.values():
            yield from references(member)
    elif isinstance(value, list):
        for member in value:
            yield from references(member)


def faults(document: dict[str, Any]) -> list[str]:
    return list(_faults(document))


def _faults(document: dict[str, Any]) -> Iterator[str]:
    yield from _members("document", document, {"asyncapi", "info"})
    if document.get("asyncapi") != "3.0.0":
        yield "asyncapi is not 3.0.0"
    yield from _members("info", document.get("info", {}), {"title", "version"})
    for reference in references(document):
        try:
            resolve(document, reference)
        except (KeyError, OSError, TypeError):
            yield f"{reference} leads nowhere"
            return
    for name, server in document.get("servers", {}).items():
        yield from _members("server", server, {"host", "protocol"}, name)
    for name, channel in document.get("channels", {}).items():
        yield from _channel(document, name, channel)
    for name, operation in document.get("operations", {}).items():
        yield from _operation(document, name, operation)
    components = document.get("components", {})
    yield from _members("components", components, set())
    for name, message in components.get("messages", {}).items():
        yield from _message(document, name, message)


def _members(kind: str, value: dict[str, Any], required: set[str], name: str = "") -> Iterator[str]:
    for unknown in value.keys() - MEMBERS[kind]:
        yield f"{kind} {name}: {unknown} is not known"
    for missing in required - value.keys():
        yield f"{kind} {name}: {missing} is missing"


def _channel(document: dict[str, Any], name: str, channel: dict[str, Any]) -> Iterator[str]:
    yield from _members("channel", channel, {"address", "messages", "bindings"}, name)
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        yield f"channel {name}: not a name"
    for server in channel.get("servers", []):
        if not server.get("$ref", "").startswith("#/servers/"):
            yield f"channel {name}: its server is no reference to a server"
    for message in channel.get("messages", {}).values():
        if not message.get("$ref", "").startswith("#/components/messages/"):
            yield f"channel {name}: its message is no reference to a message"
    kafka = channel.get("bindings", {}).get("kafka", {})
    yield from _members("kafka channel", kafka, {"partitions", "bindingVersion"}, name)
    if kafka.get("bindingVersion") != BINDING:
        yield f"channel {name}: bindingVersion is not {BINDING}"
    policy = kafka.get("topicConfiguration", {}).get("cleanup.policy")
    if not isinstance(policy, list) or not {"delete", "compact"}.issuperset(policy):
        yield f"channel {name}: cleanup.policy is no list of delete and compact"


def _operation(document: dict[str, Any], name: str, operation: dict[str, Any]) -> Iterator[str]:
    yield from _members("operation", operation, {"action", "channel"}, name)
    if operation.get("action") not in ("send", "receive"):
        yield f"operation {name}: its action is neither send nor receive"
    channel = operation.get("channel", {}).get("$ref", "")
    if not channel.startswith("#/channels/"):
        yield f"operation {name}: its channel is no reference to a channel"
    for message in operation.get("messages", []):
        # The specification: the messages of the channel, not those of the components.
        if not message.get("$ref", "").startswith(f"{channel}/messages/"):
            yield f"operation {name}: its message is none of its channel"


def _message(document: dict[str, Any], name: str, message: dict[str, Any]) -> Iterator[str]:
    yield from _members("message", message, {"payload", "headers", "bindings"}, name)
    for part in ("payload", "headers"):
        schema = message.get(part, {})
        if "schemaFormat" in schema:
            yield from _members("schema with a format", schema, {"schema"}, name)
            if schema["schemaFormat"] != "application/schema+json;version=2020-12":
                yield f"message {name}: schemaFormat of {part} is not that of our schemas"
    headers = followed(document, message.get("headers", {}))
    headers = followed(document, headers.get("schema", headers))
    if headers.get("type") != "object":
        yield f"message {name}: headers are no object"
    kafka = followed(document, message.get("bindings", {}).get("kafka", {}))
    yield from _members("kafka message", kafka, {"key", "bindingVersion"}, name)


def test_the_document_keeps_to_asyncapi_3_0() -> None:
    assert faults(DOCUMENT) == []


Mutation = Callable[[dict[str, Any]], object]
WRONG: Final[dict[str, Mutation]] = {
    "version 2": lambda d: d.update(asyncapi="2.6.0"),
    "no title": lambda d: d["info"].pop("title"),
    "operations of version 2": lambda d: d["channels"]["deliveryEvents"].update(publish={}),
    "a reference that leads nowhere": lambda d: d["components"]["messages"].pop("heartbeat"),
    "a file that is not there": lambda d: d["components"]["messages"]["pointer"]["payload"].update(
        schema={"$ref": "./no/v1.json"}
    ),
    "an unknown action": lambda d: d["operations"]["sendDeadLetters"].update(action="publish"),
    "a message of another channel": lambda d: d["operations"]["sendDeadLetters"].update(
        messages=[{"$ref": "#/channels/deliveryEvents/messages/deliveryEvent"}]
    ),
    "no key": lambda d: d["components"]["messageBindings"]["byRecipient"].pop("key"),
    "a policy as text": lambda d: d["channels"]["deadLetters"]["bindings"]["kafka"][
        "topicConfiguration"
    ].update({"cleanup.policy": "delete"}),
}


@pytest.mark.parametrize("mutation", WRONG)
def test_a_wrong_document_is_noticed(mutation: str) -> None:
    changed = copy.deepcopy(DOCUMENT)
    WRONG[mutation](changed)
    assert changed != DOCUMENT
    assert faults(changed)


def test_the_channels_are_the_topics_with_what_they_are_created_with() -> None:
    settings = Settings()
    described = {}
    for channel in DOCUMENT["channels"].values():
        kafka = channel["bindings"]["kafka"]
        configured = dict(kafka["topicConfiguration"])
        configured["cleanup.policy"] = ",".join(configured["cleanup.policy"])
        described[channel["address"]] = (
            kafka["partitions"],
            {name: str(value) for name, value in configured.items()},
        )
    created = {}
    for name, config in Topics(prefix=settings.topic_prefix).configurations().items():
        topic = _new_topic(name, config, settings.partitions, 3)
        created[name] = (topic.num_partitions, topic.topic_configs)
    assert described == created


def test_every_channel_is_sent_to_and_each_message_is_used() -> None:
    sent = {o["channel"]["$ref"] for o in DOCUMENT["operations"].values() if o["action"] == "send"}
    assert sent == {f"#/channels/{name}" for name in DOCUMENT["channels"]}
    used = {m["$ref"] for c in DOCUMENT["channels"].values() for m in c["messages"].values()}
    assert used == {f"#/components/messages/{name}" for name in DOCUMENT["components"]["messages"]}
    for operation in DOCUMENT["operations"].values():
        channel = resolve(DOCUMENT, operation["channel"]["$ref"])
        assert len(operation["messages"]) == len(channel["messages"])


def test_every_schema_of_the_folder_is_that_of_a_message() -> None:
    used = {r.partition("#")[0] for r in references(DOCUMENT)} - {""}
    assert used == {f"./{path.parent.name}/v1.json" for path in SCHEMAS.glob("*/v1.json")}


def test_headers_and_keys_are_those_that_are_written() -> None:
    schemas, messages = DOCUMENT["components"]["schemas"], DOCUMENT["components"]["messages"]
    assert list(schemas["headersOfTheRelay"]["properties"]) == list(HEADERS)
    event = messages["deliveryEvent"]
    assert event["contentType"] == CONTENT_TYPE[1].decode()
    assert event["headers"]["properties"]["content-type"]["const"] == CONTENT_TYPE[1].decode()
    assert set(event["headers"]["properties"]) == {*HEADERS, CONTENT_TYPE[0]}
    beat = messages["heartbeat"]["bindings"]["kafka"]["key"]
    for key in heartbeat_keys(12):
        assert Draft202012Validator(beat).is_valid(key)
