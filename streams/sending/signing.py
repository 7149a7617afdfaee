"""A claimed row as a signed request, or the reason why there is none."""

import logging
from datetime import UTC, datetime

from streams.domain.attempts import Outcome
from streams.domain.errors import BadMessage
from streams.domain.mail_content import send_email_body
from streams.domain.outcomes import unsendable
from streams.domain.ses_answers import Fault, SignedCall
from streams.ports.sender import EmailProvider
from streams.sending.work import Work

log = logging.getLogger(__name__)


async def sign(
    work: Work, provider: EmailProvider, *, configuration_set: str
) -> SignedCall | Fault | Outcome:
    """Signed once, right after the claim. An outcome: no request can be made of this row, now or later."""
    try:
        body = send_email_body(work.email, work.content, configuration_set=configuration_set)
    except BadMessage as error:
        return _unsendable(work, str(error))
    except Exception as error:  # it is made of this row alone, so that no later try will do better
        log.error(
            "request could not be made in a way nobody foresaw",
            extra={"action": "sender.body_failed", "outbox_id": str(work.email.id)},
            exc_info=error,
        )
        return _unsendable(
            work,
            f"the request for SES could not be made ({type(error).__name__}): correct the row, and report it",
        )
    return await provider.sign(body)


def _unsendable(work: Work, reason: str) -> Outcome:
    return unsendable(work.email, error_class="content", reason=reason, finished=datetime.now(UTC))
