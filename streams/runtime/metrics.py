"""Every metric of mailstreams: what it means, and what to do when it moves. Labels come from closed sets only."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

SECONDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    300,
    900,
)

# Every process ------------------------------------------------------------------------------------------------------

DUTY_FAILURES = Counter(
    "mailstreams_runtime_duty_failures_total",
    "Steps of a duty that failed and are tried again. Growing: a server is away (kind Unavailable) or we have a bug; "
    "the log line with action duty.failed says which.",
    ["stage", "duty", "kind"],
)
UNREADABLE_RECORDS = Counter(
    "mailstreams_consumer_unreadable_records_total",
    "Records that a consumer put aside in <topic>.unreadable. Any is a producer's bug: look at its headers.",
    ["stage"],
)
HTTP_MALFORMED = Counter(
    "mailstreams_runtime_malformed_requests_total",
    "Requests to a port of this process that were no HTTP and were answered 400. Growing: scanners, or a proxy that breaks requests.",
)
CONSUMER_LAG = Gauge(
    "mailstreams_consumer_lag_records",
    "Records of its partitions that a consumer has not read yet. Growing over minutes: the stage is behind, or stands still.",
    ["stage"],
)

# Relay --------------------------------------------------------------------------------------------------------------

RELAY_RECORDS = Counter(
    "mailstreams_relay_records_total",
    "Records that Kafka acknowledged, by kind of topic. Standing still while rows are committed: see the relay's readiness.",
    ["topic"],
)
RELAY_TRANSACTIONS = Counter(
    "mailstreams_relay_transactions_total",
    "Transactions whose end was read from the slot, replayed ones again.",
)
RELAY_BATCHES = Counter(
    "mailstreams_relay_batches_total",
    "Batches that Kafka acknowledged. Records divided by batches is small when traffic is low, and should grow with it.",
)
RELAY_IN_FLIGHT_ROWS = Gauge(
    "mailstreams_relay_in_flight_rows", "Rows that were read and are not acknowledged by Kafka yet."
)
RELAY_IN_FLIGHT_BYTES = Gauge(
    "mailstreams_relay_in_flight_bytes",
    "Bytes of records that are not acknowledged yet. At the bound (relay_max_in_flight_bytes) for long: Kafka is the bottleneck.",
)
RELAY_LATENCY = Histogram(
    "mailstreams_relay_commit_to_acknowledge_seconds",
    "From the commit of a transaction to Kafka's acknowledgement, one observation a batch, of its oldest row. Growing: "
    "the relay is behind, or Kafka is slow.",
    buckets=SECONDS,
)
RELAY_OLDEST_AGE = Gauge(
    "mailstreams_relay_oldest_unacknowledged_age_seconds",
    "Age of the oldest transaction that was read and waits for Kafka; 0 if none does. Growing: Kafka does not acknowledge.",
)
RELAY_SLOT_LAG = Gauge(
    "mailstreams_relay_slot_lag_bytes",
    "WAL behind the position that the relay has confirmed. Growing without end: Kafka is away or slower than the database.",
)
RELAY_SLOT_RETAINED = Gauge(
    "mailstreams_relay_slot_retained_bytes",
    "WAL that PostgreSQL keeps for the slot; beside a long transaction more than the lag. Growing without end: the disk will fill.",
)
RELAY_SLOT_SHARE = Gauge(
    "mailstreams_relay_slot_keep_ratio",
    "The share of max_slot_wal_keep_size that the slot keeps; 0 without such a limit. At 1 the slot is lost, and the whole feed "
    "is sent again: see why the relay does not go on, or raise the limit.",
)
RELAY_SLOT_SAFE = Gauge(
    "mailstreams_relay_slot_safe_wal_bytes",
    "WAL that may be written before PostgreSQL may invalidate the slot (max_slot_wal_keep_size); +Inf without such a limit.",
)
RELAY_STREAMING = Gauge(
    "mailstreams_relay_streaming", "1 while this process reads the slot, 0 while it stands by."
)
RELAY_REPLAYS = Counter(
    "mailstreams_relay_replays_total",
    "Streams that failed and were begun again from the slot; what was unconfirmed is sent twice. The log lines with "
    "action duty.failed say why.",
)
RELAY_REBUILDS = Counter(
    "mailstreams_relay_slot_rebuilds_total",
    "Slots that were lost and made anew, with the whole feed sent again. Any: find out who dropped or invalidated the slot.",
)
RELAY_REBUILT_ROWS = Counter(
    "mailstreams_relay_rebuilt_rows_total",
    "Rows of the feed that were sent again after a lost slot.",
)
RELAY_ANNOUNCED = Counter(
    "mailstreams_relay_suppressions_announced_total",
    "Recipients put into the feed again, since their suppression was on its way when its producer was given up (internal). Follows "
    "mailstreams_relay_producer_replacements_total.",
)
RELAY_PRODUCERS = Counter(
    "mailstreams_relay_producer_replacements_total",
    "Kafka producers that were given up with records in flight. Growing: see the log lines with action duty.failed.",
)
RELAY_MODE = Gauge(
    "mailstreams_relay_mode",
    "1 for the mode that this relay is set to: wal or poll (MAILSTREAMS_RELAY_MODE). All relays of a database have the same.",
    ["mode"],
)
RELAY_SHARDS = Gauge(
    "mailstreams_relay_shards",
    "Shards of the recipient keys that this relay reads in polling mode, of MAILSTREAMS_RELAY_SHARDS. The sum over all relays is less for "
    "longer than 15 s: a relay is missing.",
)
RELAY_REMOVED = Counter(
    "mailstreams_relay_removed_rows_total",
    "Rows removed from the feed in polling mode, since Kafka has them. Standing still while records are acknowledged: see PostgreSQL.",
)
RELAY_REFUSED = Counter(
    "mailstreams_relay_refused_rows_total",
    "Rows that can never be Kafka records and were set aside in table relay_refused. Any needs a person.",
    ["reason"],
)

# Events ---------------------------------------------------------------------------------------------------------------

EVENTS_REQUESTS = Counter(
    "mailstreams_events_requests_total",
    "Requests to POST /sns by what became of them. Anything but accepted growing: bad-signature, unknown-topic and "
    "bad-certificate-url are strangers, or our own set-up if nothing is accepted any more; unsubscribed: somebody removed the "
    "subscription, subscribe again; unreadable: look into mail.delivery-events.unreadable; the 503 reasons: a part of ours is away.",
    ["reason"],
)
EVENTS_LAST_ACCEPTED = Gauge(
    "mailstreams_events_last_accepted_timestamp_seconds",
    "When a request was last accepted. Old while requests arrive: everything is refused, the feedback of SES is cut off.",
)
EVENTS_REFUSED_SINCE = Gauge(
    "mailstreams_events_refused_since_accepted",
    "Requests and queued messages answered other than 200 since one last was. A few: strangers. Not falling back to 0 for "
    "minutes: everything is refused, the log lines with action events.refused name the reason.",
)
EVENTS_UNSUBSCRIBED = Counter(
    "mailstreams_events_unsubscribed_total",
    "Genuine notices that our subscription of a topic was removed. Any: no more events come, a person has to decide.",
)
EVENTS_QUEUE_MESSAGES = Counter(
    "mailstreams_events_queue_messages_total",
    "Messages read from SQS by kind of queue (intake, dead-letter) and what became of them, the reasons as for requests. Those with "
    "a 4xx reason were set aside in mail.delivery-events.unreadable and deleted; those with a 503 reason come again.",
    ["kind", "reason"],
)
EVENTS_CONNECTIONS = Gauge(
    "mailstreams_events_connections",
    "Open connections of the endpoint. At the bound of 2,048: strangers hold connections open, or more processes are needed.",
)
EVENTS_CONNECTIONS_CLOSED = Counter(
    "mailstreams_events_connections_closed_total",
    "Connections that we closed: slow (no complete head within 10 s), idle (125 s after an answer, normal), displaced (the bound was "
    "reached, it had waited longest), refused (the bound was reached and all were at work). slow, displaced: strangers hold connections.",
    ["why"],
)
API_REQUESTS = Counter(
    "mailstreams_api_requests_total",
    "Requests to the accept API by route and what became of them. unavailable or overloaded: PostgreSQL is away or slow, or more "
    "processes are needed; failed: a bug of ours; rate-limited, quota-used-up: a tenant is at its bounds.",
    ["route", "outcome"],
)
API_EMAILS = Counter(
    "mailstreams_api_emails_total",
    "E-mails of posted requests: accepted, known (their dedup key was used before), suppressed, no-template, or replayed under an "
    "Idempotency-Key. Many suppressed: somebody mails an old list.",
    ["outcome"],
)
API_ANSWER_SECONDS = Histogram(
    "mailstreams_api_answer_seconds",
    "From a request's head to its answer. Growing: PostgreSQL is slow, or the process has too much to do.",
    ["route"],
    buckets=SECONDS,
)
API_WAITING = Gauge(
    "mailstreams_api_waiting_requests",
    "Posted requests that wait for a statement. At the bound (api_max_waiting): further ones are answered 503.",
)
API_STATEMENT_REQUESTS = Histogram(
    "mailstreams_api_statement_requests",
    "Posted requests that shared one statement. Growing with traffic is as it should be.",
    buckets=(1, 2, 5, 10, 20, 50, 100, 200),
)
API_CONNECTIONS = Gauge(
    "mailstreams_api_connections",
    "Open connections of the accept API. At the bound of 2,048: strangers hold connections open, or more processes are needed.",
)
API_CONNECTIONS_CLOSED = Counter(
    "mailstreams_api_connections_closed_total",
    "Connections that we closed: slow (no complete head within 10 s), idle (125 s after an answer, normal), displaced (the bound was "
    "reached, it had waited longest), refused (the bound was reached and all were at work). slow, displaced: strangers hold connections.",
    ["why"],
)
EVENTS_NOTICES = Counter(
    "mailstreams_events_notices_total",
    "Genuine notifications by what they were. unknown-type or unreadable: SES has something new; "
    "inbound: a receipt rule publishes to the event topic, give it a topic of its own.",
    ["kind"],
)
EVENTS_PUBLISHED = Counter(
    "mailstreams_events_published_total",
    "Delivery events acknowledged by Kafka, repetitions counted again. rejected: SES found a virus in mail of ours.",
    ["type"],
)
EVENTS_CERTIFICATE_FETCHES = Counter(
    "mailstreams_events_certificate_fetches_total",
    "Fetches of a signing certificate: a few a year. unavailable growing: this host cannot reach Amazon's, or somebody "
    "sends made-up certificate URLs.",
    ["outcome"],
)
EVENTS_CONFIRMATIONS = Counter(
    "mailstreams_events_confirmations_total",
    "Calls of ConfirmSubscription. failed growing: credentials or permission sns:ConfirmSubscription are missing.",
    ["outcome"],
)
EVENTS_ANSWER_SECONDS = Histogram(
    "mailstreams_events_answer_seconds",
    "From the head of a request to its answer. Near 15 s SNS gives up and comes again: look at Kafka.",
    buckets=SECONDS,
)
EVENTS_AGE_SECONDS = Histogram(
    "mailstreams_events_age_seconds",
    "From the Timestamp of SNS to our reading of it. Minutes: SNS is repeating after an outage.",
    buckets=SECONDS,
)
EVENTS_AHEAD = Counter(
    "mailstreams_events_ahead_of_our_clock_total",
    "Genuine notifications from more than five minutes in the future. Any: the clock of this host is wrong.",
)
EVENTS_IN_FLIGHT = Gauge(
    "mailstreams_events_in_flight",
    "Requests under way. At the bound of 1,024 we answer 503: Kafka is slow, or more processes are needed.",
)

# Recipients -----------------------------------------------------------------------------------------------------------

CONSUMER_GAP = Counter(
    "mailstreams_consumer_gap_records_total",
    "Records that were gone from the topic before this consumer read them: retention was shorter than its outage. "
    "Any: facts are missing; give the topic a longer retention, and find out why the consumer was behind.",
    ["stage"],
)
CONSUMER_RESETS = Counter(
    "mailstreams_consumer_position_resets_total",
    "Partitions whose end was before our committed position, read again from their start: the topic was made anew or lost its end.",
    ["stage"],
)
CONSUMER_HALTED = Gauge(
    "mailstreams_consumer_halted",
    "1 while a consumer reads nothing more, since too many records in a short time were unreadable: we, or the writer of "
    "the topic, have a bug. Look at <topic>.unreadable and the log, mend it, start again.",
    ["stage"],
)
RECIPIENTS_EVENTS = Counter(
    "mailstreams_recipients_events_total",
    "New facts by their type, each counted once however often it arrives.",
    ["type"],
)
RECIPIENTS_BOUNCES = Counter(
    "mailstreams_recipients_bounces_total",
    "New bounces by how final they are and why. reputation or policy growing: a provider blocks us, not the addresses; "
    "content-refused or message-too-large: our own mail is at fault.",
    ["type", "reason"],
)
RECIPIENTS_COMPLAINTS = Counter(
    "mailstreams_recipients_complaints_total",
    "New complaints by the type that the mailbox provider gave (unknown: none).",
    ["type"],
)
RECIPIENTS_RATE_BOUNCES = Counter(
    "mailstreams_recipients_rate_hard_bounces_total",
    "Bounces as Amazon counts them for the reputation of the account. Divided by accepted messages: 5 % is a review, 10 % a pause.",
)
RECIPIENTS_RATE_COMPLAINTS = Counter(
    "mailstreams_recipients_rate_complaints_total",
    "Complaints as Amazon counts them, one a complaint however many people it names. 0.1 % is a review, 0.5 % a pause.",
)
RECIPIENTS_UNMATCHED = Counter(
    "mailstreams_recipients_unmatched_events_total",
    "New facts that were kept without a message of ours. Growing: somebody else sends with our configuration set or identity, "
    "or notifications come without our tags.",
)
RECIPIENTS_UNMATCHED_NOW = Gauge(
    "mailstreams_recipients_unmatched_events_now",
    "Facts of the last three days that are kept without a message of ours, the same in every replica. Not back at zero minutes after "
    "the last send: as for mailstreams_recipients_unmatched_events_total.",
)
RECIPIENTS_MATCHED = Counter(
    "mailstreams_recipients_matched_later_total",
    "Facts that found their message, or its attempt, after they had been kept.",
)
RECIPIENTS_SUPPRESSIONS = Counter(
    "mailstreams_recipients_suppressions_total",
    "Rows of table suppression that events made or changed.",
)
RECIPIENTS_WITHDRAWN = Counter(
    "mailstreams_recipients_suppressions_withdrawn_total",
    "Rows of table suppression that events took away: a delivery ended a streak of soft bounces, or what was for all tenants is its "
    "tenant's now.",
)
RECIPIENTS_FORGOTTEN = Counter(
    "mailstreams_recipients_forgotten_attempts_total",
    "Facts about attempts that the database does not know. Any: a failover lost what was committed; use synchronous replication.",
)
RECIPIENTS_SECONDS = Histogram(
    "mailstreams_recipients_fold_seconds",
    "Transaction of one batch of events. Growing towards a second: PostgreSQL is slow, or rows are locked for long.",
    buckets=SECONDS,
)
FOLD_CONFLICTS = Counter(
    "mailstreams_recipients_conflicts_total",
    "Folds that were tried again after a deadlock or a serialisation failure. A few are normal with several replicas.",
)
SETTLED = Counter(
    "mailstreams_outbox_settled_total",
    "Rows that evidence moved, by where from. ambiguous: a call of unknown outcome turned out taken; held: the same after a person "
    "was asked; pending: an older attempt had been taken; refused: proven not taken, it is tried again.",
    ["stage", "origin"],
)
DUPLICATES = Counter(
    "mailstreams_outbox_duplicates_total",
    "Calls that SES is now known to have taken beside another one of their message. Any: a person or a policy had it sent again "
    'whose first call was taken; "mailstreams duplicates" lists them.',
    ["stage"],
)
INTAKE_REPORTS = Counter(
    "mailstreams_intake_watch_reports_total",
    "Reports of a process that takes in events, which policy resend-when-silent rests on: written, or failed (tried again in some "
    "seconds). failed growing: PostgreSQL cannot be reached from this stage, and rows of that policy are held instead.",
    ["stage", "outcome"],
)
CONTRADICTED = Counter(
    "mailstreams_outbox_contradicted_total",
    "Messages that a person settled as taken by SES, and whose call is now proven not to be: they were not sent. Any: see the "
    "audit log, and insert them anew if they are still wanted.",
    ["stage"],
)

# Scheduler ------------------------------------------------------------------------------------------------------------

SCHEDULER_POINTERS = Counter(
    "mailstreams_scheduler_pointers_total",
    "Pointers put into the feed: due (scheduled mail, retries, paused rows) or sweep (pending for long without a wake-up). "
    "sweep growing while senders keep up: pointers get lost between the feed and the senders, look at relay and topics.",
    ["why"],
)
SCHEDULER_EXPIRED_ROWS = Counter(
    "mailstreams_scheduler_expired_rows_total",
    "Rows whose expires_at passed while they waited in email_due. Growing: what holds them back lasts longer than they may wait.",
)
SCHEDULER_EXPIRED_LEASES = Counter(
    "mailstreams_scheduler_expired_leases_total",
    "Calls whose outcome was never written: the sender died, or was cut off from PostgreSQL. Each is ambiguous until its event comes.",
)
SCHEDULER_HELD = Counter(
    "mailstreams_scheduler_held_rows_total",
    "Ambiguous rows given to a person, since no event came in time. Any: decide them, and find out why the events are missing.",
)
SCHEDULER_RESENT = Counter(
    "mailstreams_scheduler_resent_rows_total",
    "Rows of unknown outcome that were sent again by their policy. Each may be a duplicate. Growing: calls time out; look at the "
    "connection to SES, and whether the events of SES come in.",
    ["policy"],
)
SCHEDULER_DUPLICATES = Gauge(
    "mailstreams_scheduler_duplicates",
    'Rows of table email_duplicate, at most 100,000 each: possible (sent again by a policy or a person) or proven. "mailstreams '
    'duplicates" lists them.',
    ["kind"],
)
SCHEDULER_HEARTBEATS = Counter(
    "mailstreams_scheduler_heartbeats_total",
    "Rounds of heartbeats put into the feed by this replica.",
)
SCHEDULER_EXPIRED_SUPPRESSIONS = Counter(
    "mailstreams_scheduler_expired_suppressions_total",
    "Suppressions removed since their time was over.",
)
SCHEDULER_PARTITIONS = Counter(
    "mailstreams_scheduler_feed_partitions_total",
    "Attempts to make the feed's next partitions: made, or busy (tried again). busy for days: rows go to the default partition.",
    ["outcome"],
)
SCHEDULER_ACCOUNT_READS = Counter(
    "mailstreams_scheduler_account_reads_total",
    "GetAccount calls by outcome. unreachable or nonsense growing: the rate that was read last stays in use; check credentials, "
    "region and permission ses:GetAccount.",
    ["outcome"],
)
SCHEDULER_ACCOUNT_RATE = Gauge(
    "mailstreams_scheduler_account_rate_per_second",
    "Recipients a second that senders may use: MaxSendRate times rate_safety_factor, as this replica read it last.",
)
SCHEDULER_ACCOUNT_STOPPED = Gauge(
    "mailstreams_scheduler_account_stopped",
    "1 while SES says that the account may not send, as this replica read it last. A person has to act: see table pause.",
)
SCHEDULER_OLDEST_PENDING = Gauge(
    "mailstreams_scheduler_oldest_pending_age_seconds",
    "Age of the oldest pending row of the lane, since it was due. An estimate: found by walking the ids forward once, so a row "
    "that was scheduled or in a sender's hands when it was passed is seen as due backlog only. Growing: senders are behind, "
    "paused, or not ready.",
    ["lane"],
)
SCHEDULER_DUE = Gauge(
    "mailstreams_scheduler_due_rows",
    "Rows of email_due that are due and not in the feed yet, at most 100,000. Standing above zero: the scheduler is behind.",
)
SCHEDULER_LEASES = Gauge("mailstreams_scheduler_leases", "Calls under way now, by their leases.")
SCHEDULER_AMBIGUOUS = Gauge(
    "mailstreams_scheduler_ambiguous_rows",
    "Calls of unknown outcome that wait for evidence. Growing: calls time out, or events do not come in.",
)
SCHEDULER_UNDECIDED = Gauge(
    "mailstreams_scheduler_undecided_rows",
    "Calls of unknown outcome that were given to a person and have no evidence yet.",
)
SCHEDULER_DEAD_LETTERS = Gauge(
    "mailstreams_scheduler_dead_letters", "Rows of table dead_letter. Each needs a person."
)
SCHEDULER_FEED_DROPS = Counter(
    "mailstreams_scheduler_feed_drops_total",
    "Attempts to drop the feed's oldest day: dropped, unconfirmed (the slot is not there, not in use, or not past it), or busy "
    "(somebody reads or writes there for long; tried again).",
    ["outcome"],
)
SCHEDULER_FEED_BEHIND = Gauge(
    "mailstreams_scheduler_feed_behind_seconds",
    "How long the oldest day of the feed is kept beyond feed_keep_s. More than a day: the slot does not move, or a transaction "
    "that uses the feed stays open; the table grows until that ends.",
)
SCHEDULER_PURGED = Counter(
    "mailstreams_scheduler_purged_rows_total",
    "Rows removed by age, by table; contents: messages that were emptied.",
    ["table"],
)
SCHEDULER_OLDEST_MESSAGE = Gauge(
    "mailstreams_scheduler_oldest_message_age_seconds",
    "Age of the oldest row of email_outbox. Far above retention_messages_s: it waits for a person (dead letters), or purging is behind.",
)
SCHEDULER_OLDEST_TRANSACTION = Gauge(
    "mailstreams_scheduler_oldest_transaction_age_seconds",
    "Age of the oldest transaction, prepared ones too, whose snapshot keeps dead rows from being removed. Growing: end the report "
    "or session that pg_stat_activity or pg_prepared_xacts names. Without pg_monitor only sessions of our own role are seen.",
)
SCHEDULER_XMIN_BEHIND = Gauge(
    "mailstreams_scheduler_xmin_behind_transactions",
    "How many transactions ago dead rows stopped being removed, by snapshots, prepared transactions, standbys and slots.",
)
SCHEDULER_HEARTBEAT_AGE = Gauge(
    "mailstreams_scheduler_heartbeat_age_seconds",
    "Since the newest heartbeat that any scheduler put into the feed. More than some seconds: no scheduler works, and soon "
    "senders stop, since they cannot tell whether their suppressions are fresh.",
)

PROVIDER_LIST_CALLS = Counter(
    "mailstreams_scheduler_provider_list_calls_total",
    "Calls about SES's account-level suppression list: list (its import) and unlist (what was lifted). denied: the role lacks "
    "ses:ListSuppressedDestinations or ses:DeleteSuppressedDestination, so that mail to lifted addresses stays undelivered; throttled "
    "growing: somebody else uses up the one call a second that the account has; token-refused growing: the import begins anew again and again.",
    ["call", "outcome"],
)
PROVIDER_IMPORTED = Counter(
    "mailstreams_scheduler_provider_list_imported_total",
    "Entries of SES's list that were read: suppressed now, known before, lifted here since, or unusable (no address that mail could go to).",
    ["entry"],
)
PROVIDER_IMPORT_ENTRIES = Gauge(
    "mailstreams_scheduler_provider_import_entries",
    "Entries of SES's list that its import has read so far. Standing still while the import is not finished: see the calls.",
)
PROVIDER_IMPORT_FINISHED = Gauge(
    "mailstreams_scheduler_provider_import_finished",
    "1 once SES's list is imported. 0 for hours: it is long (1,000 entries a call), or the calls fail.",
)
PROVIDER_UNLISTINGS = Gauge(
    "mailstreams_scheduler_provider_unlistings",
    "Recipients to delete from SES's list after a lift: waiting for their call, or without-address: nobody told the address, so delete "
    "it in the console of SES, or lift it again by its address.",
    ["kind"],
)

# Sender ---------------------------------------------------------------------------------------------------------------

SENDER_CLAIMS = Counter(
    "mailstreams_sender_claims_total",
    "Verdicts on pointers, of reading, closing and claiming. settled is normal after a replay; busy or invisible growing: "
    "somebody holds rows or transactions open for long; paused: see table pause.",
    ["verdict"],
)
SENDER_OUTCOMES = Counter(
    "mailstreams_sender_outcomes_total",
    "Outcomes of claimed rows. unknown growing: calls end without an answer, look at the network; throttled: the rate is too high or "
    "somebody else sends; account-stop, misconfigured: see table pause; released growing: slots are missed or leases too short.",
    ["kind"],
)
SENDER_ERRORS = Counter(
    "mailstreams_sender_errors_total",
    "Calls that were not accepted, by error class. The dead letters and the docs say what to change for each.",
    ["error_class"],
)
SENDER_RECORDED = Counter(
    "mailstreams_sender_recorded_outcomes_total",
    "Outcomes as PostgreSQL took them. stale: they came after their lease had run out and are kept as evidence; growing: "
    "leases are too short or the sender stands still at times. repeated: an answer of PostgreSQL was lost.",
    ["recorded"],
)
SENDER_LOST_CLAIMS = Counter(
    "mailstreams_sender_lost_claims_total",
    "Claims whose answer was lost and that were given back before anything else. A few with every outage of PostgreSQL.",
)
SENDER_JOURNAL_FAILURES = Counter(
    "mailstreams_sender_journal_failures_total",
    "Records of the attempt journal that could not be written. Growing: its file system is full or broken, and no call begins.",
)
SENDER_JOURNAL_REPLAYED = Counter(
    "mailstreams_sender_journal_replayed_total",
    "Attempts that a dead process left in its attempt journal, by what the next one wrote: released (proven never called), unknown, "
    "or the answer that it had. A few with every kill; growing otherwise: the sender does not live long.",
    ["kind"],
)
SENDER_CIRCUIT_OPEN = Gauge(
    "mailstreams_sender_circuit_open",
    "1 while SES fails and only probes are sent. Readiness of the sender says since when and why; it closes by itself.",
)
SENDER_CIRCUIT_OPENED = Counter(
    "mailstreams_sender_circuit_opened_total",
    "Times that 20 calls in a row ended unknown or unreachable, counted by the replica that saw the last of them.",
)
SENDER_PROBES = Counter(
    "mailstreams_sender_probes_total",
    "Messages sent to see whether SES works again while the circuit was open.",
)
SENDER_BULK_CALLS = Counter(
    "mailstreams_sender_bulk_calls_total",
    "Bulk calls of SES by what they ended with (internal), with MAILSTREAMS_SENDER_BULK_CALLS alone. answered: entry by entry; after each of the "
    "others messages go out one by one for a while: throttled, refused as a whole, unknown, unreached.",
    ["result"],
)
SENDER_IN_FLIGHT = Gauge(
    "mailstreams_sender_calls_in_flight",
    "Claimed rows whose call waits for its slot or is under way. At sender_max_in_flight for long: SES answers slowly, or allow more.",
)
SENDER_QUEUED = Gauge(
    "mailstreams_sender_queued_pointers",
    "Pointers that wait in memory. At 5,000 a lane fetching pauses: the rate, a pause or PostgreSQL holds them back.",
    ["lane"],
)
SENDER_CLAIM_LATENCY = Histogram(
    "mailstreams_sender_due_to_claim_seconds",
    "From the time a message is due (its commit, if it is due at once) to its claim.",
    buckets=SECONDS,
)
SENDER_CALL_LATENCY = Histogram(
    "mailstreams_sender_due_to_call_seconds",
    "From the time a message is due (its commit, if it is due at once) to the start of its call of SES.",
    buckets=SECONDS,
)
SENDER_CALL_WINDOW = Histogram(
    "mailstreams_sender_claim_to_call_seconds",
    "From the answer of the claim to the start of the call: the window in which a new suppression is seen by the table alone.",
    buckets=SECONDS,
)
SENDER_CALL_SECONDS = Histogram(
    "mailstreams_sender_call_seconds", "One call of SES, with its answer.", buckets=SECONDS
)
SENDER_PERMITS = Counter(
    "mailstreams_sender_permits_total",
    "Permits of the shared rate, by use: granted, and void (granted, then not used in time). Void more than some percent: the "
    "sender or PostgreSQL is slow, and the rate is not reached.",
    ["use"],
)
SENDER_SUPPRESSION_ENTRIES = Gauge(
    "mailstreams_sender_suppression_entries",
    "Suppressed recipients in memory, of the partitions that are owned.",
)
SENDER_SUPPRESSION_OFFSET = Gauge(
    "mailstreams_sender_suppression_offset",
    "Position in each owned partition of the suppression topic up to which records are applied.",
    ["partition"],
)
SENDER_SUPPRESSION_AGE = Gauge(
    "mailstreams_sender_suppression_age_seconds",
    "Age of the newest heartbeat applied, of the owned partition that is furthest behind. Above sender_suppression_staleness_s "
    "nothing is sent: look at scheduler and relay.",
)
SENDER_SUPPRESSIONS_ANNOUNCED = Counter(
    "mailstreams_sender_suppressions_announced_total",
    "Recipients put into the feed again, since the last record of theirs in the topic was an older one (internal). Now and then "
    "after a relay replaced its producer; without an end, look whether outbox_feed_seq went back.",
)
SENDER_REJOINS = Counter(
    "mailstreams_sender_rejoins_total",
    "Times the consumer group was joined anew since pointers waited and none was read (internal). A broker or coordinator "
    "that answers some requests and not others.",
)
SENDER_SUPPRESSION_RECORDS = Counter(
    "mailstreams_sender_suppression_records_total",
    "Records of the suppression topic by what they did. older: behind a newer one of its key, the relay replaced a producer; "
    "unreadable: a bug of whoever writes the topic, the claim still protects these recipients.",
    ["applied"],
)
