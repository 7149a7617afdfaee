"""What the readers of claimed rows get: their own content, or a template's, rendered."""

import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from streams.domain.attempts import Email
from streams.domain.errors import BadMessage
from streams.domain.mail_content import own_content
from streams.domain.templates import Content, Renderer, Template, TemplateName
from streams.ports.sender import Outbox

log = logging.getLogger(__name__)

_KEPT: Final = 1000


class Contents:
    """Templates are read once a version, in one query a batch."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._renderer = Renderer()
        self._known: OrderedDict[TemplateName, Template] = OrderedDict()

    async def of(self, emails: Sequence[Email]) -> list[Content | BadMessage]:
        """For each, in order, its content or what is wrong with it."""
        templates = await self._templates({name for e in emails if (name := _name(e)) is not None})
        return [self._content(email, templates) for email in emails]

    async def _templates(self, names: set[TemplateName]) -> dict[TemplateName, Template]:
        found = {name: self._known[name] for name in names if name in self._known}
        unknown = sorted(names - found.keys(), key=str)
        if unknown:
            loaded = await self._outbox.templates(unknown)
            self._known |= {template.name: template for template in loaded.values()}
            found |= loaded
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return found

    def _content(
        self, email: Email, templates: dict[TemplateName, Template]
    ) -> Content | BadMessage:
        name = _name(email)
        try:
            if name is None:
                return own_content(email)
            template = templates.get(name)
            if template is None:
                return BadMessage(
                    f"template {name} does not exist for tenant {email.tenant}: make it and send again"
                )
            return self._renderer.render(template, email.variables)
        except BadMessage as error:
            return error
        except Exception as error:  # the row is claimed: whatever is wrong with it costs it alone
            log.error(
                "content could not be made in a way nobody foresaw",
                extra={"action": "sender.content_failed", "outbox_id": str(email.id)},
                exc_info=error,
            )
            return BadMessage(
                f"the content could not be made ({type(error).__name__}): correct the row, and report it"
            )


def _name(email: Email) -> TemplateName | None:
    if email.template is None:
        return None
    return TemplateName(email.tenant, email.template, email.template_version)
