"""SQL and Python agree on normalisation, keys and what an address is."""

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import devservers
from streams.adapters.postgres import Database
from streams.domain.addresses import normalise, recipient_key
from tests.conftest import SALT

pytestmark = pytest.mark.servers

TEXT = st.text(
    alphabet=st.characters(exclude_characters="\0", codec="utf-8"), max_size=60
) | st.text(alphabet="AbZ@. \t\r\nÄİıſK'\"+", max_size=30)


@given(texts=st.lists(TEXT, min_size=1, max_size=50))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_sql_and_python_agree(
    servers: devservers.Servers, database_dsn: str, texts: list[str]
) -> None:
    with psycopg.connect(database_dsn) as connection:
        found = connection.execute(
            "SELECT t, normalise_address(t), recipient_key(t) FROM unnest(%s::text[]) AS t",
            (texts,),
        ).fetchall()
    for text, normal, key in found:
        assert normal == normalise(text)
        assert key == recipient_key(text, SALT)


@pytest.mark.parametrize(
    ("address", "valid"),
    [
        ("a@example.com", True),
        ("o'neil+tag@xn--mnchen-3ya.example", True),
        ("a.@example.com", True),
        ("a@example", False),
        ("a@-example.com", False),
        ("@example.com", False),
        ("a b@example.com", False),
        ('"a b"@example.com', False),
        ("a@example.com\n", False),
        ("a@example.com.", False),
    ],
)
async def test_what_a_plain_address_is(database: Database, address: str, valid: bool) -> None:
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT is_mail_address($1)", address) is valid
