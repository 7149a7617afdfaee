"""The Query protocol of SNS: signed calls by action, answered in XML."""

import time
from collections.abc import Callable
from urllib.parse import parse_qsl

from aiohttp import web

from streams.simulator import sns_xml
from streams.simulator.identifiers import random_uuid
from streams.simulator.refusals import RefusedError
from streams.simulator.requests import read_body, signed_request
from streams.simulator.sigv4 import SignatureVerifier, sns_scope
from streams.simulator.sns_parameters import SnsCall

Action = Callable[[SnsCall], str]
_UNSIGNED = ("ConfirmSubscription", "Unsubscribe")


class SnsApi:
    """Authenticates and answers; `actions` by their names."""

    def __init__(
        self, *, region: str, verifier: SignatureVerifier, actions: dict[str, Action]
    ) -> None:
        self._verifier = verifier
        self._scope = sns_scope(region)
        self._actions = actions

    async def handle(self, request: web.Request) -> web.Response:
        request_id = random_uuid()
        try:
            body = await read_body(request)
            form = body.decode("utf-8", "replace") or request.query_string
            parameters = dict(parse_qsl(form, keep_blank_values=True))
            action = parameters.get("Action", "")
            signed = self._authenticate(request, body, action)
            result = self._perform(action, SnsCall(parameters=parameters, signed=signed))
        except RefusedError as error:
            return sns_xml.refusal(error, request_id)
        return sns_xml.success(action, result, request_id)

    def _authenticate(self, request: web.Request, body: bytes, action: str) -> bool:
        """Whether the call is signed; a call of most actions must be."""
        if action in _UNSIGNED and "Authorization" not in request.headers:
            return False
        self._verifier.verify(signed_request(request, body), self._scope, time.time())
        return True

    def _perform(self, action: str, call: SnsCall) -> str:
        perform = self._actions.get(action)
        if perform is None:
            raise RefusedError(
                code="InvalidAction",
                status=400,
                message=f"The action {action} is not valid for this endpoint.",
            )
        return perform(call)
