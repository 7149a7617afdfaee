"""The one table that says what an answer of SES, or a fault on the way, means. The first row that matches decides.

Proven not accepted is only: no byte was written, or a complete 4xx answer (408 excepted) with an AWS error code.
"""

from typing import Final

from streams.domain.attempts import OutcomeKind, PauseScope
from streams.domain.ses_answers import FaultKind
from streams.domain.ses_patterns import AnswerPattern, FaultPattern, Row, Source
from streams.domain.ses_refusals import REFUSALS, codes

_FAULTS: Final = (
    Row(
        name="no-credentials",
        when=FaultPattern(written=False, kinds=frozenset({FaultKind.NO_CREDENTIALS})),
        kind=OutcomeKind.ACCOUNT_STOP,
        source=Source.LOCAL,
        reason="no AWS credentials were found: set them the way botocore reads them, for example by an instance role",
        pause=PauseScope.ACCOUNT,
    ),
    Row(
        name="tls",
        when=FaultPattern(written=False, kinds=frozenset({FaultKind.TLS})),
        kind=OutcomeKind.RETRY,
        source=Source.MEASURED,
        reason="the TLS connection to SES could not be made: check the endpoint, its certificate and what stands between",
    ),
    Row(
        name="unreachable",
        when=FaultPattern(written=False, kinds=frozenset({FaultKind.PROXY})),
        kind=OutcomeKind.RETRY,
        source=Source.MEASURED,
        reason="the proxy before SES let nothing through: check HTTPS_PROXY, NO_PROXY and what the proxy allows",
    ),
    Row(
        name="unreachable",
        when=FaultPattern(written=False),
        kind=OutcomeKind.RETRY,
        source=Source.MEASURED,
        reason="SES could not be reached, nothing was sent: check network, name service and endpoint",
    ),
    Row(
        name="no-answer",
        when=FaultPattern(written=True, kinds=frozenset({FaultKind.TIMEOUT})),
        kind=OutcomeKind.UNKNOWN,
        source=Source.MEASURED,
        reason="no answer of SES came in time, so it is not known whether it took the message",
    ),
    Row(
        name="connection-lost",
        when=FaultPattern(written=True),
        kind=OutcomeKind.UNKNOWN,
        source=Source.MEASURED,
        reason="the connection ended before SES had answered, so it is not known whether it took the message",
    ),
)

_UNPROVEN_OR_ACCEPTED: Final = (
    Row(
        name="accepted",
        when=AnswerPattern(status=range(200, 300), has_id=True),
        kind=OutcomeKind.ACCEPTED,
        source=Source.MODEL,
        reason="SES took the message",
    ),
    Row(
        name="unclear-answer",
        when=AnswerPattern(status=range(200, 300), has_code=True),
        kind=OutcomeKind.UNKNOWN,
        source=Source.PROOF,
        reason="SES answered with a success and an error at once, or with a status that mailstreams does not know, which proves nothing: report it with this text",
    ),
    Row(
        name="no-message-id",
        when=AnswerPattern(status=range(300)),
        kind=OutcomeKind.UNKNOWN,
        source=Source.MEASURED,
        reason="the answer was a success without a message id: check what answers at the endpoint",
    ),
    Row(
        name="redirected",
        when=AnswerPattern(status=range(300, 400)),
        kind=OutcomeKind.UNKNOWN,
        source=Source.PROOF,
        reason="the answer was a redirect, which SES never gives: check what answers at the endpoint",
    ),
    Row(
        name="server-error",
        when=AnswerPattern(status=range(500, 1000)),
        kind=OutcomeKind.UNKNOWN,
        source=Source.PROOF,
        reason="SES failed, so it is not known whether it took the message",
    ),
    Row(
        name="request-timeout",
        when=AnswerPattern(status=range(408, 409)),
        kind=OutcomeKind.UNKNOWN,
        source=Source.COMMON,
        reason="SES gave up waiting for the request, so it is not known whether it took the message",
    ),
    Row(
        name="request-timeout",
        when=AnswerPattern(codes=codes("RequestTimeout", "RequestAborted")),
        kind=OutcomeKind.UNKNOWN,
        source=Source.COMMON,
        reason="SES gave up waiting for the request, so it is not known whether it took the message",
    ),
    Row(
        name="not-from-aws",
        when=AnswerPattern(has_code=False),
        kind=OutcomeKind.UNKNOWN,
        source=Source.PROOF,
        reason="the answer has no AWS error code, so a proxy may have given it: check what stands between us and SES",
    ),
)

TABLE: Final = (*_FAULTS, *_UNPROVEN_OR_ACCEPTED, *REFUSALS)
