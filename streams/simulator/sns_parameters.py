"""Parameters of a call in the Query protocol, and what SNS says when one is wrong."""

import re
from dataclasses import dataclass

from streams.simulator.refusals import RefusedError

_ENTRY = re.compile(r"Attributes\.entry\.(\d+)\.key")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnsCall:
    """The parameters of an action, and whether its caller is known."""

    parameters: dict[str, str]
    signed: bool

    def required(self, name: str) -> str:
        value = self.parameters.get(name)
        if not value:
            raise invalid_parameter(f"{name} is missing")
        return value

    def text(self, name: str, default: str = "") -> str:
        return self.parameters.get(name, default)

    def flag(self, name: str) -> bool:
        return self.parameters.get(name, "false").lower() == "true"

    def attributes(self) -> list[tuple[str, str]]:
        return [
            (value, self.parameters.get(f"Attributes.entry.{match[1]}.value", ""))
            for name, value in self.parameters.items()
            if (match := _ENTRY.fullmatch(name))
        ]


def invalid_parameter(message: str) -> RefusedError:
    return RefusedError(
        code="InvalidParameter", status=400, message=f"Invalid parameter: {message}"
    )


def topic_not_found() -> RefusedError:
    return RefusedError(code="NotFound", status=404, message="Topic does not exist")


def subscription_not_found() -> RefusedError:
    return RefusedError(code="NotFound", status=404, message="Subscription does not exist")


def authorization_error(message: str) -> RefusedError:
    return RefusedError(code="AuthorizationError", status=403, message=message)
