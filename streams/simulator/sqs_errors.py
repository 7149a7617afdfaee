"""What SQS refuses: the exception of its JSON protocol, and the code that it had before that."""

from streams.simulator.refusals import RefusedError

_QUERY_CODES = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    "MessageNotInflight": "AWS.SimpleQueueService.MessageNotInflight",
    "TooManyEntriesInBatchRequest": "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
    "EmptyBatchRequest": "AWS.SimpleQueueService.EmptyBatchRequest",
    "BatchEntryIdsNotDistinct": "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
    "InvalidBatchEntryId": "AWS.SimpleQueueService.InvalidBatchEntryId",
    "BatchRequestTooLong": "AWS.SimpleQueueService.BatchRequestTooLong",
    "PurgeQueueInProgress": "AWS.SimpleQueueService.PurgeQueueInProgress",
    "UnsupportedOperation": "AWS.SimpleQueueService.UnsupportedOperation",
    "InvalidParameterValueException": "InvalidParameterValue",
    "MissingRequiredParameterException": "MissingParameter",
    "UnknownOperationException": "InvalidAction",
}


def query_code(code: str) -> str:
    """What boto3 shows as the error's code."""
    return _QUERY_CODES.get(code, code)


def sqs_error(code: str, message: str, status: int = 400) -> RefusedError:
    return RefusedError(code=code, status=status, message=message)


def no_such_queue() -> RefusedError:
    return sqs_error("QueueDoesNotExist", "The specified queue does not exist.")


def invalid_handle() -> RefusedError:
    return sqs_error("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")


def invalid_value(message: str) -> RefusedError:
    return sqs_error("InvalidParameterValueException", message)


def missing_parameter(name: str) -> RefusedError:
    return sqs_error(
        "MissingRequiredParameterException", f"The request must contain the parameter {name}."
    )


def out_of_range(value: object, name: str, reason: str) -> RefusedError:
    return invalid_value(f"Value {value} for parameter {name} is invalid. Reason: {reason}")
