"""Puts stages and adapters together, the only place that knows both, and runs them.

Each builder imports what it puts together, so that a process starts with what it needs and nothing else.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

from aiohttp import web

from streams.domain.errors import Misconfigured
from streams.domain.topics import Lane, Topics
from streams.runtime import logs, settings
from streams.runtime.http import HttpServer, health_routes
from streams.runtime.lifecycle import Stage, run_stages
from streams.runtime.settings import Settings

if TYPE_CHECKING:
    from streams.adapters.api_admin import ApiAdmin
    from streams.adapters.kafka_batches import KafkaBatches
    from streams.adapters.kafka_publisher import KafkaPublisher, UnreadableTopic
    from streams.adapters.outbox_admin import OutboxAdmin
    from streams.adapters.postgres import Database
    from streams.adapters.sns import SnsCertificates, SnsConfirmer
    from streams.adapters.suppression_admin import SuppressionAdmin
    from streams.domain.diagnosis import Finding
    from streams.domain.overview import Line
    from streams.domain.rebuilding import Rebuilt
    from streams.domain.reclassification import Report
    from streams.intake_watch import IntakeWatch
    from streams.provider_list import ProviderList
    from streams.queue_intake import QueueIntake
    from streams.rebuild import Progress

log = logging.getLogger(__name__)


# Of the time for an answer of the API so much is for its statement.
STATEMENT_SHARE: Final = 0.75


def database(
    config: Settings, name: str, server_settings: Mapping[str, str] | None = None
) -> Database:
    """A pool of its own for each stage, so that none waits for another."""
    from streams.adapters.postgres import Database

    return Database(
        config.postgres_dsn,
        pool_size=config.postgres_pool_size,
        timeout_s=config.postgres_timeout_s,
        name=name,
        server_settings=server_settings,
        pooler=config.postgres_pooler,
    )


def topics(config: Settings) -> Topics:
    return Topics(prefix=config.topic_prefix)


def relay(config: Settings) -> Stage:
    from streams.runtime import metrics

    metrics.RELAY_MODE.labels(mode=config.relay_mode).set(1)
    return _polling_relay(config) if config.relay_mode == "poll" else _wal_relay(config)


def _wal_relay(config: Settings) -> Stage:
    from streams.adapters.relay_store import RelayStore
    from streams.adapters.replication import ReplicationConnection
    from streams.domain.slots import PUBLICATION
    from streams.relay import Relay

    source = ReplicationConnection(
        config.replication_dsn, slot=config.relay_slot, publication=PUBLICATION
    )
    store = RelayStore(database(config, "relay"), slot=config.relay_slot)
    return Relay(source=source, sink=_record_sink(config), store=store, drain_s=config.drain_s / 2)


def _polling_relay(config: Settings) -> Stage:
    from streams.adapters.relay_poll_store import CONNECTIONS, PLANNER, RelayPollStore
    from streams.relay_polling import PollingSettings, RelayPolling

    pool_size = max(config.postgres_pool_size, CONNECTIONS)
    pool = database(
        config.model_copy(update={"postgres_pool_size": pool_size}), "relay poll", PLANNER
    )
    return RelayPolling(
        PollingSettings(
            shards=config.relay_shards,
            interval_s=config.relay_poll_interval_ms / 1000,
            drain_s=config.drain_s / 2,
        ),
        sink=_record_sink(config),
        store=RelayPollStore(pool, slot=config.relay_slot, relay_id=uuid4()),
    )


def _record_sink(config: Settings) -> KafkaBatches:
    from streams.adapters.kafka_batches import KafkaBatches
    from streams.domain.delivery_events import CONTENT_TYPE

    names = topics(config)
    kinds = {
        **{names.outbox(lane): f"outbox-{lane}" for lane in Lane},
        names.suppressions: "suppressions",
        names.delivery_events: "delivery-events",
        names.dead_letters: "dead-letters",
    }
    return KafkaBatches(
        config.kafka_bootstrap_servers,
        topic_prefix=config.topic_prefix,
        kinds=kinds,
        content_types={names.delivery_events: CONTENT_TYPE},
        linger_s=config.relay_linger_ms / 1000,
        max_rows=config.relay_max_in_flight_rows,
        max_bytes=config.relay_max_in_flight_bytes,
    )


def api(config: Settings) -> Stage:
    from streams.adapters.accept_store import PostgresAcceptStore, sessions
    from streams.api import Api, ApiSettings

    timeout_s = config.api_timeout_s * STATEMENT_SHARE
    quick = config.model_copy(update={"postgres_timeout_s": timeout_s})
    pool = database(quick, "api", sessions(timeout_s))
    return Api(ApiSettings.of(config), PostgresAcceptStore(pool))


def events(config: Settings) -> Stage:
    from streams.events import Events, EventsSettings
    from streams.intake import Intake, IntakeSettings

    ports = intake_ports(config)
    watch = intake_watch(config, "events")
    intake = Intake(IntakeSettings.of(config), *ports)
    return Events(
        EventsSettings.of(config),
        intake,
        ports.publisher,
        ports.certificates,
        queue_intake(config, ports, config.sqs_queues, config.sqs_dead_letter_queues, watch),
        watch=watch,
    )


def intake_watch(config: Settings, stage: str) -> IntakeWatch:
    """The watch of one process; each life of it has an id of its own."""
    from streams.adapters.intake_watch_log import IntakeWatchLog
    from streams.intake_watch import IntakeWatch

    quick = config.model_copy(update={"postgres_timeout_s": min(config.postgres_timeout_s, 5.0)})
    store = database(quick, f"{stage} watch")
    return IntakeWatch(IntakeWatchLog(store, stage=stage, process=uuid4()), stage=stage)


class IntakePorts(NamedTuple):
    """What an intake is made of, in its order; the endpoint and the queues share it."""

    publisher: KafkaPublisher
    unreadable: UnreadableTopic
    certificates: SnsCertificates
    confirmer: SnsConfirmer


def intake_ports(config: Settings) -> IntakePorts:
    from streams.adapters.kafka_publisher import KafkaPublisher
    from streams.adapters.sns import CertificateFetcher, SnsCertificates, SnsConfirmer

    # Shorter than the endpoint's own bound, so that SNS hears what is wrong.
    publisher = KafkaPublisher(
        config.kafka_bootstrap_servers, client_id="mailstreams-events", timeout_s=6.0
    )
    return IntakePorts(
        publisher,
        unreadable(config, "events", publisher),
        SnsCertificates(CertificateFetcher(config.sns_certificate_source)),
        SnsConfirmer(),
    )


def queue_intake(
    config: Settings,
    ports: IntakePorts,
    queues: Sequence[str],
    dead_letters: Sequence[str],
    watch: IntakeWatch | None = None,
) -> QueueIntake:
    """Of the queues with these URLs, if there are any."""
    from streams.adapters.sqs import SqsQueue
    from streams.intake import Intake, IntakeSettings
    from streams.queue_intake import QueueIntake, QueueKind, Source

    urls = {QueueKind.INTAKE: queues, QueueKind.DEAD_LETTER: dead_letters}
    sources = [
        Source(queue=SqsQueue(url), kind=kind) for kind, named in urls.items() for url in named
    ]
    # A queue keeps messages for up to 14 days: their age says nothing.
    settings = replace(IntakeSettings.of(config), max_age=None)
    return QueueIntake(sources, Intake(settings, *ports), ports.publisher, watch)


async def drain(url: str) -> dict[str, int]:
    """Takes what is in one queue, and tells how many messages had which outcome."""
    from streams.adapters.sqs import host_and_name

    host_and_name(url)  # a wrong argument is told before a setting that is missing
    config = settings.load()
    logs.configure("drain", config.log_level)
    use_aws_region(os.environ)
    ports = intake_ports(config)
    queues = queue_intake(config, ports, (), (url,))
    try:
        return {str(reason): count for reason, count in (await queues.drain()).items()}
    finally:
        await queues.stop()
        await ports.certificates.stop()
        await ports.publisher.stop()


def recipients(config: Settings) -> Stage:
    from streams.adapters.facts_store import PLANNER, FactsStore
    from streams.adapters.kafka_group import GroupConsumer
    from streams.recipients import Recipients

    names = topics(config)
    return Recipients(
        consumer=GroupConsumer(
            config.kafka_bootstrap_servers,
            topic=names.delivery_events,
            group=recipients_group(config),
            stage="recipients",
            session_timeout_s=config.kafka_session_timeout_s,
        ),
        facts=FactsStore(database(config, "recipients", PLANNER)),
        unreadable=unreadable(config, "recipients"),
        watch=intake_watch(config, "recipients"),
    )


def scheduler(config: Settings) -> Stage:
    from streams.adapters.schedule_store import ScheduleStore
    from streams.adapters.ses_account import SesAccount
    from streams.adapters.upkeep_store import UpkeepStore
    from streams.scheduler import Scheduler

    shared = database(config, "scheduler")
    return Scheduler(
        schedule=ScheduleStore(shared),
        account=SesAccount(),
        settings=config,
        provider_list=provider_list(config) if config.provider_list else None,
        old_rows=UpkeepStore(shared, slot=config.relay_slot),
    )


def provider_list(config: Settings) -> ProviderList:
    from streams.adapters.provider_list_store import ProviderListStore
    from streams.adapters.ses_suppression_list import SesSuppressionList
    from streams.provider_list import ProviderList

    return ProviderList(
        provider=SesSuppressionList(),
        store=ProviderListStore(database(config, "provider list")),
        salt=config.salt(),
        pace=timedelta(seconds=config.provider_list_pace_s),
    )


def unreadable(
    config: Settings, stage: str, publisher: KafkaPublisher | None = None
) -> UnreadableTopic:
    """Where the stage sets records aside, through its own producer where it has one."""
    from streams.adapters.kafka_publisher import KafkaPublisher, UnreadableTopic

    publisher = publisher or KafkaPublisher(
        config.kafka_bootstrap_servers, client_id=f"mailstreams-{stage}-unreadable"
    )
    return UnreadableTopic(publisher, key=config.unreadable_fernet_key(), stage=stage)


def sender(config: Settings) -> Stage:
    from streams.adapters.attachment_files import AttachmentFiles
    from streams.adapters.attempt_journal import AttemptJournalFile
    from streams.adapters.kafka_pointers import KafkaPointers
    from streams.adapters.kafka_suppressions import KafkaSuppressions
    from streams.adapters.outbox_store import PLANNER, OutboxStore
    from streams.adapters.ses import SesApi
    from streams.adapters.suppression_announcer import SuppressionAnnouncer
    from streams.domain.group_instances import group_instance
    from streams.sender import Sender, SenderSettings
    from streams.suppression_table import SuppressionTable

    names = topics(config)
    servers, client_id = config.kafka_bootstrap_servers, "mailstreams-sender"
    pool = database(config, "sender", PLANNER)
    return Sender(
        SenderSettings.of(config),
        outbox=OutboxStore(pool, max_attempts=config.sender_max_attempts),
        provider=SesApi(
            max_in_flight=config.sender_max_in_flight,
            connect_timeout_s=config.sender_connect_timeout_s,
            read_timeout_s=config.sender_read_timeout_s,
        ),
        pointers=KafkaPointers(
            servers,
            names,
            client_id=client_id,
            session_timeout_s=config.kafka_session_timeout_s,
            max_poll_interval_s=config.sender_max_poll_interval_s,
            instance_id=group_instance(
                config.sender_instance_id, host=socket.gethostname(), environment=os.environ
            ),
        ),
        suppressions=SuppressionTable(
            KafkaSuppressions(servers, names.suppressions, client_id=client_id),
            staleness_s=config.sender_suppression_staleness_s,
            goes_on=[Lane.TRANSACTIONAL] if config.sender_stale_transactional == "go-on" else [],
            partitions=config.partitions,
        ),
        unreadable=unreadable(config, "sender"),
        announcer=SuppressionAnnouncer(pool),
        journal=None
        if config.sender_journal is None
        else AttemptJournalFile(config.sender_journal),
        attachments=AttachmentFiles(config.attachment_places, largest=config.attachment_max_bytes)
        if config.attachment_places
        else None,
    )


BUILDERS: Final[Mapping[str, Callable[[Settings], Stage]]] = {
    "api": api,
    "relay": relay,
    "sender": sender,
    "events": events,
    "recipients": recipients,
    "scheduler": scheduler,
}


async def run(names: Sequence[str]) -> None:
    """Runs these stages in this process until SIGTERM; health and metrics of all on one address.

    More than one are all: the API is of them only where its port is set, since it opens a port that applications post to.
    """
    config = settings.load()
    is_all = len(names) > 1
    logs.configure("all" if is_all else names[0], config.log_level)
    config.salt()
    use_aws_region(os.environ)
    named = [*names, *(["api"] if is_all and "api_port" in config.model_fields_set else [])]
    stages = [salt_check(config), *(BUILDERS[name](config) for name in named)]
    app = web.Application()
    app.add_routes(health_routes([stage.health for stage in stages]))
    server = HttpServer(app, host=config.http_host, port=config.http_port)
    await server.start()
    log.info(
        "health and metrics are served",
        extra={"action": "http.listening", "address": server.address},
    )
    # What was imported and built stays: the collector need not look at it again and again, nor at every 700 new objects,
    # which took 4 % of the intake.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    try:
        await run_stages(stages, start_patience_s=config.start_patience_s, drain_s=config.drain_s)
    finally:
        await server.stop()


def use_aws_region(environment: MutableMapping[str, str]) -> None:
    """AWS_REGION is what AWS's own machines and most SDKs use; botocore reads only AWS_DEFAULT_REGION."""
    if "AWS_REGION" in environment:
        environment["AWS_DEFAULT_REGION"] = environment["AWS_REGION"]


