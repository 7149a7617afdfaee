"""A worker: one stage of the product, started as the command starts it, with points, a journal and, if told so, one fault.

Everything is put around the product's own classes in this process; the product knows nothing of it.
"""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

STAGE_MODULES: Final = (
    "streams.cli", "streams.wiring", "streams.relay", "streams.sender", "streams.events", "streams.recipients",
    "streams.scheduler", "streams.suppression_table", "streams.intake", "streams.provider_list", "streams.queue_intake",
    "streams.adapters.facts_store", "streams.adapters.kafka", "streams.adapters.kafka_batches",
    "streams.adapters.kafka_group", "streams.adapters.kafka_pointers", "streams.adapters.kafka_publisher",
    "streams.adapters.kafka_suppressions", "streams.adapters.migrations", "streams.adapters.outbox_store",
    "streams.adapters.postgres", "streams.adapters.relay_store", "streams.adapters.replication",
    "streams.adapters.schedule_store", "streams.adapters.ses", "streams.adapters.ses_account", "streams.adapters.sns",
    "streams.adapters.sqs", "aiobotocore.session", "uvloop", "crash.points", "crash.mutations", "crash.journal",
)  # fmt: skip


def import_stages() -> None:
    """All that any stage needs."""
    for name in STAGE_MODULES:
        importlib.import_module(name)
    _keep_loaded_files()


def _keep_loaded_files() -> None:
    """botocore reads its models from disk for every new session; here from memory, once for all workers."""
    from botocore.loaders import JSONFileLoader
    from botocore.session import get_session

    original = JSONFileLoader.load_file
    kept: dict[str, Any] = {}

    def load_file(self: Any, path: str) -> Any:
        if path not in kept:
            kept[path] = original(self, path)
        return kept[path]

    JSONFileLoader.load_file = load_file
    session = get_session()
    session.get_service_model("sesv2")
    session.get_component("endpoint_resolver")
    for known in ("partitions", "sdk-default-configuration"):
        session.get_component("data_loader").load_data(known)
    session.get_component("data_loader").load_service_model("sesv2", "endpoint-rule-set-1")


def run(order: dict[str, Any]) -> int:
    """`mailstreams <arguments>` in this process; the exit code."""
    stage = order["argv"][0]
    if order.get("trap"):
        from crash import points
        from crash.journal import Journal
        from crash.mutations import apply
        from crash.traps import Trap

        journal = Journal(Path(order["journal"]))
        points.install(stage, Trap(Path(order["trap"]), stage), journal)
        if order.get("mutation"):
            apply(order["mutation"], stage)
    return command(order["argv"])


def command(argv: Sequence[str]) -> int:
    """The command as a person would give it; its exit code."""
    from streams import cli

    sys.argv = ["mailstreams", *argv]
    try:
        cli.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
