"""A SendBulkEmail call, read and validated as SES does it: what is common refuses the call, what
is wrong with one entry refuses that entry."""

from collections.abc import Container
from dataclasses import dataclass

from streams.simulator.addresses import mailbox_address
from streams.simulator.content import read_headers
from streams.simulator.members import Members, missing, read_json, structure, structures, text
from streams.simulator.refusals import RefusedError, bad_request
from streams.simulator.send_email import (
    Submission,
    checked_tags,
    destination_envelope,
    digest,
    known_set,
    recipients_of,
    refuse_what_does_not_exist,
    reply_addresses,
    tag_pairs,
    written_headers,
)
from streams.simulator.template_content import TemplateCall
from streams.simulator.templates import Templates, read_data

MAX_ENTRIES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkCall:
    """Each entry is a submission, or why it cannot be one; in the order of the call."""

    source: str
    configuration_set: str | None
    entries: tuple[Submission | RefusedError, ...]
    requests: tuple[Members, ...]


def read_send_bulk_email(
    body: bytes, configuration_sets: Container[str], templates: Templates
) -> BulkCall:
    """The entries of a request body, or the error that SES answers to the whole call."""
    members = read_json(body)
    reader = _EntryReader(members, configuration_sets, templates)
    entries = structures(members, "BulkEmailEntries")
    if not entries:
        raise bad_request("BulkEmailEntries must not be empty.")
    if len(entries) > MAX_ENTRIES:
        raise bad_request(f"BulkEmailEntries must be at most {MAX_ENTRIES}.")
    return BulkCall(
        source=reader.source,
        configuration_set=reader.configuration_set,
        entries=tuple(reader.read(entry) for entry in entries),
        requests=tuple(entries),
    )


class _EntryReader:
    """What is common to the entries of a call, checked once."""

    def __init__(
        self, members: Members, configuration_sets: Container[str], templates: Templates
    ) -> None:
        self._sender = text(members, "FromEmailAddress") or ""
        if not self._sender:
            raise missing("FromEmailAddress")
        self.source = mailbox_address(self._sender)
        self._reply_to = reply_addresses(members)
        refuse_what_does_not_exist(members)
        self.configuration_set = known_set(
            text(members, "ConfigurationSetName"), configuration_sets
        )
        self._tags = tag_pairs(members, "DefaultEmailTags")
        checked_tags(self._tags)
        content = structure(members, "DefaultContent")
        if content is None:
            raise missing("DefaultContent")
        template = structure(content, "Template")
        if template is None:
            raise missing("DefaultContent.Template")
        self._content = content
        self._template = TemplateCall(template, templates)

    def read(self, entry: Members) -> Submission | RefusedError:
        try:
            return self._submission(entry)
        except RefusedError as error:
            return error

    def _submission(self, entry: Members) -> Submission:
        """Replacement tags take the place of all default tags; data and headers by name."""
        destination = structure(entry, "Destination")
        if destination is None:
            raise missing("Destination")
        envelope = destination_envelope(self._sender, destination)
        to, cc, bcc = recipients_of(envelope)
        replacement = structure(entry, "ReplacementEmailContent") or {}
        data = text(structure(replacement, "ReplacementTemplate") or {}, "ReplacementTemplateData")
        content = self._template.content(
            read_data(data, "ReplacementTemplateData"), _replacement_headers(entry)
        )
        return Submission(
            source=self.source,
            to=to,
            cc=cc,
            bcc=bcc,
            configuration_set=self.configuration_set,
            tags=checked_tags(tag_pairs(entry, "ReplacementTags") or self._tags),
            subject=content.subject,
            headers=written_headers(envelope, self._reply_to, content),
            content_digest=digest({"default": self._content, "replacement": replacement}),
            operation="SendBulkEmail",
            infected=content.infected,
            template_name=content.template_name,
            rendering_error=content.rendering_error,
        )


def _replacement_headers(entry: Members) -> list[tuple[str, str]]:
    return read_headers({"Headers": entry.get("ReplacementHeaders")})
