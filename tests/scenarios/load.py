"""What goes on beside a scenario: an application that commits steadily, and somebody who watches progress, liveness and readiness."""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self

import psycopg

from demo.system import get
from tests.scenarios.scene import LONG, SETTLED, Scene

log = logging.getLogger(__name__)

# As the cases have it; what shows in the short form shows with fewer as well, and ten processes share two processors.
PER_SECOND: Final = 50 if LONG else 15
TICK_S: Final = 0.1
LOOK_S: Final = 0.5


class _Beside(ABC):
    """Something that runs in a thread for the length of a block; what it raised is raised at its end."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 raised again by the test's thread
            self._error = error

    @abstractmethod
    def _run(self) -> None:
        """What goes on until _stopping is set."""


class Application(_Beside):
    """Commits mails at a steady rate, each to a recipient of its own."""

    def __init__(self, scene: Scene, *, per_second: int = PER_SECOND) -> None:
        super().__init__()
        self._scene = scene
        self._a_tick = per_second * TICK_S
        self.ids: list[str] = []

    def _run(self) -> None:
        owed, due = 0.0, time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            due += TICK_S
            owed += self._a_tick
            count, owed = int(owed), owed - int(owed)
            first = len(self.ids)
            self.ids += self._scene.commit(
                f"steady-{n}@example.com" for n in range(first, first + count)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A process that the watcher ended, since its liveness failed, or that had ended by itself."""

    name: str
    why: str


class Watch(_Beside):
    """What an orchestrator does: it starts again what is not live. And it measures how long nothing goes on.

    longest: the longest time for which an old row waited, or an accepted one for its events, counted from the last moment
    of `excused()` on. Rows that are committed now are young: their waiting counts from their commit.
    """

    def __init__(self, scene: Scene, names: Sequence[str], *, folding: bool = False) -> None:
        super().__init__()
        self._scene = scene
        self._names = list(names)
        self._folding = folding
        self._since = time.time()
        self._worst: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.restarts: list[Restart] = []

    def excused(self) -> None:
        """Nobody has to make progress before this moment: a server was away."""
        with self._lock:
            self._since = time.time()

    @property
    def longest(self) -> dict[str, float]:
        """In seconds, by what waited: rows, and events where folding is watched."""
        with self._lock:
            return {what: round(ms / 1000, 1) for what, ms in self._worst.items()}

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            for name in self._names:
                self._see_to(name)
            try:
                self._measure("rows", _OLDEST_ROW)
                if self._folding:
                    self._measure("events", _OLDEST_UNFOLDED)
            except psycopg.OperationalError:
                continue

    def _see_to(self, name: str) -> None:
        if not self._scene.alive(name):
            why = f"it has ended: {self._scene.last_words(name)}"
        elif get(self._scene.url(name, "/health/live"))[0] == 503:
            why = f"its liveness failed: {self._scene.missing(name)}"
            self._scene.stop(name)  # as an orchestrator does: it may drain, then it is killed
        else:
            return
        self.restarts.append(Restart(name=name, why=why))
        log.warning("started again: %s, since %s", name, why)
        self._scene.run(name)
        self.excused()

    def _measure(self, what: str, statement: str) -> None:
        with self._lock:
            since = self._since
        oldest: datetime | None = self._scene.value(statement)
        if oldest is None:
            return
        waited = datetime.now(UTC).timestamp() - max(oldest.timestamp(), since)
        with self._lock:
            if since == self._since:
                self._worst[what] = max(self._worst[what], int(waited * 1000))


_OLDEST_ROW: Final = f"SELECT min(created) FROM email_outbox WHERE state NOT IN {SETTLED}"
_OLDEST_UNFOLDED: Final = """
SELECT min(o.changed) FROM email_outbox o
WHERE o.state = 'submitted' AND NOT EXISTS (
  SELECT FROM recipient_outcome r WHERE r.outbox_id = o.id AND r.delivered_at IS NOT NULL)
"""


class Readiness(_Beside):
    """Asks processes again and again whether they are ready; remembers what was missing, and since when."""

    def __init__(self, scene: Scene, names: Sequence[str]) -> None:
        super().__init__()
        self._scene = scene
        self._names = list(names)
        self.missing: list[tuple[float, str, dict[str, str]]] = []
        self.asked = 0

    def _run(self) -> None:
        while not self._stopping.wait(0.1):
            for name in self._names:
                self.asked += 1
                if missing := self._scene.missing(name):
                    self.missing.append((time.monotonic(), name, missing))