def salt_check(config: Settings) -> Stage:
    from streams.adapters.migrations import check_salt
    from streams.salt_check import SaltCheck

    async def compare() -> None:
        quick = config.model_copy(update={"postgres_pool_size": 2, "postgres_timeout_s": 5})
        async with database(quick, "salt check") as connection:
            await check_salt(connection, config.salt())

    return SaltCheck(compare)


async def migrate(*, with_topics: bool) -> dict[str, list[str]]:
    """What was changed, by kind."""
    from streams.adapters.kafka import create_topics
    from streams.adapters.migrations import migrate as migrate_database

    config = settings.load()
    logs.configure("migrate", config.log_level)
    salt = config.salt()
    async with database(config, "migrate") as connection:
        done = await migrate_database(
            connection, salt=salt, slot=config.relay_slot, polling=config.relay_mode == "poll"
        )
    made = []
    if with_topics:
        made = await create_topics(
            config.kafka_bootstrap_servers,
            topics(config),
            partitions=config.partitions,
            replication_factor=config.replication_factor,
        )
    return {
        "migrations": done.applied,
        "salt": ["set"] if done.salt_set else [],
        "slot": [config.relay_slot] if done.slot_made else [],
        "index": ["made"] if done.index_made else ["dropped"] if done.index_dropped else [],
        "topics": made,
    }


