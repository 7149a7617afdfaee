"""`python -m demo.outage`: SES is down for half an hour while mail waits; counts what that leaves to settle.

Real processes: every stage, two senders. Half an hour is scaled down together with the intervals of probes; --minutes 30
--scale 1 is the real one. The last line is one JSON object; exit code 1 if more than 50 messages were ever ambiguous, one failed,
was lost or sent twice, or the others did not go out by themselves.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from demo import backlog
from demo.proof import prove
from demo.system import System
from devservers.ports import Ports
from devservers.tcp_proxy import TcpProxy

STAGES: Final = ("relay", "sender", "sender-2", "events", "recipients", "scheduler")
SENDERS: Final = ("sender", "sender-2")
KINDS: Final = ("503", "unreachable", "mute")
MOST_AMBIGUOUS: Final = 50
FIRST_S, LONGEST_S = 5.0, 240.0
PATIENCE_S: Final = 600.0


class Outage:
    """The way to SES, and how it is cut."""

    def __init__(self, kind: str, ports: Ports) -> None:
        self._kind = kind
        self._port = ports.claim(server="the way to SES")
        self._upstream = 0
        self._proxy: TcpProxy | None = None

    def open(self, simulator_url: str) -> str:
        """Where SES answers."""
        self._upstream = urlsplit(simulator_url).port or 0
        self._listen()
        return f"http://127.0.0.1:{self._port}"

    def _listen(self) -> None:
        self._proxy = TcpProxy(upstream=self._upstream, port=self._port)
        self._proxy.start()

    def begin(self, system: System) -> None:
        if self._kind == "503":
            system.control("faults", faults=[_REFUSAL])
        elif self._kind == "mute" and self._proxy is not None:
            self._proxy.muted = True
        else:
            self.close()

    def end(self, system: System) -> None:
        system.control("faults", faults=[])
        self.close()
        self._listen()

    def close(self) -> None:
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            proxy.stop()


_REFUSAL: Final = {
    "when": "before",
    "lie": "error",
    "status": 503,
    "code": "ServiceUnavailable",
    "next": 1_000_000,
}


class Run:
    """One outage: some mail goes out, SES goes down, the rest waits, SES comes back."""

    def __init__(self, system: System, outage: Outage, *, messages: int, lasts_s: float) -> None:
        self._system = system
        self._outage = outage
        self._messages = messages
        self._lasts_s = lasts_s

    def run(self) -> dict[str, Any]:
        backlog.commit(self._system.dsn, 200, "before")
        self._system.wait_for(
            lambda: backlog.states(self._system.dsn)["submitted"] == 200,
            "the first mail",
            timeout_s=120,
        )
        self._outage.begin(self._system)
        began = time.monotonic()
        backlog.commit(self._system.dsn, self._messages, "during")
        self._system.wait_for(self._says_why, "a sender to say why nothing is sent", timeout_s=300)
        say("the circuit is open")
        self._system.wait_for(
            lambda: time.monotonic() - began > self._lasts_s,
            "the outage",
            timeout_s=self._lasts_s + 60,
        )
        during, probes = (
            backlog.states(self._system.dsn),
            backlog.value(self._system.dsn, "SELECT probes FROM send_rate"),
        )
        say(f"SES comes back after {self._lasts_s:.0f} s and {probes} probes: {dict(during)}")
        self._outage.end(self._system)
        ended = time.monotonic()
        self._system.wait_for(
            lambda: not backlog.states(self._system.dsn).keys() & {"pending", "sending"},
            "everything to go out",
            timeout_s=PATIENCE_S,
        )
        return self._found(during, probes, time.monotonic() - ended)

    def _found(self, during: Counter[str], probes: int, recovered_s: float) -> dict[str, Any]:
        states = backlog.states(self._system.dsn)
        accepted = Counter(call["outbox"] for call in self._system.ledger())
        return {
            "messages": self._messages,
            "outage_s": round(self._lasts_s, 1),
            "probes": probes,
            "ever_ambiguous": sum(
                backlog.unknown_outcomes(self._system, sender) for sender in SENDERS
            ),
            "waited": during["pending"],
            "submitted": states["submitted"],
            "ambiguous": states["ambiguous"],
            "failed": states["failed"],
            "lost": self._messages + 200 - states["submitted"] - states["ambiguous"],
            "sent_twice": sum(times > 1 for times in accepted.values()),
            "charged": backlog.value(
                self._system.dsn, "SELECT count(*) FROM email_outbox WHERE attempts > 1"
            ),
            "gone_out_after_s": round(recovered_s, 1),
        }

    def _says_why(self) -> bool:
        return any(not self._system.ready(sender) for sender in SENDERS)


def faults(found: dict[str, Any]) -> list[str]:
    """What is wrong with what was found."""
    return [
        *(f"{found[name]} {name}" for name in ("failed", "lost", "sent_twice") if found[name]),
        *(
            [f"{found['ever_ambiguous']} messages were ambiguous, more than {MOST_AMBIGUOUS}"]
            if found["ever_ambiguous"] > MOST_AMBIGUOUS
            else []
        ),
        *(["nothing waited, so that nothing is shown"] if not found["waited"] else []),
    ]


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    options = _options()
    lasts_s = options.minutes * 60 * options.scale
    settings = {
        "MAILSTREAMS_SENDER_PROBE_FIRST_S": str(FIRST_S * options.scale),
        "MAILSTREAMS_SENDER_PROBE_LONGEST_S": str(LONGEST_S * options.scale),
    }
    with tempfile.TemporaryDirectory(prefix="mailstreams-way-") as way:
        ports = Ports(Path(way))
        outage = Outage(options.kind, ports)

        def run(system: System) -> tuple[list[str], dict[str, Any]]:
            found = Run(system, outage, messages=options.messages, lasts_s=lasts_s).run()
            return faults(found), {"kind": options.kind, **found}

        try:
            return prove("outage", run, settings=settings, stages=STAGES, way_to_ses=outage.open)
        finally:
            outage.close()
            ports.release()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo.outage", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="503")
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--scale", type=float, default=1 / 60)
    options = parser.parse_args()
    if options.messages < 100:
        parser.error("--messages has to be 100 or more, so that the circuit has to open")
    if not 0.002 <= options.scale <= 1:
        parser.error("--scale has to be between 0.002 and 1, so that probes are seen one by one")
    return options


if __name__ == "__main__":
    sys.exit(main())
