"""Which privileges each stage needs on which table. A test derives the same from the queries of its adapters."""

from collections.abc import Mapping
from typing import Final

# The relay by MAILSTREAMS_RELAY_MODE=poll, which needs other ones than in wal mode.
POLLING: Final = "relay in polling mode"
STAGES: Final[Mapping[str, Mapping[str, str]]] = {
    "relay": {
        "outbox_feed": "SELECT",
        "relay_checkpoint": "SELECT INSERT UPDATE",
        "relay_refused": "SELECT INSERT",
        "relay_shard": "SELECT",
    },
    POLLING: {
        "outbox_feed": "SELECT DELETE",
        "relay_acknowledged": "SELECT INSERT UPDATE DELETE",
        "relay_checkpoint": "SELECT INSERT UPDATE",
        "relay_poller": "SELECT INSERT UPDATE DELETE",
        "relay_refused": "SELECT INSERT",
        "relay_shard": "SELECT INSERT UPDATE DELETE",
    },
    "sender": {
        "dead_letter": "INSERT",
        "email_attempt": "SELECT INSERT UPDATE",
        "email_due": "SELECT INSERT UPDATE DELETE",
        "email_event": "SELECT",
        "email_lease": "SELECT INSERT DELETE",
        "email_outbox": "SELECT UPDATE",
        "email_unsettled": "SELECT INSERT",
        "outbox_feed": "INSERT",
        "pause": "SELECT INSERT UPDATE",
        "send_rate": "SELECT UPDATE",
        "suppression": "SELECT",
        "template": "SELECT",
    },
    "events": {
        "intake_watch": "SELECT INSERT UPDATE",
    },
    "recipients": {
        "dead_letter": "SELECT DELETE",
        "email_attempt": "SELECT INSERT UPDATE",
        "email_due": "SELECT INSERT UPDATE DELETE",
        "email_duplicate": "SELECT INSERT UPDATE DELETE",
        "email_event": "SELECT INSERT UPDATE",
        "email_lease": "SELECT",
        "email_outbox": "SELECT UPDATE",
        "email_unsettled": "SELECT INSERT DELETE",
        "intake_watch": "SELECT INSERT UPDATE",
        "provider_unlisting": "SELECT INSERT UPDATE",
        "recipient_outcome": "SELECT INSERT UPDATE",
        "recipient_state": "SELECT INSERT UPDATE",
        "suppressed_recipient": "SELECT INSERT UPDATE",
        "suppression": "SELECT INSERT UPDATE DELETE",
        "suppression_log": "SELECT INSERT",
    },
    "scheduler": {
        "dead_letter": "SELECT INSERT DELETE",
        "email_attempt": "SELECT INSERT UPDATE",
        "email_due": "SELECT INSERT UPDATE DELETE",
        "email_duplicate": "SELECT INSERT UPDATE DELETE",
        "email_event": "SELECT",
        "email_lease": "SELECT DELETE",
        "email_outbox": "SELECT UPDATE",
        "email_unsettled": "SELECT INSERT UPDATE DELETE",
        "intake_watch": "SELECT DELETE",
        "outbox_feed": "INSERT",
        "pause": "SELECT INSERT UPDATE DELETE",
        "provider_list": "SELECT INSERT UPDATE",
        "provider_unlisting": "SELECT INSERT UPDATE DELETE",
        "scheduler_duty": "SELECT INSERT UPDATE",
        "send_rate": "SELECT INSERT UPDATE",
        "suppressed_recipient": "SELECT INSERT UPDATE",
        "suppression": "SELECT INSERT UPDATE DELETE",
        "suppression_log": "SELECT INSERT",
    },
}