async def diagnose(*, with_ses: bool) -> list[Finding]:
    """What the doctor finds, in the order of its list. Changes nothing."""
    from streams.adapters.doctor_kafka import DoctorKafka
    from streams.adapters.doctor_postgres import DoctorPostgres
    from streams.adapters.doctor_replication import look
    from streams.adapters.doctor_ses import DoctorSes
    from streams.doctor import Doctor
    from streams.domain.diagnosis import error
    from streams.ports.doctor import Sources

    logs.configure("doctor", "error")
    # What it says of servers that are away is a finding.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        config = settings.load()
    except Misconfigured as wrong:
        return [error("settings.legal", str(wrong))]
    use_aws_region(os.environ)
    ses = DoctorSes() if with_ses else None
    sources = Sources(
        postgres=lambda: DoctorPostgres.connected(config.postgres_dsn),
        replication=lambda place: look(config.replication_dsn, place),
        kafka=DoctorKafka(config.kafka_bootstrap_servers),
        ses=ses,
    )
    try:
        return await Doctor(config, sources).examine()
    finally:
        if ses is not None:
            await ses.stop()


async def reclassify(
    *, rules_version: int | None, dry_run: bool, after: str | None, told: Callable[[Report], None]
) -> Report:
    """Runs these bounce rules, the newest if none are named, over the stored evidence."""
    from streams.adapters.facts_store import PLANNER, EvidenceStore
    from streams.domain.address_lists import is_recipient_key
    from streams.domain.addresses import RecipientKey
    from streams.domain.bounce_rules import RULE_VERSIONS
    from streams.reclassify import reclassify_all

    rules = RULE_VERSIONS.get(max(RULE_VERSIONS) if rules_version is None else rules_version)
    if after is not None and not is_recipient_key(after):
        raise Misconfigured(f"--after {after!r}: a recipient key has 32 hex digits, 0-9 and a-f")
    if rules is None:
        known = ", ".join(map(str, sorted(RULE_VERSIONS)))
        raise Misconfigured(f"there are no bounce rules of version {rules_version}, only {known}")
    config = settings.load()
    logs.configure("reclassify", config.log_level)
    async with database(config, "reclassify", PLANNER) as connection:
        return await reclassify_all(
            EvidenceStore(connection),
            rules=rules,
            dry_run=dry_run,
            after=RecipientKey(after) if after else None,
            told=told,
        )


