"""Addresses as mail systems spell them."""

import pytest

from streams.domain.mailboxes import bare_address, is_mailbox_simulator


@pytest.mark.parametrize(
    "spelled",
    [
        "user1@example.com",
        "<user1@example.com>",
        "User One <user1@example.com>",
        "User One<user1@example.com>",
        '"One, User" <user1@example.com>',
        '"User@One" (note @ here) <user1@example.com>',
        '"One <user1@example.com>',
        " user1@example.com ",
        "user1@EXAMPLE.com",
        "user1@example.com.",
        "rfc822;user1@example.com",
        "rfc822; user1@example.com",
        "RFC822;<user1@example.com>",
        "mailto:user1@example.com",
        "'user1@example.com'",
        '"user1@example.com"',
        "<<user1@example.com>>",
        "<@relay.example.net:user1@example.com>",
        "(a) user1@example.com (b (c))",
        "user1@example.com;",
    ],
)
def test_every_spelling_is_the_same_address(spelled: str) -> None:
    assert bare_address(spelled) == "user1@example.com"


@pytest.mark.parametrize(
    ("spelled", "address"),
    [
        ("First.Last+tag@Example.com", "First.Last+tag@example.com"),
        ("user@exämple.com", "user@xn--exmple-cua.com"),
        ("user@XN--EXMPLE-CUA.com", "user@xn--exmple-cua.com"),
        ("user@straße.example", "user@xn--strae-oqa.example"),
        ("user@STRAẞE.Exämple.com", "user@xn--strae-oqa.xn--exmple-cua.com"),
        ("user@βόλος。example", "user@xn--nxasmm1c.example"),
        ("user@strasse.example", "user@strasse.example"),
        ('"first last"@example.com', '"first last"@example.com'),
        ('"a@b<c"@example.com', '"a@b<c"@example.com'),
        ("=?UTF-8?B?SmVzw7pz?=@example.com", "=?UTF-8?B?SmVzw7pz?=@example.com"),
        ("jürgen@example.com", "jürgen@example.com"),
        ("o'brien@example.com", "o'brien@example.com"),
        ("postmaster@[192.0.2.1]", "postmaster@[192.0.2.1]"),
    ],
)
def test_the_local_part_stays_and_the_domain_is_ascii(spelled: str, address: str) -> None:
    assert bare_address(spelled) == address


@pytest.mark.parametrize(
    "spelled",
    [
        *("", " ", "@", "user1", "user1@", "@example.com", "<>", "a b@example.com", "a@b@c"),
        *("user@exa mple.com", "user@" + "ü" * 300, "a" * 2000 + "@example.com", "\ud800@x\ud800"),
        *('"', "(", "<", '"a', "(a@b.c", '\\"@', "a@b..c", "user@" + "ß" * 63),
    ],
)
def test_what_is_no_address_is_none(spelled: str) -> None:
    assert bare_address(spelled) is None


def test_the_mailbox_simulator_is_known_with_its_labels() -> None:
    assert is_mailbox_simulator("Bounce+att1@simulator.AMAZONSES.com")
    assert not is_mailbox_simulator("bounce@simulator.amazonses.com.example.com")
