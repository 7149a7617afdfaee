"""A claimed row as a signed request, or the reason why there is none."""

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from streams.domain.attempts import Outcome, OutcomeKind
from streams.domain.backoff import unreachable_delay_s
from streams.domain.bulk_mail import BulkEntry, Shared, bulk_entry, send_bulk_email_body
from streams.domain.errors import BadMessage, Unavailable
from streams.domain.mail_content import send_email_body
from streams.domain.outcomes import released, unsendable
from streams.domain.ses_answers import SEND_BULK_EMAIL, Fault, SignedCall
from streams.domain.ses_tenants import SesTenants
from streams.ports.attachments import AttachmentSource
from streams.ports.sender import EmailProvider
from streams.sending.last_look import lease_clock
from streams.sending.work import Work

log = logging.getLogger(__name__)

NO_PLACE = "attachments are fetched from nowhere: name their places in MAILSTREAMS_ATTACHMENT_PLACES, and redrive the message"
# Of the lease, for what comes after the files.
RESERVED_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """How requests are made of rows. attachment_s: the longest that the files of one message may take."""

    provider: EmailProvider
    configuration_set: str
    tenants: SesTenants
    attachments: AttachmentSource | None
    attachment_s: float

    async def sign(self, work: Work) -> SignedCall | Fault | Outcome:
        """Signed once, right after the claim. An outcome: no request can be made of this row now, or ever."""
        files = await self._fetch(work) if work.email.attachments else ()
        if isinstance(files, Outcome):
            return files
        try:
            if files:
                body = await asyncio.to_thread(self._body, work, files)
            else:
                body = self._body(work, files)
        except BadMessage as error:
            return _unsendable(work, str(error))
        except (
            Exception
        ) as error:  # it is made of this row alone, so that no later try will do better
            log.error(
                "request could not be made in a way nobody foresaw",
                extra={"action": "sender.body_failed", "outbox_id": str(work.email.id)},
                exc_info=error,
            )
            return _unsendable(
                work,
                f"the request for SES could not be made ({type(error).__name__}): correct the row, and report it",
            )
        return await self.provider.sign(body)

    def entry(self, work: Work) -> BulkEntry | None:
        """The message as an entry of a bulk call; None if it goes out in a call of its own."""
        try:
            return bulk_entry(
                work.email, work.content, ses_tenant=self.tenants.name_of(work.email.tenant)
            )
        except Exception:  # noqa: BLE001 a call of its own tells what is wrong with it
            return None

    async def sign_bulk(self, shared: Shared, entries: Sequence[BulkEntry]) -> SignedCall | Fault:
        """Right before the call, since only then it is known which entries it has."""
        body = send_bulk_email_body(
            shared, [entry.body for entry in entries], configuration_set=self.configuration_set
        )
        return await self.provider.sign(body, path=SEND_BULK_EMAIL)

    def _body(self, work: Work, files: Sequence[bytes]) -> bytes:
        return send_email_body(
            work.email,
            work.content,
            configuration_set=self.configuration_set,
            ses_tenant=self.tenants.name_of(work.email.tenant),
            files=files,
        )

    async def _fetch(self, work: Work) -> list[bytes] | Outcome:
        """The files in order, before the lease gets short."""
        if self.attachments is None:
            return _unsendable(work, NO_PLACE, error_class="attachment")
        left_s = work.begin_by - lease_clock() - RESERVED_S
        if left_s <= 0:  # none of them was slow
            return released(work.email, finished=datetime.now(UTC))
        until = lease_clock() + min(self.attachment_s, left_s)
        files: list[bytes] = []
        try:
            for attachment in work.email.attachments:
                within_s = max(until - lease_clock(), 0.0)
                files.append(await self.attachments.fetch(attachment, within_s=within_s))
        except BadMessage as error:
            return _unsendable(work, str(error), error_class="attachment")
        except Unavailable as error:
            log.warning(
                "attachment could not be fetched, the message is tried again",
                extra={
                    "action": "sender.attachment_failed",
                    "outbox_id": str(work.email.id),
                    "error": str(error),
                },
            )
            return _retry(work, str(error))
        return files


def _unsendable(work: Work, reason: str, *, error_class: str = "content") -> Outcome:
    return unsendable(
        work.email, error_class=error_class, reason=reason, finished=datetime.now(UTC)
    )


def _retry(work: Work, reason: str) -> Outcome:
    """Charged, so that what never comes ends with a reason. SES was not called."""
    email = work.email
    return Outcome(
        id=email.id,
        attempt_id=email.attempt_id,
        number=email.attempt,
        kind=OutcomeKind.RETRY,
        finished=datetime.now(UTC),
        delay_s=unreachable_delay_s(email.attempt, random.random()),  # noqa: S311 jitter is no secret
        error_class="attachment-unavailable",
        reason=reason,
    )
