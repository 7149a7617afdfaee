"""What a run leaves behind in this process: counters and log lines."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from prometheus_client import REGISTRY, generate_latest

from streams.runtime.logs import JsonLines

REQUESTS: Final = "mailstreams_events_requests_total"
HARD_BOUNCES: Final = "mailstreams_recipients_rate_hard_bounces_total"
COMPLAINTS: Final = "mailstreams_recipients_rate_complaints_total"
# As the command sets them: these libraries report an outage several times over, or quote what they send.
_QUIET: Final = {
    "aiokafka": logging.ERROR,
    "asyncpg": logging.CRITICAL,
    "botocore": logging.WARNING,
    "aiobotocore": logging.WARNING,
    "boto3": logging.WARNING,
    "aiohttp.access": logging.WARNING,
}


def requests_by_reason() -> Counter[str]:
    """How many requests the endpoint counted, by its word."""
    counted: Counter[str] = Counter()
    for family in REGISTRY.collect():
        for sample in family.samples:
            if sample.name == REQUESTS:
                counted[sample.labels["reason"]] = int(sample.value)
    return counted


def unforeseen() -> float:
    """How many requests ended in an error that nobody foresaw."""
    return sum(
        sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == "mailstreams_duty_failures_total"
        and sample.labels.get("duty") == "request"
    )


def rates() -> Mapping[str, float]:
    """The numerators of the two reputation rates."""
    names = {"hard_bounces": HARD_BOUNCES, "complaints": COMPLAINTS}
    return {key: REGISTRY.get_sample_value(name) or 0.0 for key, name in names.items()}


def added(before: Mapping[str, float]) -> Mapping[str, float]:
    """What was added to the rates since; parts of a complaint add up to a whole one but for the last digits."""
    return {key: round(value - before[key], 6) for key, value in rates().items()}


def exposed() -> str:
    """Every metric with its labels, as it is scraped."""
    return generate_latest().decode()


class Logs(logging.Handler):
    """Every line as the product writes it, and those among them that tell of an error nobody foresaw."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JsonLines("cases"))
        self.lines: list[str] = []
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        self.lines.append(line)
        # An outage that is expected is told without frames, and a warning is not a crash.
        if record.exc_info or record.exc_text or "Traceback" in line:
            self.tracebacks.append(line)

    def clear(self) -> None:
        self.lines.clear()
        self.tracebacks.clear()


@contextmanager
def captured() -> Iterator[Logs]:
    """All log lines from here on: the product's own down to DEBUG."""
    root, own, logs = logging.getLogger(), logging.getLogger("streams"), Logs()
    before = {name: logging.getLogger(name).level for name in ("", "streams", *_QUIET)}
    root.addHandler(logs)
    root.setLevel(logging.INFO)
    own.setLevel(logging.DEBUG)
    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(level)
    try:
        yield logs
    finally:
        root.removeHandler(logs)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
