"""What an error of the connection to PostgreSQL tells."""

import asyncpg
import pytest

from streams.adapters.postgres import translate


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "PostgreSQL does not answer: TimeoutError"),
        (ConnectionRefusedError("refused"), "PostgreSQL does not answer: refused"),
        # asyncpg's own, without a message of the server.
        (asyncpg.ConnectionDoesNotExistError("closed"), "PostgreSQL: closed (08003)"),
    ],
)
def test_servers_that_are_away_are_told_with_a_reason(error: Exception, words: str) -> None:
    assert str(translate(error)) == words
