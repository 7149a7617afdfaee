"""Lists of addresses as people have them."""

from collections.abc import Sequence

import pytest

from streams.domain.address_lists import BadLine, read_keys, recipient_named
from streams.domain.addresses import recipient_key
from streams.domain.errors import BadMessage

SALT = b"0123456789abcdef"


def key(address: str) -> str:
    return recipient_key(address, SALT)


def keys(lines: Sequence[str], column: str | None = None) -> list[object]:
    return list(read_keys(lines, salt=SALT, column=column))


@pytest.mark.parametrize(
    "lines",
    [
        ["ann@example.com\n", "Bob@Example.com\n"],
        ["ann@example.com\r\n", "\r\n", "  \n", "bob@example.com"],
        ["\ufeffann@example.com\n", "bob@example.com\n"],
        ["email\n", "ann@example.com\n", "bob@example.com\n"],
        ["E-Mail Address,Reason\n", "ann@example.com,BOUNCE\n", '"bob@example.com",COMPLAINT\n'],
        ["id;email\n", "1;ann@example.com\n", "2;bob@example.com\n"],
        ["1\tann@example.com\n", "2\tbob@example.com\n"],
        ["Ann <ann@example.com>\n", " bob@EXAMPLE.com \n"],
    ],
)
def test_addresses_are_found_however_they_are_listed(lines: list[str]) -> None:
    assert keys(lines) == [key("ann@example.com"), key("bob@example.com")]


def test_a_column_can_be_named() -> None:
    lines = ["email,backup\n", "ann@example.com,bob@example.com\n"]
    assert keys(lines, "backup") == [key("bob@example.com")]


def test_a_domain_outside_ascii_is_its_punycode() -> None:
    assert keys(["o@münchen.example\n"]) == [key("o@xn--mnchen-3ya.example")]


def test_a_line_without_an_address_is_told_by_its_number() -> None:
    lines = ["ann@example.com\n", "\n", "nobody\n", "1,2,3\n", "a@b@@\n"]
    assert keys(lines)[1:3] == [BadLine(3), BadLine(4)]
    table = ["id,email\n", "1,ann@example.com\n", "2\n", '3,"x\n']
    assert keys(table) == [key("ann@example.com"), BadLine(3), BadLine(4)]


@pytest.mark.parametrize(
    ("lines", "column", "what"),
    [
        (["name,town\n", "Ann,Ulm\n"], None, "neither an address nor one column"),
        (["email,email\n"], None, "neither an address nor one column"),
        (["hello\n"], None, "neither an address nor one column"),
        (["email\n"], "mail", "no column 'mail'"),
    ],
)
def test_a_table_without_a_column_of_addresses_is_refused(
    lines: list[str], column: str | None, what: str
) -> None:
    with pytest.raises(BadMessage, match=what):
        keys(lines, column)


def test_nothing_is_nothing() -> None:
    assert keys([]) == keys(["\n"]) == []


def test_a_recipient_is_named_by_address_or_key() -> None:
    assert recipient_named(" Ann@Example.com ", salt=SALT) == (
        key("ann@example.com"),
        "Ann@example.com",
    )
    assert recipient_named("0f" * 16, salt=SALT) == ("0f" * 16, None)


@pytest.mark.parametrize("text", ["", "ann", "0F" * 16, "*", "0f" * 15])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(BadMessage, match="neither a mail address nor a recipient key"):
        recipient_named(text, salt=SALT)
