"""Every metric of mailstreams: what it means, and what to do when it moves. Labels come from closed sets only."""

from typing import Final

from prometheus_client import Counter

SECONDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    300,
    900,
)

# Every process ------------------------------------------------------------------------------------------------------

DUTY_FAILURES = Counter(
    "mailstreams_runtime_duty_failures_total",
    "Steps of a duty that failed and are tried again. Growing: a server is away (kind Unavailable) or we have a bug; "
    "the log line with action duty.failed says which.",
    ["stage", "duty", "kind"],
)
UNREADABLE_RECORDS = Counter(
    "mailstreams_consumer_unreadable_records_total",
    "Records that a consumer put aside in <topic>.unreadable. Any is a producer's bug: look at its headers.",
    ["stage"],
)
