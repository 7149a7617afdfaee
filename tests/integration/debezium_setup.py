"""Debezium with the configuration that is shipped in ops/debezium, on a database and topics of a test."""

import json
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import streams

SHIPPED: Final = Path(streams.__file__).parent.parent / "ops/debezium/mailstreams-relay.json"
PREFIX: Final = "mail."


def shipped_configuration(dsn: str, *, slot: str, topic_prefix: str) -> dict[str, str]:
    """The shipped file with what its README tells to change: the server, the slot and the prefix of the topics."""
    config: dict[str, str] = json.loads(SHIPPED.read_text(encoding="utf-8"))["config"]
    address = urlsplit(dsn)
    replacement = config["transforms.outbox.route.topic.replacement"]
    pattern = config["predicates.isDeliveryEvent.pattern"]
    escaped = PREFIX.replace(".", "\\.")
    assert replacement.startswith(PREFIX)
    assert pattern.startswith(escaped)
    return config | {
        "database.hostname": address.hostname or "127.0.0.1",
        "database.port": str(address.port or 5432),
        "database.user": unquote(address.username or "postgres"),
        "database.password": unquote(address.password or ""),
        "database.dbname": address.path.lstrip("/"),
        "slot.name": slot,
        "transforms.outbox.route.topic.replacement": topic_prefix
        + replacement.removeprefix(PREFIX),
        "predicates.isDeliveryEvent.pattern": topic_prefix.replace(".", "\\.")
        + pattern.removeprefix(escaped),
    }
