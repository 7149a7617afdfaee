"""Delivery policies of SNS."""

from typing import Any

import pytest

from streams.simulator.retry_policy import BadPolicyError, RetryPolicy, read_healthy_policy


def test_the_default_is_three_retries_twenty_seconds_apart() -> None:
    assert RetryPolicy().delays() == (20.0, 20.0, 20.0)


def test_the_phases_follow_each_other() -> None:
    policy = read_healthy_policy(
        {
            "numRetries": 8,
            "numNoDelayRetries": 1,
            "numMinDelayRetries": 2,
            "numMaxDelayRetries": 2,
            "minDelayTarget": 5,
            "maxDelayTarget": 25,
            "backoffFunction": "linear",
        }
    )
    assert policy.delays() == (0.0, 5.0, 5.0, 5.0, 15.0, 25.0, 25.0, 25.0)


@pytest.mark.parametrize("function", ["linear", "arithmetic", "geometric", "exponential"])
def test_every_backoff_grows_from_least_to_most(function: str) -> None:
    delays = read_healthy_policy(
        {
            "numRetries": 10,
            "minDelayTarget": 1,
            "maxDelayTarget": 100,
            "backoffFunction": function,
        }
    ).delays()
    assert list(delays) == sorted(delays)
    assert (delays[0], delays[-1]) == (1.0, 100.0)


def test_a_policy_that_rides_out_an_hour_is_allowed() -> None:
    policy = read_healthy_policy(
        {
            "numRetries": 40,
            "numNoDelayRetries": 0,
            "numMinDelayRetries": 3,
            "minDelayTarget": 5,
            "maxDelayTarget": 120,
            "numMaxDelayRetries": 15,
            "backoffFunction": "exponential",
        }
    )
    assert 1800 < sum(policy.delays()) <= 3600


@pytest.mark.parametrize(
    "policy",
    [
        {"numRetries": 101},
        {"numRetries": 2, "numMinDelayRetries": 3},
        {"minDelayTarget": 0},
        {"minDelayTarget": 30, "maxDelayTarget": 20},
        {"numRetries": 100, "minDelayTarget": 60, "maxDelayTarget": 60},
        {"backoffFunction": "quadratic"},
        {"numRetries": "3"},
        {"numRetrys": 3},
    ],
)
def test_what_is_out_of_bounds_is_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(BadPolicyError):
        read_healthy_policy(policy)
