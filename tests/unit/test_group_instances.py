"""Which senders get a name in the group that survives restarts."""

import pytest

from streams.domain.group_instances import group_instance

KUBERNETES = {"KUBERNETES_SERVICE_HOST": "192.0.2.1"}


@pytest.mark.parametrize(
    ("wanted", "host", "environment", "expected"),
    [
        ("auto", "sender-0", KUBERNETES, "sender-0"),
        ("auto", "mail-sender-12", KUBERNETES, "mail-sender-12"),
        ("auto", "sender-5f6d8c9b7-x2k4p", KUBERNETES, None),
        ("auto", "sender-5f6d8c9b7-24678", KUBERNETES, None),
        ("auto", "sender-0", {}, None),
        ("none", "sender-0", KUBERNETES, None),
        ("rack-7", "anything", {}, "rack-7"),
    ],
)
def test_a_name_is_derived_only_where_the_platform_gives_lasting_ones(
    wanted: str, host: str, environment: dict[str, str], expected: str | None
) -> None:
    assert group_instance(wanted, host=host, environment=environment) == expected
