"""Log lines are JSON with a stable action."""

import io
import json
import logging

from streams.runtime.logs import JsonLines


def test_a_line_carries_its_fields_and_its_exception() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines("relay"))
    log = logging.getLogger("test of logs")
    log.propagate = False
    log.addHandler(handler)
    try:
        raise ValueError("odd")
    except ValueError:
        log.warning("it failed", extra={"action": "it.failed", "n": 3}, exc_info=True)
    line = json.loads(stream.getvalue())
    assert (line["stage"], line["level"], line["action"], line["n"]) == (
        "relay",
        "warning",
        "it.failed",
        3,
    )
    assert "ValueError: odd" in line["exception"]
