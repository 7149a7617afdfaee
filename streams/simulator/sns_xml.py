"""Answers in the Query protocol of SNS."""

from html import escape

from aiohttp import web

from streams.simulator.refusals import RefusedError

_NAMESPACE = "http://sns.amazonaws.com/doc/2010-03-31/"


def tag(name: str, value: str) -> str:
    return f"<{name}>{escape(value)}</{name}>"


def members(name: str, items: list[str]) -> str:
    inner = "".join(f"<member>{item}</member>" for item in items)
    return f"<{name}>{inner}</{name}>"


def attributes(values: dict[str, str | None]) -> str:
    """A map of what has a value."""
    entries = "".join(
        f"<entry>{tag('key', key)}{tag('value', value)}</entry>"
        for key, value in values.items()
        if value is not None
    )
    return f"<Attributes>{entries}</Attributes>"


def success(action: str, result: str, request_id: str) -> web.Response:
    text = (
        f'<{action}Response xmlns="{_NAMESPACE}"><{action}Result>{result}</{action}Result>'
        f"<ResponseMetadata>{tag('RequestId', request_id)}</ResponseMetadata></{action}Response>"
    )
    return _xml(200, text, request_id)


def refusal(error: RefusedError, request_id: str) -> web.Response:
    details = tag("Type", "Sender") + tag("Code", error.code) + tag("Message", error.message)
    text = (
        f'<ErrorResponse xmlns="{_NAMESPACE}"><Error>{details}</Error>'
        f"{tag('RequestId', request_id)}</ErrorResponse>"
    )
    return _xml(error.status, text, request_id)


def _xml(status: int, text: str, request_id: str) -> web.Response:
    return web.Response(
        status=status,
        text=text,
        content_type="text/xml",
        headers={"x-amzn-RequestId": request_id},
    )