@asynccontextmanager
async def suppression_admin(timeout_s: float) -> AsyncIterator[tuple[SuppressionAdmin, bytes]]:
    """What the command on suppressions works with, and the salt of the recipient keys; Misconfigured if it is not the database's."""
    from streams.adapters.migrations import check_salt
    from streams.adapters.suppression_admin import SuppressionAdmin

    config = settings.load()
    logs.configure("suppressions", config.log_level)
    salt = config.salt()
    patient = config.model_copy(update={"postgres_timeout_s": timeout_s})
    async with database(config, "salt check") as quick:
        await check_salt(quick, salt)
    async with database(patient, "suppressions") as connection:
        yield SuppressionAdmin(connection), salt


@asynccontextmanager
async def api_admin() -> AsyncIterator[ApiAdmin]:
    """What the commands on keys and tenants of the accept API work with."""
    from streams.adapters.api_admin import ApiAdmin

    config = settings.load()
    logs.configure("keys", config.log_level)
    async with database(config, "keys") as connection:
        yield ApiAdmin(connection)


def number_of_partitions() -> int:
    """Of each topic keyed by recipient."""
    return settings.load().partitions


async def overview() -> list[Line]:
    """What is known of every part. Changes nothing."""
    from streams.adapters.overview_kafka import OverviewKafka
    from streams.adapters.overview_store import OverviewStore
    from streams.overview import Overview

    config = settings.load()
    logs.configure("status", "error")
    # What it says of servers that are away is a line of the overview.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    quick = config.model_copy(update={"postgres_timeout_s": min(config.postgres_timeout_s, 5.0)})
    names = topics(config)

    @asynccontextmanager
    async def store() -> AsyncIterator[OverviewStore]:
        async with database(quick, "status") as connection:
            yield OverviewStore(connection, slot=config.relay_slot)

    return await Overview(
        database=store,
        kafka=OverviewKafka(config.kafka_bootstrap_servers),
        groups={
            f"{names.prefix}sender": [names.outbox(lane) for lane in Lane],
            recipients_group(config): [names.delivery_events],
        },
        topics=names,
        slot=config.relay_slot,
        polls=config.relay_mode == "poll",
        staleness_s=config.sender_suppression_staleness_s,
    ).look()


