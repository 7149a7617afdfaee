"""The OpenAPI document is true: schemathesis asks every route what it allows and what it forbids, and judges the answers by it."""

import asyncio
import os
import sys
from pathlib import Path

import jsonschema
import pytest

from streams.adapters.postgres import Database
from streams.domain.api_answers import ProblemAnswer
from tests.api_rig import EMAIL, Client, api_on, client, make_key

pytestmark = pytest.mark.servers
# Of each route; SCHEMATHESIS_EXAMPLES=200 looks longer.
EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "12")
# A body that the document allows may still be refused: it cannot say that a template has to exist, or what SES takes.
LEFT_OUT = "positive_data_acceptance"


async def run(document: str, key: str, where: Path, *options: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", document),
        *("-H", f"Authorization: Bearer {key}", "--max-examples", EXAMPLES),
        *("--exclude-checks", LEFT_OUT, "--no-color", "--seed", "1", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=where,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def test_schemathesis_finds_nothing(
    database_dsn: str, database: Database, tmp_path: Path
) -> None:
    key = await make_key(database)
    async with api_on(database_dsn) as stage:
        code, said = await run(f"http://{stage.address}/openapi.json", key.text, tmp_path)
    assert code == 0, said


async def test_the_document_needs_no_key_and_names_every_route(
    database_dsn: str,
) -> None:
    async with api_on(database_dsn) as stage, client(stage.address, None) as asked:
        status, document, _ = await asked.get("/openapi.json")
        told = {
            (method.upper(), path)
            for path, methods in document["paths"].items()
            for method in methods
        }
        assert told == {(route.method, route.path) for route in stage.routes}
        assert (await asked.ask("POST", "/openapi.json"))[0] == 405
    assert (status, document["openapi"]) == (200, "3.1.0")


async def asked_for(shop: Client, path: str, body: object = None) -> object:
    method = "GET" if body is None else "POST"
    return (await shop.ask(method, path, **({} if body is None else {"json": body})))[1]


async def test_answers_are_what_the_document_says(database_dsn: str, database: Database) -> None:
    """Those that chance does not reach: of messages that are there."""
    key = await make_key(database)
    async with api_on(database_dsn) as stage, client(stage.address, key) as shop:
        document = (await shop.get("/openapi.json"))[1]
        later = EMAIL | {"send_after": "2099-01-01T00:00:00Z", "cc": ["bob@example.com"]}
        made = (await shop.post("/v1/emails", later))[1]["id"]
        address = {"address": "eve@example.com", "why": "x"}
        answers = {
            "BatchAnswer": await asked_for(shop, "/v1/emails/batch", [EMAIL, {}]),
            "EmailPageAnswer": await asked_for(shop, "/v1/emails"),
            "EmailDetailsAnswer": await asked_for(shop, f"/v1/emails/{made}"),
            "RescheduledAnswer": await asked_for(
                shop, f"/v1/emails/{made}/reschedule", {"send_after": "2098-01-01T00:00:00Z"}
            ),
            "CancelledAnswer": await asked_for(shop, f"/v1/emails/{made}/cancel", {}),
            "SuppressedAnswer": await asked_for(shop, "/v1/suppressions", address),
            "SuppressionPageAnswer": await asked_for(shop, "/v1/suppressions"),
            ProblemAnswer.__name__: await asked_for(shop, "/v1/emails", EMAIL | {"to": "eve@example.com"}),
            "LiftedAnswer": await asked_for(shop, "/v1/suppressions/lift", address),
        }  # fmt: skip
    assert answers["ProblemAnswer"]["reason"] == "manual"  # type: ignore[index]
    for name, answer in answers.items():
        schema = document | {"$ref": f"#/components/schemas/{name}"}
        jsonschema.Draft202012Validator(schema).validate(answer)
