"""What SES answers to a bulk call, entry by entry, as the answer that each would have got alone: one table judges both."""

from typing import Final

from streams.domain.ses_answers import Answer, EntryResult, Fault

SUCCESS: Final = "SUCCESS"
# In the place of a code that would say what it means.
UNKNOWN: Final = "UnknownEntryStatus"
# The service model and its prose spell some of them differently.
CODES: Final = {
    "MESSAGE_REJECTED": "MessageRejected",
    "MAIL_FROM_DOMAIN_NOT_VERIFIED": "MailFromDomainNotVerifiedException",
    "CONFIGURATION_SET_NOT_FOUND": "ConfigurationSetDoesNotExistException",
    "CONFIGURATION_SET_DOES_NOT_EXIST": "ConfigurationSetDoesNotExistException",
    "TEMPLATE_NOT_FOUND": "NotFoundException",
    "TEMPLATE_DOES_NOT_EXIST": "NotFoundException",
    "ACCOUNT_SUSPENDED": "AccountSuspendedException",
    "ACCOUNT_THROTTLED": "TooManyRequestsException",
    "ACCOUNT_DAILY_QUOTA_EXCEEDED": "LimitExceededException",
    "INVALID_SENDING_POOL_NAME": "NotFoundException",
    "ACCOUNT_SENDING_PAUSED": "AccountSendingPausedException",
    "CONFIGURATION_SET_SENDING_PAUSED": "ConfigurationSetSendingPausedException",
    "INVALID_PARAMETER": "BadRequestException",
    "INVALID_PARAMETER_VALUE": "BadRequestException",
    "TRANSIENT_FAILURE": "ServiceUnavailableException",
    "FAILED": "InternalFailure",
}


def entry_answers(seen: Answer | Fault, count: int) -> list[Answer] | None:
    """An answer for each of so many entries, in order; None if what was seen is about the call as a whole.

    Nothing but the order ties a result to its entry: where their numbers differ, no result is anybody's.
    """
    if isinstance(seen, Fault) or not 200 <= seen.status < 300 or seen.results is None:
        return None
    if len(seen.results) != count:
        return None
    return [_answer(result, seen) for result in seen.results]


def _answer(result: EntryResult, whole: Answer) -> Answer:
    """A refusal proves that the entry was not taken, as a 4xx does; what contradicts itself or is not known proves nothing."""
    status, code, message_id = whole.status, None, None
    if result.status == SUCCESS:
        message_id = result.message_id
    elif result.status in CODES and not result.has_message_id:
        status, code = 400, CODES[result.status]
    else:
        code = UNKNOWN
    return Answer(
        status=status,
        code=code,
        message=result.error,
        message_id=message_id,
        request_id=whole.request_id,
        entry_status=result.status,
        http_status=whole.status,
    )
