"""Log lines are JSON with a stable action."""

import io
import json
import logging

import asyncpg

from streams.runtime.logs import JsonLines, describe_with_frames


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


def test_what_a_server_says_about_the_row_at_hand_is_left_out() -> None:
    error = asyncpg.CheckViolationError.new(
        {
            "S": "ERROR",
            "C": "23514",
            "M": "violates check",
            "D": "Failing row contains (ann@example.com).",
        }
    )
    try:
        try:
            raise error
        except asyncpg.PostgresError as cause:
            raise RuntimeError("it failed") from cause
    except RuntimeError as shown:
        told = describe_with_frames(shown)
    assert "violates check (23514)" in told
    assert "RuntimeError: it failed" in told
    assert "ann@example.com" not in told
