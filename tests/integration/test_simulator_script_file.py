"""A script file sets the simulator up at start in the words of the control API."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from streams.simulator.server import Simulator
from streams.simulator.strict import BadDocumentError
from tests.simulator_rig import Control, client, endpoint, quick_settings, simple_mail

QUEUE = "arn:aws:sqs:eu-central-1:111122223333:"


def written(path: Path, script: Any) -> Path:
    file = path / "script.json"
    file.write_text(json.dumps(script), encoding="utf-8")
    return file


async def test_everything_that_the_control_api_sets_can_stand_in_the_file(tmp_path: Path) -> None:
    async with endpoint() as subscriber:
        script = {
            "topics": [{"name": "second", "signature_version": "2"}],
            "queues": [{"name": "events"}, {"name": "dead", "attributes": {"DelaySeconds": "0"}}],
            "configuration-sets": {
                "name": "other",
                "topic": "second",
                "event_types": ["BOUNCE", "SEND"],
            },
            "subscriptions": [
                {
                    "endpoint": subscriber.url,
                    "topic": "second",
                    "attributes": {"RedrivePolicy": {"deadLetterTargetArn": QUEUE + "dead"}},
                },
                {"endpoint": QUEUE + "events", "topic": "second"},
            ],
            "identities": {"identity": "example.com"},
            "templates": {"name": "t", "subject": "s", "text": "x"},
            "account": {"rate": 7, "verify_identities": True},
            "events": {"send_ms": [0, 1], "outcome_ms": [1, 2]},
            "rules": {"rules": [{"match": "ann@*", "script": [{"event": "bounce"}]}]},
            "faults": {"faults": [{"when": "after", "lie": "no-message-id", "next": 1}]},
            "bulk": {"entries": [{"match": "*", "status": "FAILED"}]},
        }
        settings = quick_settings(script_file=written(tmp_path, script))
        async with Simulator(settings) as simulator, aiohttp.ClientSession() as session:
            subscriber.simulator_url = simulator.url
            control = Control(session, simulator.url)
            await control.until(
                lambda state: (
                    [item["state"] for item in state["subscriptions"]] == ["confirmed", "confirmed"]
                )
            )
            subscriber.status_of = lambda _received, _n: 403
            ses = client("sesv2", simulator.url)
            answer = await asyncio.to_thread(
                ses.send_email, **simple_mail(ConfigurationSetName="other")
            )
            ses.close()
            assert "MessageId" not in answer
            state = await control.quiet()
            assert state["account"]["rate"] == 7
            assert state["account"]["verify_identities"] is True
            counts = {queue["name"]: queue["visible"] for queue in state["queues"]}
            assert counts == {"events": 3, "dead": 2}
            dead = await control.get("queues/dead")
            records = [json.loads(json.loads(body)["Message"]) for body in dead["bodies"]]
            assert sorted(record["eventType"] for record in records) == ["Bounce", "Send"]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([], "script.json: it must be a JSON object."),
        ({"rules": 1}, "script.json: 'rules' must be an object or a list of objects."),
        ({"whims": {}}, "script.json: 'whims' is nothing that can be set; known: account, bulk, "),
        ({"account": {"rat": 1}}, "script.json: In 'account': Unknown field 'rat'; known fields: "),
        ({"queues": {"name": "a b"}}, "script.json: In 'queues': Can only include alphanumeric "),
        (
            {"subscriptions": {"endpoint": "http://127.0.0.1:1/", "topic": "gone"}},
            "script.json: In 'subscriptions': Field 'topic' must name a topic that exists.",
        ),
        (
            {"subscriptions": {"endpoint": "ftp://127.0.0.1/"}},
            "script.json: In 'subscriptions': Field 'endpoint' must be an http or https URL or the",
        ),
    ],
)
async def test_a_bad_file_is_refused_in_one_sentence(
    tmp_path: Path, script: Any, message: str
) -> None:
    with pytest.raises(BadDocumentError) as caught:
        async with Simulator(quick_settings(script_file=written(tmp_path, script))):
            pytest.fail("it must not start")
    assert str(caught.value).startswith(message)
