"""Runs a ses_send variant: rows through the real insert, real servers and stages, and a fake SES that answers by its list."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from streams.domain.errors import BadMessage
from streams.enqueue import enqueue
from tests.cases import send_always, send_checks
from tests.cases.differences import Difference, report
from tests.cases.loading import Group, Variant
from tests.cases.send_found import Found
from tests.cases.send_run import Run, emails, running
from tests.cases.send_scene import (
    SendScene,
)
from tests.cases.ses_script import Script

TOLD_WITHIN_S: Final = 30.0


async def run_variant(scene: SendScene, group: Group) -> list[str]:
    """The report of what is not as expected; empty if nothing is."""
    (variant,) = group.variants
    refused = await refusal(scene, variant)
    if refused is not None:
        differences = _nothing_inserted(variant, refused)
    else:
        async with running(scene, variant) as run:
            await run.insert()
            found = await run.observe()
            differences = send_checks.observed(variant, found, run.script)
            if "deliveries" in variant:
                differences += await run.deliver(found)
            differences += await _after(run, variant["expect"])
            differences += await _always(run, found)
    return [report(group.file, variant["name"], differences)] if differences else []


async def refusal(scene: SendScene, variant: Variant) -> BadMessage | None:
    """Why the insert is refused, or None: then it is made again where it counts."""
    async with scene.trying:
        attempt = scene.trial.transaction()
        await attempt.start()
        try:
            for email in emails(variant):
                await enqueue(scene.trial, email)
        except BadMessage as error:
            return error
        finally:
            await attempt.rollback()
    return None


def _nothing_inserted(variant: Variant, refused: BadMessage) -> list[Difference]:
    """No row, so that no stage has anything to do."""
    expect = variant["expect"]
    found = Found(
        rows=[],
        attempts=[],
        calls=[],
        pauses=set(),
        leases={},
        tries=[],
        refused=refused,
        dead_letters={},
    )
    differences = send_checks.observed(variant, found, Script(stub=[]))
    differences += send_checks.afterwards(expect, [], set())
    if "events" in expect:
        differences += send_checks.events(expect, [])
    return differences + send_always.reasons(variant, found)


async def _after(run: Run, expect: Mapping[str, Any]) -> list[Difference]:
    """What has to be so after the deliveries; a while is given, since stages of their own bring it about."""
    deadline = time.monotonic() + TOLD_WITHIN_S
    while True:
        rows = await run.state.rows()
        found = send_checks.afterwards(expect, rows, await run.state.suppressed())
        if "events" in expect:
            found += send_checks.events(expect, await run.events())
        if not found or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.3)


async def _always(run: Run, found: Found) -> list[Difference]:
    shown: Sequence[str] = run.dead
    after = await run.found(run.script.calls)
    return [
        *send_always.calls(after, run.script),
        *send_always.leases(after),
        *send_always.reasons(run.variant, found),
        *send_always.survival(shown),
        *send_always.network(run.route.refused, run.fake.strange),
        *send_always.logs(run.variant, run.lines, await run.state.told()),
    ]
