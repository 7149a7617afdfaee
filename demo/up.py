"""`make up`: the servers, the simulator and every stage, kept running until `make down`."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from demo.system import STAGES, get, provider_environment, sns_endpoint, stage_environment
from devservers import Servers
from devservers.background import STATE_DIRECTORY
from devservers.errors import StartFailed
from devservers.ports import Ports
from devservers.processes import spawn
from devservers.supervisor import ProcessSpec


def processes(servers: Servers) -> Sequence[ProcessSpec]:
    """What the supervisor keeps running beside the servers."""
    ports = Ports(STATE_DIRECTORY / "ports")
    simulator, sns = ports.claim(server="the simulator"), ports.claim(server="events")
    api = ports.claim(server="the accept API")
    http = {stage: ports.claim(server=stage) for stage in (*STAGES, "api")}
    url = f"http://127.0.0.1:{simulator}"
    environment = stage_environment() | provider_environment(url, sns)
    environment |= {"MAILSTREAMS_API_PORT": str(api)}
    takes = {
        "events": f", takes notifications at {sns_endpoint(sns)}",
        "api": f", takes e-mails at http://127.0.0.1:{api}/v1/emails",
    }
    journal = {"MAILSTREAMS_SENDER_JOURNAL": str(STATE_DIRECTORY / "sender.journal")}
    _migrate(servers, environment)
    specs = [
        ProcessSpec(
            name="simulator",
            argv=_mailstreams(
                "simulator", "--port", str(simulator), "--subscribe", sns_endpoint(sns)
            ),
            is_ready=_answers(f"{url}/health"),
            address=url,
            exports=environment,
        )
    ]
    for stage, port in http.items():
        specs.append(
            ProcessSpec(
                name=stage,
                argv=_mailstreams(stage),
                env=environment | journal | {"MAILSTREAMS_HTTP_PORT": str(port)},
                is_ready=_answers(f"http://127.0.0.1:{port}/health/ready"),
                grace=35.0,
                address=f"http://127.0.0.1:{port}/metrics" + takes.get(stage, ""),
            )
        )
    # The scheduler reads the account's rate, without which no sender is ready.
    specs.sort(key=lambda spec: spec.name == "sender")
    return specs


def _mailstreams(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "streams", *arguments]


def _answers(url: str) -> Callable[[], bool]:
    return lambda: get(url)[0] == 200


def _migrate(servers: Servers, environment: dict[str, str]) -> None:
    log: Path = STATE_DIRECTORY / "logs" / "migrate.log"
    process = spawn(
        _mailstreams("migrate"),
        name="migrate",
        log_path=log,
        env=os.environ | servers.environment() | environment,
    )
    if process.wait(60) != 0:
        raise StartFailed(f"mailstreams migrate failed: see {log}.")
