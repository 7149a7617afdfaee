"""Every setting of the simulator with its default."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from streams.simulator.regions import partition


class BadSettingError(ValueError):
    """A setting out of its bounds; the text names it."""


class SignatureVersions(StrEnum):
    """How a topic signs: version 1 (SHA-1), version 2 (SHA-256), or the two in turn."""

    V1 = "1"
    V2 = "2"
    MIXED = "mixed"


class Legacy(StrEnum):
    """Whether identities notify of bounces, complaints and deliveries, as before event publishing."""

    OFF = "off"
    BESIDE = "beside"
    INSTEAD = "instead"


Milliseconds = tuple[int, int]
"""From, to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimes:
    """When and how events are published: ranges in milliseconds, shares from 0 to 1.

    `send_ms` and `outcome_ms` count from acceptance, `feedback_ms` (complaints, automatic replies,
    the end of a delay, opens, clicks) from the outcome before it.
    """

    send_ms: Milliseconds = (1, 10)
    outcome_ms: Milliseconds = (20, 80)
    feedback_ms: Milliseconds = (20, 200)
    duplicate_share: float = 0.0
    reorder_share: float = 0.0
    late_share: float = 0.0
    """Events that come `late_ms` later still, in an envelope that is `late_age_s` old."""
    late_ms: Milliseconds = (0, 0)
    late_age_s: float = 3600.0
    early_share: float = 0.0
    """Messages whose events come before the call is answered."""
    merge_recipients: bool = False
    """Recipients of a message with the same outcome share its records."""
    legacy: Legacy = Legacy.OFF
    legacy_headers: bool = False
    """Whether notifications of identities carry the headers."""
    unknown_fields: bool = False
    """Whether every record has members that nobody knows."""

    def __post_init__(self) -> None:
        for name in ("send_ms", "outcome_ms", "feedback_ms", "late_ms"):
            low, high = getattr(self, name)
            if not 0 <= low <= high:
                raise BadSettingError(f"{name} must go from a least to a most, not negative.")
        if self.late_age_s < 0:
            raise BadSettingError("late_age_s must not be negative.")
        for name in ("duplicate_share", "reorder_share", "late_share", "early_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadSettingError(f"{name} must be between 0 and 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorSettings:
    """What one simulated account in one region is like."""

    host: str = "127.0.0.1"
    port: int = 0
    ready_file: Path | None = None
    """Gets {"url": ...} as JSON, atomically, once the socket listens."""

    region: str = "eu-central-1"
    account_id: str = "111122223333"
    access_key: str = "test"
    secret_key: str = "test"  # noqa: S105 - the simulator's own public test secret
    configuration_sets: tuple[str, ...] = ("mailstreams",)
    verified_identities: tuple[str, ...] | None = None
    """Addresses and domains that may send; None: every one."""
    verify_identities: bool = False
    """Whether senders must be created identities; so it is wherever some are verified at start."""

    rate: float = 1000.0
    """Recipients a second."""
    burst_s: float = 1.0
    """How many seconds of the rate a full bucket holds."""
    daily_quota: float = -1.0
    """Recipients in any 24 hours; -1: no limit."""
    other_calls_per_s: float | None = None
    """Limit of all SES calls but SendEmail (AWS: about 1); None: no limit."""
    suppress_bounces_and_complaints: bool = True
    """Whether they go to the account's own suppression list, as on AWS."""

    topic_name: str = "ses-events-example"
    signature_version: SignatureVersions = SignatureVersions.V1
    key_bits: int = 2048
    signing_processes: int = 1
    """Processes that sign; 0: a thread of the server, which costs it twice as much."""
    subscribe: tuple[str, ...] = ()
    """Endpoints subscribed at start, asked again until they confirm."""
    subscribe_interval_s: float = 1.0
    delivery_timeout_s: float = 15.0
    retry_time_scale: float = 1.0
    """Factor on every delay between two tries of SNS."""
    concurrent_deliveries: int = 64

    seed: str = "mailstreams"
    rules_file: Path | None = None
    script_file: Path | None = None
    """What to set up at start, in the words of the control API."""
    event_times: EventTimes = field(default_factory=EventTimes)
    kept_content_bytes: int = 64 * 1024 * 1024
    """How much of the newest accepted requests is kept for a look."""

    def __post_init__(self) -> None:
        for endpoint in self.subscribe:
            if not endpoint.startswith(("http://", "https://")):
                raise BadSettingError(f"subscribe must be http or https URLs, not {endpoint!r}.")
        for name in ("rate", "burst_s", "signing_processes", "retry_time_scale"):
            if getattr(self, name) < 0:
                raise BadSettingError(f"{name} must not be negative.")
        for name, least in (("key_bits", 1024), ("concurrent_deliveries", 1)):
            if getattr(self, name) < least:
                raise BadSettingError(f"{name} must be at least {least}.")

    @property
    def topic_arn(self) -> str:
        return f"arn:{partition(self.region)}:sns:{self.region}:{self.account_id}:{self.topic_name}"