@asynccontextmanager
async def operating(command: str) -> AsyncIterator[tuple[Database, Settings]]:
    """The database for one command of an operator, and the settings."""
    config = settings.load()
    logs.configure(command, config.log_level)
    async with database(config, command) as connection:
        yield connection, config


async def check_own_salt(connection: Database, config: Settings) -> None:
    """Misconfigured if the salt is not that of the database, so that an address would be looked up under a wrong key."""
    from streams.adapters.migrations import check_salt

    await check_salt(connection, config.salt())


@asynccontextmanager
async def outbox_admin(command: str) -> AsyncIterator[tuple[OutboxAdmin, Settings]]:
    """What the commands on single messages work with."""
    from streams.adapters.outbox_admin import OutboxAdmin

    async with operating(command) as (connection, config):
        yield OutboxAdmin(connection), config


def provider_region() -> str:
    """The region whose list the scheduler imports; Misconfigured if it does not."""
    from streams.adapters.ses_suppression_list import SesSuppressionList

    if not settings.load().provider_list:
        raise Misconfigured(
            "MAILSTREAMS_PROVIDER_LIST is false: the scheduler does not touch SES's list"
        )
    use_aws_region(os.environ)
    return SesSuppressionList().region


async def rebuild(*, apply: bool, told: Callable[[Progress], None]) -> Rebuilt:
    """Facts and suppressions once more from the topic, compared with the live ones, which are mended if asked to."""
    from streams.adapters.kafka_past import KafkaPast
    from streams.adapters.rebuild_store import PLANNER, LiveFactsStore, scratch_on
    from streams.rebuild import Rebuild

    config = settings.load()
    logs.configure("rebuild", config.log_level)
    patient = config.model_copy(update={"postgres_timeout_s": 3600.0})
    past = KafkaPast(
        config.kafka_bootstrap_servers,
        topic=topics(config).delivery_events,
        group=recipients_group(config),
    )
    try:
        async with (
            database(patient, "rebuild", PLANNER) as own,
            database(config, "rebuild live") as live,
            scratch_on(own) as scratch,
        ):
            run = Rebuild(past=past, scratch=scratch, live=LiveFactsStore(live), told=told)
            return await (run.apply() if apply else run.check())
    finally:
        await past.stop()


def recipients_group(config: Settings) -> str:
    """The consumer group of the stage recipients."""
    return f"{topics(config).prefix}recipients"
