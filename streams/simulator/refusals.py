"""What AWS refuses, with its codes, statuses and words."""

from typing import Final

BAD_REQUEST: Final = "BadRequestException"


class RefusedError(Exception):
    """A call that is answered with an AWS error and has no effect."""

    def __init__(self, *, code: str, status: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.status = status
        self.message = message


def bad_request(message: str) -> RefusedError:
    return RefusedError(code=BAD_REQUEST, status=400, message=message)


def not_serialisable(message: str) -> RefusedError:
    return RefusedError(code="SerializationException", status=400, message=message)


def not_found(message: str) -> RefusedError:
    return RefusedError(code="NotFoundException", status=404, message=message)


def already_exists(message: str) -> RefusedError:
    return RefusedError(code="AlreadyExistsException", status=400, message=message)


def message_rejected(message: str) -> RefusedError:
    return RefusedError(code="MessageRejected", status=400, message=message)


def too_many_requests(message: str) -> RefusedError:
    return RefusedError(code="TooManyRequestsException", status=429, message=message)


def quota_exceeded() -> RefusedError:
    return RefusedError(
        code="LimitExceededException", status=400, message="Daily message quota exceeded."
    )


def sending_paused(what: str = "this account") -> RefusedError:
    return RefusedError(
        code="SendingPausedException", status=400, message=f"Sending paused for {what}."
    )


def account_suspended() -> RefusedError:
    return RefusedError(
        code="AccountSuspendedException",
        status=400,
        message="The account's ability to send email has been permanently restricted.",
    )


def unknown_operation(what: str) -> RefusedError:
    return RefusedError(
        code="UnknownOperationException", status=404, message=f"Unknown operation: {what}."
    )


def not_verified(identities: list[str], region: str) -> RefusedError:
    return message_rejected(
        "Email address is not verified. The following identities failed the check in region "
        f"{region.upper()}: {', '.join(identities)}"
    )
