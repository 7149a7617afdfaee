"""Looks at an installation, part by part, each for a bounded time, and changes nothing. What is found is judged in the domain."""

import asyncio
import os
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import PurePath
from typing import Final

from streams.domain.diagnosis import Finding, clean, error, ok, unseen, warning
from streams.domain.diagnosis_checks import CHECKS
from streams.domain.diagnosis_kafka import judge_heartbeats, judge_topics
from streams.domain.diagnosis_polling import judge_polling
from streams.domain.diagnosis_postgres import Server, judge_database, judge_server, judge_session
from streams.domain.diagnosis_privileges import POLLING
from streams.domain.diagnosis_replication import Place, judge_replication, judge_role
from streams.domain.diagnosis_ses import judge_account, judge_configuration_set, judge_destinations
from streams.domain.diagnosis_slot import (
    Surroundings,
    judge_publication,
    judge_slot,
    judge_working,
)
from streams.domain.errors import MailstreamsError, Misconfigured, Unavailable
from streams.domain.topics import Topics
from streams.ports.doctor import PostgresFacts, SesFacts, Sources
from streams.runtime.settings import Settings

# A part as a whole, whose single questions have shorter bounds.
WITHIN_S: Final = 20.0
# What a part that was given up has for its connections.
_CLOSING_S: Final = 2.0
_ORDER: Final = {check.id: place for place, check in enumerate(CHECKS)}

Look = Callable[[], Awaitable[None]]


class Doctor:
    """examine() once. Findings are in the order of docs/doctor.md."""

    def __init__(self, settings: Settings, sources: Sources, *, within_s: float = WITHIN_S) -> None:
        self._settings = settings
        self._sources = sources
        self._within_s = within_s
        self._polls = settings.relay_mode == "poll"
        self._topics = Topics(prefix=settings.topic_prefix)
        self._found: list[Finding] = []
        self._place: Place | None = None
        self._server: Server | None = None
        # Whether a relay has ever stored a position here: what is missing then was there before.
        self._relay_was_here = False

    async def examine(self) -> list[Finding]:
        self._found = judge_settings(self._settings)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pipeline())
            if self._sources.ses is not None:
                group.create_task(self._ses(self._sources.ses))
        cleaned = [clean(finding, secrets(self._settings)) for finding in self._found]
        return sorted(cleaned, key=lambda finding: _ORDER[finding.id])

    async def _pipeline(self) -> None:
        """One after the other: what PostgreSQL says is needed to judge the rest."""
        await self._part("postgres.reach", self._postgres)
        if not self._polls:
            await self._part("replication.reach", self._replication)
        await self._part("kafka.reach", self._kafka)

    async def _part(self, id_: str, look: Look) -> None:
        """What cannot be looked at is one finding of this id."""
        task = asyncio.ensure_future(look())
        try:
            done, _ = await asyncio.wait([task], timeout=self._within_s)
        finally:
            task.cancel()
        if not done:
            await asyncio.wait([task], timeout=_CLOSING_S)
            self._found.append(unseen(id_, f"no answer within {self._within_s:g} s"))
            return
        if (failure := task.exception()) is not None:
            self._found.append(_failed(id_, failure))

    async def _step(self, id_: str, look: Look) -> None:
        """A question within a part."""
        try:
            await look()
        except MailstreamsError as failure:
            self._found.append(_failed(id_, failure))

    async def _postgres(self) -> None:
        async with self._sources.postgres() as facts:
            self._found.append(ok("postgres.reach", "PostgreSQL takes our connection"))
            server, around, self._place = await facts.server(self._settings.relay_slot)
            self._server = server
            self._found += judge_server(server, polling=self._polls)
            await self._step("postgres.pooler", lambda: self._session(facts))
            await self._step("postgres.schema", lambda: self._database(facts))
            if self._polls:
                await self._step("relay.polling", lambda: self._polling(facts))
                return
            await self._step("publication.feed", lambda: self._publication(facts))
            await self._step("slot.exists", lambda: self._slot(facts, around))

    async def _session(self, facts: PostgresFacts) -> None:
        self._found += judge_session(await facts.session(), self._settings.postgres_pooler)

    async def _polling(self, facts: PostgresFacts) -> None:
        self._found.append(judge_polling(await facts.polling(self._settings.relay_slot)))

    async def _database(self, facts: PostgresFacts) -> None:
        database = await facts.database()
        unused = {"relay" if self._polls else POLLING}
        if "api_port" not in self._settings.model_fields_set:
            unused.add("api")
        needed = {
            stage: rights for stage, rights in database.missing.items() if stage not in unused
        }
        self._found += judge_database(replace(database, missing=needed), salt=_salt(self._settings))
        if database.there:
            await self._step("relay.checkpoint", lambda: self._working(facts))

    async def _working(self, facts: PostgresFacts) -> None:
        working = await facts.working(self._settings.relay_slot)
        self._relay_was_here = working.checkpoint_age_s is not None
        judged = judge_working(working)
        # Which is the position in the WAL.
        unused = "relay.checkpoint" if self._polls else None
        self._found += [finding for finding in judged if finding.id != unused]

    async def _publication(self, facts: PostgresFacts) -> None:
        self._found += judge_publication(await facts.publication(self._settings.relay_slot))

    async def _slot(self, facts: PostgresFacts, around: Surroundings) -> None:
        name = self._settings.relay_slot
        slot = await facts.slot(name)
        self._found += judge_slot(slot, name, around, relay_was_here=self._relay_was_here)

    async def _replication(self) -> None:
        works = False
        try:
            self._found += judge_replication(await self._sources.replication(self._place))
            works = True
        finally:
            # Where the relay has a URL of its own, its role shows by itself.
            if self._server is not None and self._settings.postgres_replication_dsn is None:
                self._found.append(judge_role(self._server, works=works))

    async def _kafka(self) -> None:
        settings, kafka = self._settings, self._sources.kafka
        cluster = await kafka.cluster(self._topics.configurations())
        self._found += judge_topics(cluster, self._topics, partitions=settings.partitions)
        suppressions = cluster.topics.get(self._topics.suppressions)
        if suppressions is None or any(p.leader is None for p in suppressions.partitions):
            return
        beats = await kafka.heartbeats(self._topics.suppressions, len(suppressions.partitions))
        self._found.append(
            judge_heartbeats(
                beats,
                staleness_s=settings.sender_suppression_staleness_s,
                relay_was_here=self._relay_was_here,
            )
        )

    async def _ses(self, facts: SesFacts) -> None:
        try:
            self._found.append(ok("aws.region", f"the region is {facts.region()}"))
        except Misconfigured as missing:
            self._found.append(error("aws.region", str(missing)))
            return
        await self._part("aws.credentials", lambda: self._credentials(facts))
        await self._part("ses.reach", lambda: self._account(facts))

    async def _credentials(self, facts: SesFacts) -> None:
        await facts.credentials()
        self._found.append(ok("aws.credentials", "there are credentials"))

    async def _account(self, facts: SesFacts) -> None:
        name = self._settings.configuration_set
        self._found += judge_account(await facts.account())
        self._found.append(judge_configuration_set(name, await facts.configuration_set(name)))
        destinations = await facts.destinations(name)
        self._found.append(judge_destinations(destinations, allowed=self._settings.sns_topics))


