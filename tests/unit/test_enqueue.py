"""What an application may write, and what becomes of it before PostgreSQL sees it."""

import pytest

from streams.domain.mailboxes import ascii_domain_of, name_and_address


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("jan@bücher.example", "jan@xn--bcher-kva.example"),
        ("user@straße.example", "user@xn--strae-oqa.example"),
        ("user@例え.テスト", "user@xn--r8jz45g.xn--zckzah"),
        (" user@example.com\u00a0", "user@example.com"),
        ("User@Example.COM", "User@Example.COM"),
    ],
)
def test_a_domain_is_written_in_ascii(given: str, made: str) -> None:
    assert ascii_domain_of(given) == made


@pytest.mark.parametrize(
    "given",
    [
        "user@exam\u200bple.com",
        "user@exam\u00adple.com",
        "user@-exämple.com",
        "user@exämple-.com",
        "user@" + "ü" * 70 + ".com",
        "user@exä mple.com",
        "nobody",
        "dörte@example.com",
    ],
)
def test_what_has_no_ascii_form_stays_for_the_insert_to_refuse(given: str) -> None:
    assert ascii_domain_of(given) == given


@pytest.mark.parametrize(
    ("given", "name", "address"),
    [
        ("shop@example.com", None, "shop@example.com"),
        ("Shop <shop@example.com>", "Shop", "shop@example.com"),
        ('"Müller, Jürgen" <j@example.com>', "Müller, Jürgen", "j@example.com"),
        (r'"The \"best\"" <j@example.com>', 'The "best"', "j@example.com"),
        ("<shop@example.com>", None, "shop@example.com"),
        ("a\r\nBcc: b <shop@example.com>", "a\r\nBcc: b", "shop@example.com"),
        ("a <b> c", None, "a <b> c"),
    ],
)
def test_a_name_is_told_from_its_address(given: str, name: str | None, address: str) -> None:
    assert name_and_address(given) == (name, address)
