"""C25: a service model of SES that is too old for what the product sends. Requests are built without it, so the mail goes out with its header."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore
import botocore.loaders
import botocore.session
import pytest

import devservers
from tests.cases.conftest import on_a_loop
from tests.cases.send_run import running
from tests.cases.send_scene import SendScene, send_scene

pytestmark = pytest.mark.servers
OPTIONAL = {"Headers", "Attachments", "TenantName", "EndpointId"}
VARIANT: dict[str, Any] = {
    "name": "C25",
    "row": {
        "recipient": "user1@example.com",
        "sender": "sender@example.com",
        "subject": "Hello",
        "text": "Hi",
        "headers": {"List-Unsubscribe": "<https://example.com/u/1>"},
    },
    "observe_s": 30,
    "stub": [{"status": 200, "body": {"MessageId": "<provider-message-id>"}}],
    "expect": {},
}


def old_model(folder: Path) -> Path:
    """A folder for AWS_DATA_PATH, whose SES knows no member that came after its first version."""
    model = botocore.loaders.Loader().load_service_model("sesv2", "service-2")
    for shape in model["shapes"].values():
        for name in OPTIONAL & shape.get("members", {}).keys():
            del shape["members"][name]
    place = folder / "sesv2" / "2019-09-27" / "service-2.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(model))
    return folder


@pytest.fixture
def old_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DATA_PATH", str(old_model(tmp_path / "models")))


@pytest.fixture
def scene(
    servers: devservers.Servers, template_database: str, tmp_path: Path, old_sdk: None
) -> Iterator[tuple[Any, SendScene]]:
    with on_a_loop(send_scene(servers, template_database, tmp_path)) as opened:
        yield opened


def known_members() -> set[str]:
    """Of Content.Simple, as a new session of botocore knows it."""
    client = botocore.session.Session().create_client("sesv2", region_name="eu-central-1")
    content = client.meta.service_model.operation_model("SendEmail").input_shape.members["Content"]
    return set(content.members["Simple"].members)


def test_c25_the_header_is_sent_though_the_service_model_lacks_it(
    scene: tuple[Any, SendScene],
) -> None:
    assert known_members() == {"Subject", "Body"}, "the model is not the old one"
    runner, made = scene

    async def sent() -> tuple[list[str], list[Any]]:
        async with running(made, VARIANT) as run:
            await run.insert()
            found = await run.observe()
            headers = [(call.request or {})["Content"]["Simple"]["Headers"] for call in found.calls]
            return [row.state for row in found.rows], headers

    states, headers = runner.run(sent())
    assert states == ["submitted"]
    assert headers == [[{"Name": "List-Unsubscribe", "Value": "<https://example.com/u/1>"}]]