def judge_settings(settings: Settings) -> list[Finding]:
    """What can be told of the settings without asking anybody."""
    findings = [ok("settings.legal", "every setting can be read")]
    for id_, read, is_there in (
        ("settings.salt", settings.salt, "the salt is set"),
        ("settings.unreadable-key", settings.unreadable_fernet_key, "the key is set"),
    ):
        try:
            read()
        except Misconfigured as wrong:
            findings.append(
                error(id_, str(wrong).partition(" has to be")[0] + " is missing or not legal")
            )
        else:
            findings.append(ok(id_, is_there))
    if settings.sns_topics:
        findings.append(ok("settings.sns-topics", f"{len(settings.sns_topics)} topics are allowed"))
    else:
        findings.append(
            warning(
                "settings.sns-topics", "MAILSTREAMS_SNS_TOPICS is empty: every event is refused"
            )
        )
    if settings.sender_journal is not None:
        place = settings.sender_journal.parent
        told = f"the directory of the journal, {place},"
        if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
            findings.append(ok("settings.journal", f"{told} can be written"))
        else:
            findings.append(error("settings.journal", f"{told} is missing or cannot be written"))
    return findings


def secrets(settings: Settings) -> list[str]:
    """What must never be printed, whatever a server says."""
    found = [
        secret.get_secret_value()
        for secret in (settings.recipient_salt, settings.unreadable_key, settings.events_basic_auth)
    ]
    for dsn in (settings.postgres_dsn, settings.postgres_replication_dsn or ""):
        found += [dsn, _password(dsn)]
    return found


def _password(dsn: str) -> str:
    return dsn.partition("://")[2].rpartition("@")[0].partition(":")[2]


def _salt(settings: Settings) -> bytes | None:
    try:
        return settings.salt()
    except Misconfigured:
        return None


def _failed(id_: str, failure: BaseException) -> Finding:
    """A fault of our own is told too, so that the other parts are still looked at; not its text, which may quote anything."""
    text = str(failure).rstrip(": ")
    if isinstance(failure, Misconfigured):
        return error(id_, text)
    if isinstance(failure, Unavailable):
        return unseen(id_, text)
    frame = traceback.extract_tb(failure.__traceback__)[-1]
    where = f"{PurePath(frame.filename).name}, line {frame.lineno}"
    return unseen(id_, f"not looked at: {type(failure).__name__} in {where}")
