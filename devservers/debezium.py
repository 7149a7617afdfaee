"""The connector configuration that is shipped in ops/debezium, with what its README tells to change."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

SHIPPED = Path(__file__).resolve().parent.parent / "ops" / "debezium" / "mailstreams-relay.json"
PREFIX = "mail."


def shipped_configuration(dsn: str, *, slot: str, topic_prefix: str) -> dict[str, str]:
    """For this database, slot and prefix of the topics; all else as in the file."""
    config: dict[str, str] = json.loads(SHIPPED.read_text(encoding="utf-8"))["config"]
    address = urlsplit(dsn)
    replacement = config["transforms.outbox.route.topic.replacement"]
    pattern = config["predicates.isDeliveryEvent.pattern"]
    return config | {
        "database.hostname": address.hostname or "127.0.0.1",
        "database.port": str(address.port or 5432),
        "database.user": unquote(address.username or "postgres"),
        "database.password": unquote(address.password or ""),
        "database.dbname": address.path.lstrip("/"),
        "slot.name": slot,
        "transforms.outbox.route.topic.replacement": topic_prefix
        + replacement.removeprefix(PREFIX),
        "predicates.isDeliveryEvent.pattern": _escaped(topic_prefix)
        + pattern.removeprefix(_escaped(PREFIX)),
    }


def _escaped(prefix: str) -> str:
    return prefix.replace(".", "\\.")
