"""Settings from the environment, and what is said when they are wrong."""

from pathlib import Path

import pytest

from streams.domain.errors import Misconfigured
from streams.runtime.settings import Settings, load

DOCUMENTED = Path(__file__).parents[2] / "docs" / "settings.md"


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAILSTREAMS_SNS_TOPICS", "arn:a, arn:b,")
    assert load().sns_topics == ("arn:a", "arn:b")


def test_a_wrong_value_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAILSTREAMS_PARTITIONS", "many")
    with pytest.raises(Misconfigured, match="MAILSTREAMS_PARTITIONS"):
        load()


def test_settings_that_contradict_each_other_are_both_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MAILSTREAMS_SENDER_LEASE_S", "3")
    with pytest.raises(Misconfigured, match=r"sender_lease_s .* sender_read_timeout_s"):
        load()


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "salt"
    file.write_text("0123456789abcdef\n", encoding="utf-8")
    settings = load({"MAILSTREAMS_RECIPIENT_SALT_FILE": str(file)})
    assert settings.salt() == b"0123456789abcdef"


def test_a_secret_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="MAILSTREAMS_RECIPIENT_SALT_FILE"):
        load({"MAILSTREAMS_RECIPIENT_SALT_FILE": str(tmp_path / "none")})


@pytest.mark.parametrize("salt", ["", "short"])
def test_a_missing_or_short_salt_is_refused_with_the_remedy(
    salt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAILSTREAMS_RECIPIENT_SALT", salt)
    with pytest.raises(Misconfigured, match="openssl rand"):
        load().salt()


@pytest.mark.parametrize("key", ["", "=", "c2hvcnQ="])
def test_a_wrong_key_of_unreadable_records_is_refused(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAILSTREAMS_UNREADABLE_KEY", key)
    with pytest.raises(Misconfigured, match="MAILSTREAMS_UNREADABLE_KEY"):
        load().unreadable_fernet_key()


def test_secrets_are_not_shown() -> None:
    shown = repr(Settings.model_validate({"recipient_salt": "0123456789abcdef"}))
    assert "0123456789abcdef" not in shown


def test_every_setting_is_documented() -> None:
    text = DOCUMENTED.read_text(encoding="utf-8")
    missing = [
        name for name in Settings.model_fields if f"`MAILSTREAMS_{name.upper()}`" not in text
    ]
    assert not missing
