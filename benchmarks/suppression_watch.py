"""When suppressions come into force, as another connection sees it."""

import threading
import time
from typing import Final

import psycopg

POLL_S: Final = 0.005
# Longer than any statement runs between drawing its time and its commit.
OVERLAP_S: Final = 5.0


class SuppressionWatch:
    """Polls from a connection of its own: a delay counts at most 5 ms and one round trip too much, never too little."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._stopping = threading.Event()
        self._seen: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="suppression-watch")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """When each recipient's suppression was first seen, by the clock of this machine."""
        self._stopping.set()
        self._thread.join()
        return self._seen

    def _run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            last = False
            while not last:
                last = self._stopping.wait(POLL_S)
                rows = connection.execute(
                    "SELECT recipient_key FROM suppression WHERE created > clock_timestamp() - make_interval(secs => %s)",
                    (OVERLAP_S,),
                ).fetchall()
                now = time.time()
                for (key,) in rows:
                    self._seen.setdefault(str(key), now)
