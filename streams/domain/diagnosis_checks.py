"""Every id that `mailstreams doctor` can tell: what is looked at, and what mends it. docs/doctor.md has the same table."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Check:
    """looks_at and remedy are sentences without their full stop."""

    id: str
    looks_at: str
    remedy: str


_ALTER_SLOTS: Final = "ALTER SYSTEM SET {} to a larger number, then restart PostgreSQL"

CHECKS: Final = (
    Check(
        "settings.legal",
        "every setting can be read and agrees with the others",
        "correct the variable that is named (docs/settings.md)",
    ),
    Check(
        "settings.salt",
        "the salt of the recipient keys is set",
        'set MAILSTREAMS_RECIPIENT_SALT to one secret for all stages, for example from "openssl rand -hex 32"',
    ),
    Check(
        "settings.unreadable-key",
        "the key of what is kept as unreadable is set and legal",
        "set MAILSTREAMS_UNREADABLE_KEY to 32 bytes in URL-safe base64: events, recipients and sender do not start without it",
    ),
    Check(
        "settings.sns-topics",
        "the topics whose events are taken are named",
        "set MAILSTREAMS_SNS_TOPICS to the ARNs of the SNS topics that your configuration set publishes to",
    ),
    Check(
        "settings.journal",
        "the directory of the sender's journal, if one is set, is there and can be written",
        "make the directory of MAILSTREAMS_SENDER_JOURNAL, and let the user of the sender write in it",
    ),
    Check(
        "aws.region",
        "a region is set",
        "set AWS_REGION to that of your SES identities",
    ),
    Check(
        "aws.credentials",
        "credentials are found where botocore looks for them",
        "give the process a role, a profile or the variables that botocore knows",
    ),
    Check(
        "postgres.reach",
        "PostgreSQL takes our connection",
        "start PostgreSQL, or correct MAILSTREAMS_POSTGRES_DSN, pg_hba.conf or the role",
    ),
    Check(
        "postgres.pooler",
        "whether a pooler such as PgBouncer stands between, and keeps the settings of a session",
        "set MAILSTREAMS_POSTGRES_POOLER to its pool_mode, transaction or session, or name PostgreSQL itself in MAILSTREAMS_POSTGRES_DSN",
    ),
    Check(
        "postgres.version",
        "PostgreSQL is 15 or newer",
        "upgrade PostgreSQL to 15 or newer",
    ),
    Check(
        "postgres.writable",
        "the server is a primary and takes changes",
        "connect to the primary, or turn default_transaction_read_only off",
    ),
    Check(
        "postgres.wal-level",
        "wal_level is logical",
        "ALTER SYSTEM SET wal_level = 'logical', then restart PostgreSQL",
    ),
    Check(
        "postgres.clock",
        "the clocks of the server and of this machine agree: heartbeats, leases and signatures need it",
        "let both machines follow the same time servers",
    ),
    Check(
        "postgres.slots",
        "max_replication_slots leaves room for the relay's slot",
        _ALTER_SLOTS.format("max_replication_slots"),
    ),
    Check(
        "postgres.wal-senders",
        "max_wal_senders leaves room for the relay and one that stands by",
        _ALTER_SLOTS.format("max_wal_senders"),
    ),
    Check(
        "postgres.durability",
        "what is committed survives a crash: fsync, full_page_writes, synchronous_commit",
        "turn fsync, full_page_writes and synchronous_commit on",
    ),
    Check(
        "postgres.standbys",
        "where there are standbys, a commit waits for one",
        "set synchronous_standby_names, for example to 'ANY 1 (*)': else a failover may forget claims, and mail is sent twice or not at all",
    ),
    Check(
        "postgres.schema",
        "every migration of this version is applied, and none of a newer one",
        'run "mailstreams migrate" of this version, or install the version that made the database',
    ),
    Check(
        "postgres.salt",
        "the salt is the database's",
        "set MAILSTREAMS_RECIPIENT_SALT to the one that was used for the first migrate",
    ),
    Check(
        "postgres.privileges",
        "the role may use the tables and functions of each stage",
        "GRANT what is named to the role of MAILSTREAMS_POSTGRES_DSN, or connect as their owner",
    ),
    Check(
        "postgres.partitions",
        "the day partitions of the feed are made ahead",
        'start a scheduler, or run "mailstreams migrate", both make them; rows in outbox_feed_default keep that day\'s from being made, which loses nothing',
    ),
    Check(
        "replication.role",
        "the role of the relay has the attribute REPLICATION",
        "ALTER ROLE ... REPLICATION (on managed servers grant the provider's role, such as rds_replication)",
    ),
    Check(
        "replication.reach",
        "PostgreSQL takes a replication connection",
        "correct MAILSTREAMS_POSTGRES_REPLICATION_DSN or pg_hba.conf, or raise max_wal_senders",
    ),
    Check(
        "replication.pooler",
        "no pooler stands in the way of the relay",
        "name PostgreSQL itself in MAILSTREAMS_POSTGRES_REPLICATION_DSN: PgBouncer cannot carry the relay's stream",
    ),
    Check(
        "replication.same",
        "both connections lead to the same database of the same server",
        "let MAILSTREAMS_POSTGRES_REPLICATION_DSN name the database of MAILSTREAMS_POSTGRES_DSN on its primary",
    ),
    Check(
        "replication.timeout",
        "a dead relay is noticed: the relay's connection gets the wal_sender_timeout that it asks for",
        "see that neither ALTER ROLE nor the options of the URL override wal_sender_timeout",
    ),
    Check(
        "publication.feed",
        "the publication exists and publishes every insert into the feed, under the name of the whole table",
        "CREATE (or ALTER) PUBLICATION mailstreams_feed FOR TABLE outbox_feed WITH (publish = 'insert', publish_via_partition_root = true); if it was missing, drop the relay's slot too, so that the feed is sent again",
    ),
    Check(
        "publication.age",
        "the publication is older than what the slot still has to tell",
        "if the relay ends with an error on the publication, stop it and drop its slot: the relay makes it anew and sends the whole feed again",
    ),
    Check(
        "slot.exists",
        "the relay's replication slot exists",
        'run "mailstreams migrate"; if a relay had one before, start the relay, which makes it anew and sends the whole feed again',
    ),
    Check(
        "slot.usable",
        "the slot is of this database and of pgoutput, and not invalidated",
        "start the relay, which makes an invalidated slot anew and sends the whole feed again, and raise max_slot_wal_keep_size; for a slot of another database or plugin set MAILSTREAMS_RELAY_SLOT",
    ),
    Check(
        "slot.holder",
        "who reads the slot",
        "start a relay; a reader that is no relay has to be ended first",
    ),
    Check(
        "slot.retention",
        "how much WAL the slot keeps, against max_slot_wal_keep_size and the free disk",
        "find out why the relay does not go on (its readiness, Kafka); without a limit set max_slot_wal_keep_size to what the disk can spare",
    ),
    Check(
        "slot.idle-timeout",
        "the slot of a relay that is away for a while is not invalidated (PostgreSQL 18 and newer)",
        "set idle_replication_slot_timeout to 0, or far longer than the relay may ever be away",
    ),
    Check(
        "slot.failover",
        "where there are standbys, the slot survives a failover (PostgreSQL 17 and newer)",
        "stop the relay, run ALTER_REPLICATION_SLOT <slot> (FAILOVER true) on a replication connection, name the standby's slot in synchronized_standby_slots, and set sync_replication_slots on the standby",
    ),
    Check(
        "relay.checkpoint",
        "a relay is at work: how old the position is that it stored last",
        "start a relay; /health/ready of one that runs says what it waits for",
    ),
    Check(
        "relay.polling",
        "in polling mode: the feed has its index, relays of this mode read every shard, and no slot is left over",
        'run "mailstreams migrate" with MAILSTREAMS_RELAY_MODE=poll, and start a relay with it',
    ),
    Check(
        "scheduler.heartbeat",
        "a scheduler is at work: when it put its last heartbeat into the feed",
        "start a scheduler; /health/ready of one that runs says what it waits for",
    ),
    Check(
        "kafka.reach",
        "the brokers answer",
        "start the brokers, or correct MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS; TLS and SASL are not built yet",
    ),
    Check(
        "kafka.topics",
        "every topic exists",
        'run "mailstreams migrate", which makes those that are missing; then "mailstreams suppressions republish" if the suppressions were among them',
    ),
    Check(
        "kafka.partitions",
        "every topic keyed by recipient has MAILSTREAMS_PARTITIONS partitions",
        'set MAILSTREAMS_PARTITIONS to what the topics have, if all have the same; else stop every stage, delete the topics that differ and run "mailstreams migrate"',
    ),
    Check(
        "kafka.cleanup",
        "the suppressions are compacted and never deleted by age, the other topics are deleted by age",
        "set cleanup.policy of the topic (kafka-configs.sh --alter): compact for the suppressions, delete for the others",
    ),
    Check(
        "kafka.retention",
        "records are kept as long as migrate asks for",
        "set retention.ms of the topic (kafka-configs.sh --alter)",
    ),
    Check(
        "kafka.copies",
        "replication factor and min.insync.replicas: acknowledged records survive the loss of a broker, and one may be away",
        "three replicas and min.insync.replicas = 2 for every topic",
    ),
    Check(
        "kafka.unclean",
        "a replica that is behind never becomes the leader",
        "set unclean.leader.election.enable = false for the topic",
    ),
    Check(
        "kafka.message-bytes",
        "max.message.bytes is large enough",
        "set max.message.bytes of the topic: 4194304 for *.unreadable, at least 1000000 for the others",
    ),
    Check(
        "kafka.replicas",
        "every partition has a leader and all its replicas in sync",
        "bring the brokers back that are named, and see that their disks have room",
    ),
    Check(
        "heartbeats.age",
        "the newest heartbeat of each partition of the suppressions is fresh: senders stop when it is not",
        'see scheduler.heartbeat and relay.checkpoint; if the topic lost its records, "mailstreams suppressions republish"',
    ),
    Check(
        "ses.reach",
        "SES answers",
        "see AWS_REGION, the endpoint, the proxy and the network",
    ),
    Check(
        "ses.account",
        "SES says that the account may send: sending enabled, enforcement status",
        "see the messages of Amazon in the SES console; PutAccountSendingAttributes switches sending on",
    ),
    Check(
        "ses.production",
        "the account is out of the sandbox",
        "ask for production access in the SES console: a sandbox sends to verified addresses only",
    ),
    Check(
        "ses.quota",
        "how much of the daily quota is used",
        "ask Amazon for a larger quota, or send less",
    ),
    Check(
        "ses.configuration-set",
        "the configuration set exists and may send",
        "make it in SES, or name another one in MAILSTREAMS_CONFIGURATION_SET",
    ),
    Check(
        "ses.event-destination",
        "the configuration set publishes every event that is needed to an SNS topic of MAILSTREAMS_SNS_TOPICS",
        "give the configuration set an enabled SNS event destination with SEND, REJECT, BOUNCE, COMPLAINT, DELIVERY, DELIVERY_DELAY and RENDERING_FAILURE, and name its topic in MAILSTREAMS_SNS_TOPICS",
    ),
)
REMEDIES: Final = {check.id: check.remedy for check in CHECKS}
