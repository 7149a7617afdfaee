"""The control API: what the simulator is told, and what it says about itself."""

from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

from streams.simulator.acceptance import SendingState
from streams.simulator.control_resources import ResourceControl
from streams.simulator.control_sending import Change, SendingControl
from streams.simulator.control_state import ControlState
from streams.simulator.forgery import Forger, read_forgery
from streams.simulator.ledger import Acceptance
from streams.simulator.refusals import RefusedError
from streams.simulator.strict import BadDocumentError, Document, Fields, read_document

LINES_A_CHUNK = 200


class ControlApi:
    """Everything under /control/; changes are read whole before any of them is made."""

    def __init__(
        self,
        *,
        state: SendingState,
        shown: ControlState,
        sending: SendingControl,
        resources: ResourceControl,
        forger: Forger,
    ) -> None:
        self._state = state
        self._shown = shown
        self._resources = resources
        self._forger = forger
        self._changes: dict[str, Change] = {**sending.changes, **resources.changes}

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.get("/control/state", self._get_state),
            web.get("/control/ledger", self._get_ledger),
            web.get("/control/messages/{message_id}", self._get_message),
            web.get("/control/dead-letters", self._get_dead_letters),
            web.get("/control/queues/{name}", self._get_queue),
            web.post("/control/publish", self._publish),
            *(
                web.post(f"/control/{name}", _change(change))
                for name, change in self._changes.items()
            ),
        ]

    def apply(self, name: str, document: Document) -> None:
        """One change as a script file has it, or a BadDocumentError that says where."""
        change = self._changes.get(name)
        if change is None:
            known = ", ".join(sorted(self._changes))
            raise BadDocumentError(f"'{name}' is nothing that can be set; known: {known}.")
        try:
            change(Fields(document))
        except (BadDocumentError, RefusedError) as error:
            raise BadDocumentError(f"In '{name}': {_sentence(error)}") from error

    async def _get_state(self, _request: web.Request) -> web.Response:
        return _json(self._shown.state())

    async def _get_dead_letters(self, _request: web.Request) -> web.Response:
        return _json({"dead_letters": self._shown.dead_letters()})

    async def _get_queue(self, request: web.Request) -> web.Response:
        queue = self._shown.queue(request.match_info["name"])
        return _json({"error": "No queue has this name."}, 404) if queue is None else _json(queue)

    async def _publish(self, request: web.Request) -> web.Response:
        """A message with chosen defects; answers what each subscriber answered."""
        try:
            fields = Fields(read_document(await request.read()))
            forgery = read_forgery(fields, self._resources.topic)
        except BadDocumentError as error:
            return _json({"error": str(error)}, 400)
        return _json(await self._forger.publish(forgery))

    async def _get_ledger(self, request: web.Request) -> web.StreamResponse:
        """One accepted call a line; `?after=<sequence>` leaves out what is known."""
        after = request.query.get("after", "0")
        if set(request.query) - {"after"} or not after.isdecimal():
            return _json({"error": "The only parameter is 'after', a sequence number."}, 400)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        chunk: list[bytes] = []
        for acceptance in self._state.ledger.after(int(after)):
            chunk.append(orjson.dumps(acceptance.as_json()))
            if len(chunk) == LINES_A_CHUNK:
                await response.write(b"\n".join(chunk) + b"\n")
                chunk.clear()
        if chunk:
            await response.write(b"\n".join(chunk) + b"\n")
        await response.write_eof()
        return response

    async def _get_message(self, request: web.Request) -> web.Response:
        acceptance = self._state.ledger.find(request.match_info["message_id"])
        if acceptance is None:
            return _json({"error": "No accepted message has this id."}, 404)
        return _json({**acceptance.as_json(), "request": self._request_of(acceptance)})

    def _request_of(self, acceptance: Acceptance) -> Any:
        kept = self._state.ledger.request_of(acceptance.message_id)
        return None if kept is None else orjson.loads(kept)


def _change(change: Change) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.Response:
        try:
            return _json(change(Fields(read_document(await request.read()))))
        except (BadDocumentError, RefusedError) as error:
            return _json({"error": _sentence(error)}, 400)

    return handle


def _sentence(error: BadDocumentError | RefusedError) -> str:
    return error.message if isinstance(error, RefusedError) else str(error)


def _json(document: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(document), content_type="application/json")
