"""SES's account-level list <-> PostgreSQL: imported once, and cleared of what an operator lifted. A duty of the scheduler.

SES allows about one such call a second to the whole account: every call takes a turn from PostgreSQL, whichever replica makes it.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import Final

from streams.domain.errors import Unavailable
from streams.domain.provider_list import (
    Call,
    ListPage,
    Outcome,
    Turn,
    Unlisting,
    is_answered,
    pause_after,
    recipients_of,
)
from streams.ports.provider_list import ListedAtProvider, ProviderListStore
from streams.runtime import metrics

log = logging.getLogger(__name__)

LOOK_S: Final = 2.0
MEASURE_EVERY_S: Final = 10.0
# Longer than a call can last: a turn ends with its call, or after so long if its process has died.
TURN: Final = timedelta(seconds=30)


class ProviderList:
    """Owns its store and the client: starts and stops both."""

    def __init__(
        self,
        *,
        provider: ListedAtProvider,
        store: ProviderListStore,
        salt: bytes,
        pace: timedelta,
    ) -> None:
        self._provider = provider
        self._store = store
        self._salt = salt
        self._pace = pace
        self._scope = ""
        self._failures = 0
        self._unlist_next = True

    async def start(self) -> None:
        """Misconfigured without a region, Unavailable without PostgreSQL."""
        self._scope = self._provider.region
        export_known_labels()
        await self._store.start()
        await self._store.prepare(self._scope)

    async def stop(self) -> None:
        await self._provider.stop()
        await self._store.stop()

    async def work_off(self) -> float:
        """At most one call: an address to delete or a page to import, in turn where there is both."""
        turn = await self._store.take_turn(self._scope, lasting=TURN)
        if turn is None:
            return min(LOOK_S, self._pace.total_seconds())
        unlisting = None
        if self._unlist_next or turn.importing is None:
            unlisting = await self._store.claim_unlisting()
        self._unlist_next = unlisting is None
        if unlisting is not None:
            await self._after(Call.UNLIST, await self._unlist(unlisting))
        elif turn.importing is not None:
            await self._after(Call.LIST, await self._import(turn))
        return self._pace.total_seconds()

    async def measure(self) -> float:
        """Sets the gauges."""
        backlog = await self._store.backlog()
        metrics.PROVIDER_UNLISTINGS.labels(kind="waiting").set(backlog.waiting)
        metrics.PROVIDER_UNLISTINGS.labels(kind="without-address").set(backlog.without_address)
        progress = await self._store.progress(self._scope)
        metrics.PROVIDER_IMPORT_FINISHED.set(progress.finished is not None)
        metrics.PROVIDER_IMPORT_ENTRIES.set(progress.entries)
        return MEASURE_EVERY_S

    async def _unlist(self, unlisting: Unlisting) -> Outcome:
        try:
            outcome = await self._provider.unlist(unlisting.address)
        except Unavailable as error:
            return _unreachable(Call.UNLIST, error)
        match outcome:
            case Outcome.DONE | Outcome.NOT_LISTED:
                await self._store.unlisted(unlisting)
            case Outcome.REFUSED:
                await self._store.forget_address(unlisting)
                log.error(
                    "SES takes this address for none and does not delete it from its list, a person has to look",
                    extra={
                        "action": "provider_list.address_refused",
                        "recipient_key": unlisting.recipient_key,
                    },
                )
        return outcome

    async def _import(self, turn: Turn) -> Outcome:
        try:
            page = await self._provider.page(turn.next_token)
        except Unavailable as error:
            return _unreachable(Call.LIST, error)
        if isinstance(page, ListPage):
            await self._take(turn, page)
            return Outcome.DONE
        if page is Outcome.TOKEN_REFUSED:
            await self._store.begin_anew(self._scope, turn)
            log.warning(
                "SES does not go on from where the import of its list was, it begins anew",
                extra={"action": "provider_list.import_restarted"},
            )
        return page

    async def _take(self, turn: Turn, page: ListPage) -> None:
        found = recipients_of(page.entries, salt=self._salt, read_at=datetime.now(UTC))
        taken = await self._store.take_page(self._scope, turn, found, page.next_token)
        if taken is None:
            return  # another replica, or a new wish to import, was faster
        known = len(found.listed) - taken.suppressed - taken.lifted
        counts = {"suppressed": taken.suppressed, "lifted": taken.lifted, "known": known}
        for what, entries in (counts | {"unusable": found.unusable}).items():
            metrics.PROVIDER_IMPORTED.labels(entry=what).inc(entries)
        progress = await self._store.progress(self._scope)
        log.info(
            "SES's suppression list is imported"
            if page.next_token is None
            else "a page of SES's suppression list is imported",
            extra={
                "action": "provider_list.imported"
                if page.next_token is None
                else "provider_list.page_imported",
                "pages": progress.pages,
                "entries": progress.entries,
                "suppressed": progress.suppressed,
                "lifted": progress.lifted,
                "unusable": progress.unusable,
            },
        )

    async def _after(self, call: Call, outcome: Outcome) -> None:
        metrics.PROVIDER_LIST_CALLS.labels(call=call.value, outcome=outcome.value).inc()
        self._failures = 0 if is_answered(call, outcome) else self._failures + 1
        await self._store.end_turn(self._scope, pause_after(self._failures, pace=self._pace))
        if outcome in (Outcome.DENIED, Outcome.REFUSED):
            log.error(
                "SES does not let us work on its suppression list, mail to lifted addresses may stay undelivered",
                extra={
                    "action": "provider_list.refused",
                    "call": call.value,
                    "outcome": outcome.value,
                },
            )


def _unreachable(call: Call, error: Unavailable) -> Outcome:
    log.warning(
        "SES does not answer about its suppression list, it is asked again",
        extra={
            "action": "provider_list.unreachable",
            "call": call.value,
            "error": str(error),
        },
    )
    return Outcome.UNREACHABLE


def export_known_labels() -> None:
    """Known label sets are exported from the start, so that the first event is seen as a change."""
    for call in Call:
        for outcome in Outcome:
            metrics.PROVIDER_LIST_CALLS.labels(call=call.value, outcome=outcome.value)
    for entry in ("suppressed", "lifted", "known", "unusable"):
        metrics.PROVIDER_IMPORTED.labels(entry=entry)
