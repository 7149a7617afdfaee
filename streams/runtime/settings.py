"""Every setting of mailstreams: the environment variable is MAILSTREAMS_ and the upper-case name.

A secret may stand in a file instead: MAILSTREAMS_<NAME>_FILE names it.
AWS credentials, region and endpoints are botocore's own variables (AWS_REGION, AWS_ENDPOINT_URL_SESV2, ...).
"""

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from streams.domain.errors import Misconfigured

# From a claim to its call: rendering, signing, waiting for the slot.
CLAIM_TO_CALL_S = 5.0
# A retry or a redrive needs contents and feed; within 45 days a source may repeat an event.
_LEAST_KEPT_S = {
    "feed_keep_s": 3600.0,
    "retention_contents_s": 86_400.0,
    "retention_messages_s": 3_888_000.0,
    "retention_events_s": 3_888_000.0,
}
_SECRETS = ("recipient_salt", "unreadable_key", "events_basic_auth")


class Settings(BaseSettings):
    """What a process is told. Durations are seconds, sizes are bytes."""

    model_config = SettingsConfigDict(env_prefix="MAILSTREAMS_", extra="ignore", frozen=True)

    postgres_dsn: str = Field(
        default="postgresql://mailstreams@127.0.0.1:5432/mailstreams",
        description="PostgreSQL URL; libpq and asyncpg both read it",
    )
    postgres_replication_dsn: str | None = Field(
        default=None,
        description="URL of the replication connection, if it differs (PgBouncer cannot carry it)",
    )
    postgres_pool_size: int = Field(default=8, ge=3, le=200, description="connections a process")
    postgres_pooler: Literal["none", "session", "transaction"] = Field(
        default="none",
        description="pool_mode of the pooler, such as PgBouncer, that postgres_dsn leads to",
    )
    postgres_timeout_s: float = Field(default=15.0, gt=0, description="bound of one statement")
    kafka_bootstrap_servers: str = Field(default="127.0.0.1:9092", description="host:port, ...")
    kafka_session_timeout_s: float = Field(
        default=10.0,
        ge=3,
        description="a member of a consumer group that is not heard for so long loses its partitions",
    )
    topic_prefix: str = Field(
        default="mail.", pattern=r"^[A-Za-z0-9._-]{1,100}$", description="prefix of every topic"
    )
    partitions: int = Field(
        default=12, ge=1, le=1000, description="partitions of each topic keyed by recipient"
    )
    replication_factor: int = Field(
        default=-1,
        ge=-1,
        le=15,
        description="of topics that migrate makes; -1: the broker's default",
    )
    recipient_salt: SecretStr = Field(
        default=SecretStr(""), description="secret of the recipient keys, at least 16 characters"
    )
    unreadable_key: SecretStr = Field(
        default=SecretStr(""),
        description="key of what is kept as unreadable: 32 bytes, URL-safe base64",
    )
    http_host: str = Field(default="127.0.0.1", description="address of health and metrics")
    http_port: int = Field(
        default=0, ge=0, le=65535, description="port of health and metrics; 0: any"
    )
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    start_patience_s: float = Field(
        default=60.0, ge=0, description="how long start-up waits for servers"
    )
    drain_s: float = Field(default=30.0, gt=0, description="budget of the drain after SIGTERM")

    relay_slot: str = Field(
        default="mailstreams_relay",
        pattern="^[a-z0-9_]{1,63}$",
        description="logical replication slot, the relay's only position",
    )
    relay_mode: Literal["wal", "poll"] = Field(
        default="wal",
        description="how the relay reads the feed: from the WAL, or by polling where logical decoding is not available; "
        "the same for every relay and for migrate",
    )
    relay_shards: int = Field(
        default=1, ge=1, le=64, description="in mode poll: parts of the keys that relays share"
    )
    relay_poll_interval_ms: int = Field(
        default=100, ge=10, le=10_000, description="in mode poll: pause between looks for new rows"
    )
    relay_max_in_flight_bytes: int = Field(default=32 * 1024 * 1024, ge=1024 * 1024)
    relay_max_in_flight_rows: int = Field(default=20_000, ge=100)
    relay_linger_ms: int = Field(
        default=2, ge=0, le=1000, description="a batch closes after so long"
    )

    sender_max_in_flight: int = Field(default=64, ge=1, le=1000, description="SES calls at a time")
    sender_lease_s: float = Field(default=45.0, ge=1, description="how long a claim is ours")
    sender_connect_timeout_s: float = Field(default=3.0, gt=0)
    sender_read_timeout_s: float = Field(
        default=20.0, gt=0, description="each early time-out makes an unknown outcome"
    )
    sender_max_poll_interval_s: float = Field(
        default=60.0,
        ge=5,
        description="a sender that asks for no records for so long leaves its group; slow calls do not count",
    )
    sender_max_attempts: int = Field(default=5, ge=1, le=100)
    sender_suppression_staleness_s: float = Field(
        default=30.0, gt=0, description="older newest heartbeat: nothing is sent"
    )
    sender_stale_transactional: Literal["stop", "go-on"] = Field(
        default="stop",
        description="whether a stale suppression table stops transactional mail too; bulk stops always",
    )
    sender_instance_id: str = Field(
        default="auto",
        pattern=r"^[A-Za-z0-9._-]{1,200}$",
        description="name of this sender in its group that survives restarts: its partitions wait for it until the session ends. "
        "auto: the host name of a pod of a Kubernetes StatefulSet, else none; none: other senders take over at once",
    )
    sender_journal: Path | None = Field(
        default=None,
        description="file of this instance alone on a local disk: after a kill it tells which claimed rows were never called",
    )
    sender_probe_first_s: float = Field(
        default=5.0, gt=0, description="while SES fails: until the first probe, then twice as long"
    )
    sender_probe_longest_s: float = Field(
        default=240.0,
        gt=0,
        description="while SES fails: longest time between probes; an eighth where it cannot be reached",
    )
    configuration_set: str = Field(
        default="mailstreams", pattern=r"^[A-Za-z0-9_-]{1,64}$", description="SES configuration set"
    )

    ses_tenants: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="tenants whose calls carry TenantName, separated by commas; tenant=name: another name in SES; *: all",
    )
    attachment_places: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="https://host/path/, s3://bucket/prefix/ or file:///directory/, separated by commas, below which attachments may lie; without any, none is fetched",
    )
    attachment_timeout_s: float = Field(
        default=10.0, gt=0, description="the longest that the files of one message may take"
    )
    attachment_max_bytes: int = Field(
        default=20_000_000,
        ge=1,
        le=30_000_000,
        description="the largest attachment that is fetched",
    )
    sender_bulk_calls: bool = Field(
        default=False,
        description="messages of the bulk lane that share what a call shares go out up to 50 in one SendBulkEmail; one lost "
        "answer then leaves as many to settle",
    )

    sns_topics: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="allowed topic ARNs, separated by commas"
    )
    sns_signature_versions: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("1", "2"), description="accepted signature versions, separated by commas"
    )
    sns_certificate_source: str | None = Field(
        default=None,
        description="development only: base URL that serves the certificates instead of Amazon's host",
    )
    sns_max_age_s: float = Field(
        default=4500.0, gt=0, description="older notifications are refused"
    )
    api_host: str = Field(default="127.0.0.1", description="address of the accept API")
    api_port: int = Field(
        default=8026,
        ge=0,
        le=65535,
        description="port of the accept API; `mailstreams all` runs it only where this is set",
    )
    api_timeout_s: float = Field(
        default=8.0,
        gt=0,
        le=60,
        description="the longest that an answer of the API takes once its request is in; a statement gets three quarters of it",
    )
    api_max_body_bytes: int = Field(
        default=10 * 1024 * 1024, ge=65_536, le=64 * 1024 * 1024, description="the largest body"
    )
    api_max_waiting: int = Field(
        default=1000,
        ge=1,
        le=100_000,
        description="so many requests may wait for the database; the next one is answered 503 at once",
    )

    events_host: str = Field(default="127.0.0.1", description="address of POST /sns")
    events_port: int = Field(default=8025, ge=0, le=65535, description="port of POST /sns")
    events_tls_certificate: Path | None = Field(
        default=None, description="PEM; without it the endpoint speaks HTTP, for use behind a proxy"
    )
    events_tls_key: Path | None = Field(default=None, description="PEM of the certificate's key")

    events_basic_auth: SecretStr = Field(
        default=SecretStr(""),
        description="user:password that POST /sns asks for; several, separated by commas, while they are changed",
    )
    events_raw_delivery: bool = Field(
        default=False,
        description="take events of subscriptions with raw message delivery too; needs events_basic_auth",
    )
    sqs_queues: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="URLs of SQS queues subscribed to the topics, separated by commas"
    )
    sqs_dead_letter_queues: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="URLs of the dead-letter queues of our subscriptions, separated by commas",
    )

    scheduler_interval_s: float = Field(default=0.5, gt=0, description="pause between rounds")
    scheduler_hold_s: float = Field(
        default=86_400.0, gt=0, description="an ambiguous row is held for a person after so long"
    )
    scheduler_resend_s: float = Field(
        default=600.0,
        gt=0,
        description="an ambiguous row of policy resend is sent again after so long",
    )
    scheduler_silent_s: float = Field(
        default=4500.0,
        gt=0,
        description="one of policy resend-when-silent after so long; longer than SNS repeats (3600)",
    )
    scheduler_sweep_age_s: float = Field(
        default=300.0, gt=0, description="rows pending for longer get a new pointer"
    )
    feed_keep_s: float = Field(
        default=259_200.0,
        ge=0,
        description="a day of the feed is dropped so long after its end, once Kafka has it; until then it can be replayed; 0: never",
    )
    retention_contents_s: float = Field(
        default=2_592_000.0,
        ge=0,
        description="contents of messages that have ended are removed at this age; 0: never",
    )
    retention_messages_s: float = Field(
        default=7_776_000.0,
        ge=0,
        description="messages that have ended are removed at this age, with attempts, outcomes and events; 0: never",
    )
    retention_events_s: float = Field(
        default=7_776_000.0,
        ge=0,
        description="events of no message of ours are removed at this age; 0: never",
    )
    rate_safety_factor: float = Field(
        default=0.95, gt=0, le=1, description="share of the SES rate that is used"
    )
    provider_list: bool = Field(
        default=True,
        description="import SES's account-level suppression list once, and delete from it what is lifted here",
    )
    provider_list_pace_s: float = Field(
        default=2.0,
        gt=0,
        le=60,
        description="from one such call to the next; SES allows the account one of all kinds a second",
    )

    @field_validator(
        "ses_tenants",
        "attachment_places",
        "sns_topics",
        "sns_signature_versions",
        "sqs_queues",
        "sqs_dead_letter_queues",
        mode="before",
    )
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @model_validator(mode="after")
    def _keep_long_enough(self) -> Self:
        for name, least in _LEAST_KEPT_S.items():
            value = getattr(self, name)
            if 0 < value < least:
                raise ValueError(f"{name} ({value:g}) must be 0 (for ever) or at least {least:g}")
        if 0 < self.retention_messages_s < self.retention_contents_s:
            raise ValueError(
                f"retention_messages_s ({self.retention_messages_s:g}) must not be less than "
                f"retention_contents_s ({self.retention_contents_s:g}): contents go first"
            )
        return self

    @model_validator(mode="after")
    def _agree(self) -> Self:
        call = self.sender_connect_timeout_s + self.sender_read_timeout_s
        if self.sender_lease_s < call + CLAIM_TO_CALL_S:
            raise ValueError(
                f"sender_lease_s ({self.sender_lease_s:g}) must be at least {CLAIM_TO_CALL_S:g} longer than "
                f"sender_connect_timeout_s plus sender_read_timeout_s ({call:g}), or a call could outlive its claim"
            )
        if self.sender_probe_longest_s < self.sender_probe_first_s:
            raise ValueError(
                f"sender_probe_longest_s ({self.sender_probe_longest_s:g}) must not be less than "
                f"sender_probe_first_s ({self.sender_probe_first_s:g})"
            )
        if (self.events_tls_certificate is None) != (self.events_tls_key is None):
            raise ValueError(
                "events_tls_certificate and events_tls_key are set together or not at all"
            )
        if self.events_raw_delivery and not self.events_basic_auth.get_secret_value():
            raise ValueError(
                "events_raw_delivery needs events_basic_auth: raw messages have no signature, so that anybody could forge them"
            )
        both = set(self.sqs_queues) & set(self.sqs_dead_letter_queues)
        if both:
            raise ValueError(
                f"sqs_queues and sqs_dead_letter_queues both name {min(both)}: a queue is one or the other"
            )
        return self

    def salt(self) -> bytes:
        """The salt of the recipient keys; Misconfigured if it is missing or short."""
        salt = self.recipient_salt.get_secret_value().encode()
        if len(salt) < 16:
            raise Misconfigured(
                "MAILSTREAMS_RECIPIENT_SALT has to be a secret of at least 16 characters, "
                'for example from "openssl rand -hex 32", and the same for every stage'
            )
        return salt

    def unreadable_fernet_key(self) -> bytes:
        """The key of unreadable records; Misconfigured if it is not 32 bytes in URL-safe base64."""
        key = self.unreadable_key.get_secret_value().encode()
        try:
            decoded = base64.urlsafe_b64decode(key)
        except ValueError:
            decoded = b""
        if len(decoded) != 32:
            raise Misconfigured(
                "MAILSTREAMS_UNREADABLE_KEY has to be 32 bytes in URL-safe base64, for example from "
                "\"python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'\""
            )
        return key

    @property
    def replication_dsn(self) -> str:
        return self.postgres_replication_dsn or self.postgres_dsn


def load(environment: Mapping[str, str] = os.environ) -> Settings:
    """Reads the environment; Misconfigured names every variable that is wrong."""
    try:
        return Settings.model_validate(
            Settings().model_dump(exclude_unset=True) | _secrets_from_files(environment)
        )
    except ValidationError as error:
        raise Misconfigured(
            "; ".join(_sentence(e["loc"], e["msg"]) for e in error.errors())
        ) from error


def _sentence(where: tuple[int | str, ...], what: str) -> str:
    what = what.removeprefix("Value error, ")
    return f"MAILSTREAMS_{str(where[0]).upper()}: {what}" if where else what


def _secrets_from_files(environment: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name in _SECRETS:
        path = environment.get(f"MAILSTREAMS_{name.upper()}_FILE")
        if path is None:
            continue
        try:
            found[name] = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise Misconfigured(
                f"MAILSTREAMS_{name.upper()}_FILE names {path}, which cannot be read: {error.strerror}"
            ) from error
    return found
