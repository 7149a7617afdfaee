"""What a subscriber subscribes to, and how."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from aiokafka import AIOKafkaConsumer

from streams.subscribers.reading import Wanted

# The promises of the subscriber rest on these.
_OURS: Final = frozenset(
    ("bootstrap_servers", "group_id", "enable_auto_commit", "auto_offset_reset")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What is subscribed to, and how.

    types, tenants: None for all; events without a tenant pass no filter of tenants. start: where a new group begins.
    commit_every, commit_every_s: whichever comes first; both bound what is handed out again after a crash. fetch: the most
    events of a batch. window: so many ids at least are remembered. handling_s: a user that asks for nothing for so long loses
    its partitions. options: more arguments for AIOKafkaConsumer, such as those of TLS and SASL.
    """

    bootstrap_servers: str
    group: str
    topic: str = "mail.delivery-events"
    types: Collection[str] | None = None
    tenants: Collection[str] | None = None
    start: Literal["earliest", "latest"] = "earliest"
    commit_every: int = 500
    commit_every_s: float = 1.0
    fetch: int = 500
    window: int = 100_000
    handling_s: float = 300.0
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        for name in ("types", "tenants"):
            if isinstance(getattr(self, name), str):
                raise TypeError(f"{name} is a collection of texts, not one text")
        refused = _OURS & self.options.keys()
        if refused:
            raise ValueError(
                f"options must not have {', '.join(sorted(refused))}: the subscriber sets it"
            )

    def consumer(self) -> AIOKafkaConsumer:
        given = {"heartbeat_interval_ms": 1000, "session_timeout_ms": 10_000, **self.options}
        return AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap_servers,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset=self.start,
            **{"max_poll_interval_ms": int(self.handling_s * 1000), **given},
        )

    def wanted(self) -> Wanted:
        return Wanted(
            types=None if self.types is None else frozenset(map(str, self.types)),
            tenants=None if self.tenants is None else frozenset(self.tenants),
        )
