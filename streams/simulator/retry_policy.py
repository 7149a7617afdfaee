"""The delivery policy of an SNS subscription: delays between tries, by phase."""

from dataclasses import dataclass
from typing import Any

MAX_TOTAL_S = 3600


class BadPolicyError(Exception):
    """A policy that SNS refuses; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """SNS's default for HTTP unless said otherwise: three retries, 20 seconds apart."""

    num_retries: int = 3
    no_delay: int = 0
    min_delay: int = 0
    max_delay: int = 0
    min_delay_target_s: int = 20
    max_delay_target_s: int = 20
    function: str = "linear"

    def delays(self) -> tuple[float, ...]:
        """Seconds before each retry, before jitter."""
        backoff = self.num_retries - self.no_delay - self.min_delay - self.max_delay
        return (
            *[0.0] * self.no_delay,
            *[float(self.min_delay_target_s)] * self.min_delay,
            *[self._between(step, backoff) for step in range(backoff)],
            *[float(self.max_delay_target_s)] * self.max_delay,
        )

    def as_json(self) -> dict[str, Any]:
        """As SNS writes it, with every member."""
        numbers = {name: getattr(self, field) for name, field in _MEMBERS.items()}
        return numbers | {"backoffFunction": self.function}

    def _between(self, step: int, steps: int) -> float:
        if steps == 1:
            return float(self.min_delay_target_s)
        part = step / (steps - 1)
        shape = {
            "linear": part,
            "arithmetic": part * (step + 1) / steps,
            "geometric": part**2,
            "exponential": (2.0**step - 1) / (2.0 ** (steps - 1) - 1),
        }[self.function]
        low, high = self.min_delay_target_s, self.max_delay_target_s
        return low + (high - low) * shape


_FUNCTIONS = ("linear", "arithmetic", "geometric", "exponential")
_MEMBERS = {
    "numRetries": "num_retries",
    "numNoDelayRetries": "no_delay",
    "numMinDelayRetries": "min_delay",
    "numMaxDelayRetries": "max_delay",
    "minDelayTarget": "min_delay_target_s",
    "maxDelayTarget": "max_delay_target_s",
}


def read_healthy_policy(policy: dict[str, Any]) -> RetryPolicy:
    """`healthyRetryPolicy` within SNS's bounds."""
    numbers: dict[str, int] = {}
    function = policy.get("backoffFunction", "linear")
    for name, value in policy.items():
        if name == "backoffFunction":
            continue
        if name not in _MEMBERS:
            raise BadPolicyError(f"Unexpected JSON member: {name}")
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise BadPolicyError(f"{name} must be a whole number that is not negative")
        numbers[_MEMBERS[name]] = value
    if function not in _FUNCTIONS:
        raise BadPolicyError(f"backoffFunction must be one of {', '.join(_FUNCTIONS)}")
    result = RetryPolicy(function=function, **numbers)
    _check(result)
    return result


def _check(policy: RetryPolicy) -> None:
    if policy.num_retries > 100:
        raise BadPolicyError("numRetries must be at most 100")
    if not 1 <= policy.min_delay_target_s <= policy.max_delay_target_s <= MAX_TOTAL_S:
        raise BadPolicyError("minDelayTarget must be from 1 to maxDelayTarget, at most 3600")
    if policy.no_delay + policy.min_delay + policy.max_delay > policy.num_retries:
        raise BadPolicyError("numRetries must be at least the retries of the three other phases")
    if sum(policy.delays()) > MAX_TOTAL_S:
        raise BadPolicyError("the total time of all retries must be at most 3600 seconds")
