"""Who asks: API keys, looked up once in a while."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from streams.accepting.turns import Turns
from streams.domain.api_keys import ApiKey, PresentedKey, Scope, read_key
from streams.domain.api_problems import Kind, Problem, Refused
from streams.ports.accepting import AcceptStore

# A key that is revoked, or a tenant whose senders change, is known everywhere after so long.
REMEMBERED_S: Final = 5.0
KEPT: Final = 10_000
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="mailstreams"'}


class _Known(NamedTuple):
    until: float
    key: "asyncio.Task[ApiKey | None]"


class Keys:
    """Finds the key of a request. Many that show the same key cost one look-up."""

    def __init__(
        self, store: AcceptStore, turns: Turns, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._turns = turns
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def authorize(self, header: str | None, scope: Scope) -> ApiKey:
        """The key that the header Authorization shows, if it may do this; refuses anything else in the same words."""
        scheme, _, text = (header or "").partition(" ")
        presented = read_key(text.strip()) if scheme.lower() == "bearer" else None
        key = None if presented is None else await self._find(presented)
        if key is None:
            raise Refused(_UNKNOWN)
        if scope not in key.scopes:
            raise Refused(
                Problem(
                    kind=Kind.FORBIDDEN,
                    detail=f"this key lacks the scope {scope}: use one that has it",
                )
            )
        return key

    async def _find(self, presented: PresentedKey) -> ApiKey | None:
        known = self._known.get(presented.id)
        if known is None or known.until <= self._clock():
            task = asyncio.create_task(self._turns.run(lambda: self._store.find_key(presented.id)))
            task.add_done_callback(_heard)
            known = self._known[presented.id] = _Known(self._clock() + REMEMBERED_S, task)
            self._known.move_to_end(presented.id)
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        try:
            key = await asyncio.shield(known.key)
        except Exception:
            if self._known.get(presented.id) is known:
                del self._known[presented.id]
            raise
        now = datetime.now(UTC)
        return key if key is not None and key.is_good(presented, now=now) else None


def _heard(task: "asyncio.Task[ApiKey | None]") -> None:
    """Whoever asked may have given up: then nobody else takes notice of the error."""
    if not task.cancelled():
        task.exception()


_UNKNOWN = Problem(
    kind=Kind.UNAUTHORIZED,
    detail='send "Authorization: Bearer <key>" with a key that is neither expired nor revoked',
    headers=_CHALLENGE,
)
