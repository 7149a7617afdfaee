"""The recipient key and what it folds."""

import hashlib
import hmac

import pytest

from streams.domain.addresses import normalise, recipient_key, salt_fingerprint, salt_pads

SALT = b"0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("Ann@Example.COM", "ann@example.com"),
        ("  ann@example.com\t\r\n", "ann@example.com"),
        ("a.n+n@example.com", "a.n+n@example.com"),
        ("İSTANBUL@example.com", "İstanbul@example.com"),
        ("\u212a@example.com", "\u212a@example.com"),  # KELVIN SIGN is not the letter k
    ],
)
def test_only_ascii_letters_are_folded(given: str, normal: str) -> None:
    assert normalise(given) == normal


def test_the_key_is_the_first_128_bits_of_the_hmac() -> None:
    expected = hmac.new(SALT, b"ann@example.com", hashlib.sha256).hexdigest()[:32]
    assert recipient_key("Ann@EXAMPLE.com ", SALT) == expected


def test_a_lone_surrogate_has_a_key_too() -> None:
    assert len(recipient_key("\ud800@example.com", SALT)) == 32


@pytest.mark.parametrize("salt", [SALT, b"s" * 16, b"long" * 40])
def test_the_pads_give_the_same_hmac(salt: bytes) -> None:
    inner, outer = salt_pads(salt)
    message = b"ann@example.com"
    by_pads = hashlib.sha256(outer + hashlib.sha256(inner + message).digest()).digest()
    assert by_pads == hmac.new(salt, message, hashlib.sha256).digest()


def test_fingerprints_tell_salts_apart_without_telling_them() -> None:
    assert salt_fingerprint(SALT) != salt_fingerprint(SALT + b"x")
    assert SALT.decode() not in salt_fingerprint(SALT)
