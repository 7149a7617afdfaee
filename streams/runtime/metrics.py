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
    "Requests under way. At the bound of 256 we answer 503: Kafka is slow, or more processes are needed.",
)
