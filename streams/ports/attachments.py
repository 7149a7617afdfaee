"""Where the files come from that messages name."""

from typing import Protocol

from streams.domain.attachments import Attachment


class AttachmentSource(Protocol):
    """Fetches from allowed places alone, within bounds of size and time."""

    async def fetch(self, attachment: Attachment, *, within_s: float) -> bytes:
        """The very bytes that the row names. BadMessage: they will never be had; Unavailable: not now."""

    async def stop(self) -> None: ...
