"""What an error of the connection to PostgreSQL tells."""

import pytest

from streams.adapters.postgres import translate


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "PostgreSQL does not answer: TimeoutError"),
        (ConnectionRefusedError("refused"), "PostgreSQL does not answer: refused"),
    ],
)
def test_servers_that_are_away_are_told_with_a_reason(error: Exception, words: str) -> None:
    assert str(translate(error)) == words
