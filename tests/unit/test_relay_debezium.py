"""The relay and the connector configuration that may stand in its place say the same."""

import json
import re
from pathlib import Path

import streams
from devservers.debezium import shipped_configuration
from streams.domain.delivery_events import CONTENT_TYPE
from streams.domain.feed_rows import COLUMNS, HEADERS, headers
from streams.domain.slots import PLUGIN, PUBLICATION
from streams.domain.topics import Topics
from streams.runtime.settings import Settings

CONFIG = json.loads(
    (Path(streams.__file__).parent.parent / "ops/debezium/mailstreams-relay.json").read_text()
)["config"]


def test_slot_publication_and_plugin_are_the_relays() -> None:
    assert CONFIG["slot.name"] == Settings().relay_slot
    assert CONFIG["publication.name"] == PUBLICATION
    assert CONFIG["plugin.name"] == PLUGIN
    assert CONFIG["publication.autocreate.mode"] == "disabled"
    assert CONFIG["slot.drop.on.stop"] == "false"


def test_topic_names_are_the_relays() -> None:
    replacement = CONFIG["transforms.outbox.route.topic.replacement"]
    topics = Topics(prefix=Settings().topic_prefix)
    assert replacement.replace("${routedByValue}", "suppressions") == topics.suppressions
    assert CONFIG["transforms.outbox.route.by.field"] == "aggregatetype"


def test_the_mapped_columns_are_the_relays() -> None:
    router = "transforms.outbox.table.field.event."
    placed = [
        p.split(":")
        for p in CONFIG["transforms.outbox.table.fields.additional.placement"].split(",")
    ]
    mapped = {CONFIG[router + name] for name in ("id", "key", "payload")}
    mapped |= {CONFIG["transforms.outbox.route.by.field"]} | {column for column, _, _ in placed}
    assert mapped == set(COLUMNS) - {"tracingspancontext"}
    assert {place for _, place, _ in placed} == {"header"}


def test_the_headers_stand_in_the_event_routers_order() -> None:
    placed = CONFIG["transforms.outbox.table.fields.additional.placement"].split(",")
    names = ["id", *(p.split(":")[2] for p in placed)]
    assert [name for name, _ in headers(b"i", b"t", b"1", None)] == names
    assert list(HEADERS) == [*names, "traceparent"]
    assert CONFIG["extended.headers.enabled"] == "false"


def test_key_and_value_are_plain_text_and_an_empty_payload_is_a_tombstone() -> None:
    text = "org.apache.kafka.connect.storage.StringConverter"
    assert CONFIG["key.converter"] == CONFIG["value.converter"] == text
    assert CONFIG["transforms.outbox.route.tombstone.on.empty.payload"] == "true"


def test_the_oracle_of_the_tests_is_the_shipped_configuration_for_another_place() -> None:
    found = shipped_configuration(
        "postgresql://ann:p%40ss@192.0.2.7:6543/copy", slot="other", topic_prefix="t1.x."
    )
    changed = {name: value for name, value in found.items() if CONFIG.get(name) != value}
    assert changed == {
        "database.hostname": "192.0.2.7",
        "database.port": "6543",
        "database.user": "ann",
        "database.password": "p@ss",
        "database.dbname": "copy",
        "slot.name": "other",
        "transforms.outbox.route.topic.replacement": "t1.x.${routedByValue}",
        "predicates.isDeliveryEvent.pattern": r"t1\.x\.delivery-events",
    }
    assert found.keys() == CONFIG.keys()


def test_writes_are_safe() -> None:
    assert CONFIG["producer.override.acks"] == "all"
    assert CONFIG["producer.override.enable.idempotence"] == "true"


def test_delivery_events_alone_have_the_content_type_of_a_cloud_event() -> None:
    transform, predicate = "transforms.contentType.", "predicates.isDeliveryEvent."
    assert CONFIG["transforms"] == "outbox,contentType"
    assert CONFIG[transform + "type"].endswith(".InsertHeader")
    name, value = CONTENT_TYPE
    assert (CONFIG[transform + "header"], CONFIG[transform + "value.literal"]) == (
        name,
        value.decode(),
    )
    assert CONFIG[transform + "predicate"] == CONFIG["predicates"] == "isDeliveryEvent"
    assert CONFIG[predicate + "type"].endswith(".TopicNameMatches")
    topics = Topics(prefix=Settings().topic_prefix)
    matching = [
        t for t in topics.configurations() if re.fullmatch(CONFIG[predicate + "pattern"], t)
    ]
    assert matching == [topics.delivery_events]
