"""Writes the dashboards beside it: `python ops/grafana/generate.py`. A test holds the files and this program together."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef

OVERVIEW: Final = Path(__file__).parent / "mailstreams-overview.json"
SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One graph: what it shows and what to do when it moves, its unit, and (legend, query) for each line."""

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]


def quantile(share: float, metric: str) -> str:
    return f"histogram_quantile({share}, sum by (le) (rate({metric}_bucket[$__rate_interval])))"


ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Does mail go out?": (
        Panel(
            title="Oldest pending mail",
            description="Age of the oldest mail that is due and not sent, by lane. Growing: look at readiness of sender and relay, and at table pause.",
            unit="s",
            queries=(
                ("{{lane}}", "max by (lane) (mailstreams_scheduler_oldest_pending_age_seconds)"),
            ),
        ),
        Panel(
            title="Outcomes of calls",
            description="What became of claimed rows, a second. Anything but accepted for long: look at the dead letters and at table pause.",
            unit="ops",
            queries=(
                (
                    "{{kind}}",
                    "sum by (kind) (rate(mailstreams_sender_outcomes_total[$__rate_interval]))",
                ),
            ),
        ),
        Panel(
            title="From commit to SES",
            description="From the time a mail is due to the start of its call.",
            unit="s",
            queries=(
                ("p50", quantile(0.5, "mailstreams_sender_due_to_call_seconds")),
                ("p99", quantile(0.99, "mailstreams_sender_due_to_call_seconds")),
            ),
        ),
        Panel(
            title="Waiting for a person or for evidence",
            description="Dead letters, calls of unknown outcome, and those that were held for a person. Dead letters above zero need one.",
            unit="short",
            queries=(
                ("dead letters", "max(mailstreams_scheduler_dead_letters)"),
                ("ambiguous", "max(mailstreams_scheduler_ambiguous_rows)"),
                ("undecided", "max(mailstreams_scheduler_undecided_rows)"),
            ),
        ),
        Panel(
            title="Sent twice",
            description="Messages that may have gone out twice or have, and what policies sent again. Proven ones: find out why the events came so late.",
            unit="short",
            queries=(
                ("{{kind}}", "max by (kind) (mailstreams_scheduler_duplicates)"),
                (
                    "sent again by {{policy}}",
                    "sum by (policy) (increase(mailstreams_scheduler_resent_rows_total[1h]))",
                ),
                ("contradicted", "sum(increase(mailstreams_outbox_contradicted_total[1d]))"),
            ),
        ),
    ),
    "Lag": (
        Panel(
            title="Replication slot",
            description="WAL that PostgreSQL keeps for the relay. Growing without end: no relay reads, or Kafka is away; the disk will fill.",
            unit="bytes",
            queries=(
                ("kept", "max(mailstreams_relay_slot_retained_bytes)"),
                ("not confirmed", "max(mailstreams_relay_slot_lag_bytes)"),
                ("until it may be lost", "max(mailstreams_relay_slot_safe_wal_bytes) < Inf"),
            ),
        ),
        Panel(
            title="Slot against its limit",
            description="Share of max_slot_wal_keep_size that the slot keeps; 0 without such a limit. At 100 % it is lost: a ticket at 50 %, a page at 80 %.",
            unit="percentunit",
            queries=(("kept", "max(mailstreams_relay_slot_keep_ratio)"),),
        ),
        Panel(
            title="From commit to topic",
            description="From a commit to Kafka's acknowledgement.",
            unit="s",
            queries=(
                ("p50", quantile(0.5, "mailstreams_relay_commit_to_acknowledge_seconds")),
                ("p99", quantile(0.99, "mailstreams_relay_commit_to_acknowledge_seconds")),
            ),
        ),
        Panel(
            title="Consumers",
            description="Records that a consumer has not read yet. Growing: the stage is behind, or stands still.",
            unit="short",
            queries=(("{{stage}}", "sum by (stage) (mailstreams_consumer_lag_records)"),),
        ),
        Panel(
            title="Suppressions are fresh",
            description="Age of the newest heartbeat in each sender's suppression table. Above the bound nothing is sent.",
            unit="s",
            queries=(("age", "max(mailstreams_sender_suppression_age_seconds)"),),
        ),
    ),
    "Feedback": (
        Panel(
            title="Bounces",
            description="New bounces a second, by how final they are and why.",
            unit="ops",
            queries=(
                (
                    "{{type}} {{reason}}",
                    "sum by (type, reason) (rate(mailstreams_recipients_bounces_total[$__rate_interval]))",
                ),
            ),
        ),
        Panel(
            title="Bounce and complaint rate",
            description="As Amazon counts them, over an hour. Bounces: review at 5 %, pause at 10 %; complaints: review at 0.1 %, pause at 0.5 %.",
            unit="percentunit",
            queries=(
                (
                    "bounces",
                    'sum(rate(mailstreams_recipients_rate_hard_bounces_total[1h])) / sum(rate(mailstreams_recipients_events_total{type="accepted"}[1h]))',
                ),
                (
                    "complaints",
                    'sum(rate(mailstreams_recipients_rate_complaints_total[1h])) / sum(rate(mailstreams_recipients_events_total{type="accepted"}[1h]))',
                ),
            ),
        ),
        Panel(
            title="SNS requests",
            description="Requests to the endpoint by what became of them. Nothing accepted any more: the feedback of SES is cut off.",
            unit="ops",
            queries=(
                (
                    "{{reason}}",
                    "sum by (reason) (rate(mailstreams_events_requests_total[$__rate_interval]))",
                ),
            ),
        ),
        Panel(
            title="Is anything accepted?",
            description="Requests and queued messages of SNS refused since one was last accepted. Not falling back to 0 for minutes: everything is refused.",
            unit="short",
            queries=(("{{instance}}", "mailstreams_events_refused_since_accepted"),),
        ),
        Panel(
            title="SQS messages",
            description="Messages read from queues by what became of them. Any of kind dead-letter: SNS had given up.",
            unit="ops",
            queries=(
                (
                    "{{kind}} {{reason}}",
                    "sum by (kind, reason) (rate(mailstreams_events_queue_messages_total[$__rate_interval])) > 0",
                ),
            ),
        ),
        Panel(
            title="Suppressions made",
            description="Rows of table suppression that events made or changed, a second.",
            unit="ops",
            queries=(
                ("made", "sum(rate(mailstreams_recipients_suppressions_total[$__rate_interval]))"),
            ),
        ),
        Panel(
            title="SES's suppression list",
            description="Entries that its import has read, and lifted recipients to delete from it. Without an address a person has to.",
            unit="short",
            queries=(
                ("imported", "max(mailstreams_scheduler_provider_import_entries)"),
                ("{{kind}}", "max by (kind) (mailstreams_scheduler_provider_unlistings)"),
            ),
        ),
        Panel(
            title="Calls about SES's suppression list",
            description="By what became of them. denied: the role lacks a permission; throttled: somebody else uses up the account's one call a second.",
            unit="ops",
            queries=(
                (
                    "{{call}} {{outcome}}",
                    "sum by (call, outcome) (rate(mailstreams_scheduler_provider_list_calls_total[$__rate_interval])) > 0",
                ),
            ),
        ),
    ),
    "Trouble": (
        Panel(
            title="Duties that fail",
            description="Steps that failed and are tried again. The log lines with action duty.failed say why.",
            unit="ops",
            queries=(
                (
                    "{{stage}} {{duty}} {{kind}}",
                    "sum by (stage, duty, kind) (rate(mailstreams_runtime_duty_failures_total[$__rate_interval]))",
                ),
            ),
        ),
        Panel(
            title="Rate",
            description="Permits taken a second, beside the rate that SES allows. Void permits were not used in time.",
            unit="ops",
            queries=(
                (
                    "{{use}}",
                    "sum by (use) (rate(mailstreams_sender_permits_total[$__rate_interval]))",
                ),
                ("allowed", "max(mailstreams_scheduler_account_rate_per_second)"),
            ),
        ),
        Panel(
            title="Circuit to SES",
            description="1 while SES fails for message after message and only probes are sent; readiness of the sender says why. It closes by itself.",
            unit="short",
            queries=(
                ("open", "max(mailstreams_sender_circuit_open)"),
                (
                    "opened",
                    "sum(increase(mailstreams_sender_circuit_opened_total[$__rate_interval]))",
                ),
                ("probes", "sum(increase(mailstreams_sender_probes_total[$__rate_interval]))"),
            ),
        ),
        Panel(
            title="Attempts left by dead senders",
            description="What the attempt journal told after a kill: released were never called and are sent; unknown wait for their events. Failures: no call begins, its disk is full or broken.",
            unit="short",
            queries=(
                (
                    "{{kind}}",
                    "sum by (kind) (increase(mailstreams_sender_journal_replayed_total[$__rate_interval]))",
                ),
                (
                    "failures",
                    "sum(increase(mailstreams_sender_journal_failures_total[$__rate_interval]))",
                ),
            ),
        ),
    ),
    "Does the API take mail?": (
        Panel(
            title="Answers of the accept API",
            description="Requests a second by what became of them. unavailable, overloaded: see PostgreSQL, or start more processes; failed: a bug of ours; rate-limited, quota-used-up: a tenant is at its bounds.",
            unit="reqps",
            queries=(
                (
                    "{{outcome}}",
                    "sum by (outcome) (rate(mailstreams_api_requests_total[$__rate_interval]))",
                ),
            ),
        ),
        Panel(
            title="E-mails that were posted",
            description="E-mails a second by what became of each. Many suppressed: somebody mails an old list.",
            unit="ops",
            queries=(
                (
                    "{{outcome}}",
                    "sum by (outcome) (rate(mailstreams_api_emails_total[$__rate_interval]))",
                ),
            ),
        ),
        Panel(
            title="Time to an answer of the API",
            description="From a request's head to its answer. Growing: PostgreSQL is slow, or the process has too much to do.",
            unit="s",
            queries=(
                ("p50", quantile(0.5, "mailstreams_api_answer_seconds")),
                ("p99", quantile(0.99, "mailstreams_api_answer_seconds")),
            ),
        ),
        Panel(
            title="Requests and connections of the API",
            description="Posts that wait for a statement (at MAILSTREAMS_API_MAX_WAITING further ones are answered 503), and open connections (at most 2,048 a process).",
            unit="short",
            queries=(
                ("waiting", "sum(mailstreams_api_waiting_requests)"),
                ("connections", "sum(mailstreams_api_connections)"),
            ),
        ),
    ),
}


def graph(panel: Panel) -> timeseries.Panel:
    built = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.description)
        .unit(panel.unit)
        .min(0)
        .datasource(SOURCE)
        .height(8)
        .span(6)
    )
    for legend, query in panel.queries:
        built.with_target(prometheus.Dataquery().expr(query).legend_format(legend))
    return built


def overview() -> dashboard.Dashboard:
    """Everything that says whether mail goes out, and why not."""
    built = (
        dashboard.Dashboard("mailstreams: overview")
        .uid("mailstreams-overview")
        .tags(["mailstreams"])
        .refresh("10s")
        .time("now-1h", "now")
        .with_variable(
            dashboard.DatasourceVariable("datasource").type("prometheus").label("Prometheus")
        )
    )
    for title, panels in ROWS.items():
        built.with_row(dashboard.Row(title))
        for panel in panels:
            built.with_panel(graph(panel))
    return built


def text() -> str:
    """The dashboard as it is checked in."""
    return JSONEncoder(sort_keys=True, indent=2).encode(overview().build()) + "\n"


if __name__ == "__main__":
    OVERVIEW.write_text(text(), encoding="utf-8")
