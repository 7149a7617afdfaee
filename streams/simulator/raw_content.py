"""Raw content: a whole MIME message, as SES reads and checks it."""

from email.header import decode_header, make_header
from email.parser import BytesHeaderParser, BytesParser

from streams.simulator.content import Content, check_once, check_size, decode, is_infected
from streams.simulator.members import Members, required_text
from streams.simulator.refusals import bad_request

MAX_LINE_BYTES = 998


def read_raw(raw: Members) -> Content:
    data = required_text(raw, "Data")
    check_size(len(data))
    mime = decode(data, "Data")
    if not mime:
        raise bad_request("Data must not be empty.")
    if any(len(line) > MAX_LINE_BYTES for line in mime.replace(b"\r\n", b"\n").split(b"\n")):
        raise bad_request(f"A line of the message is longer than {MAX_LINE_BYTES} bytes.")
    everything = tuple(
        (name, " ".join(str(value).split()))
        for name, value in BytesHeaderParser().parsebytes(mime).items()
    )
    check_once(name for name, _ in everything)
    return Content(
        subject=_readable({name.lower(): value for name, value in everything}.get("subject", "")),
        headers=tuple(header for header in everything if not _is_hidden(header[0])),
        mime_headers=everything,
        infected=_has_infected_part(mime),
    )


def _has_infected_part(mime: bytes) -> bool:
    if is_infected(mime):
        return True
    if b"base64" not in mime.lower():
        return False
    parts = BytesParser().parsebytes(mime).walk()
    payloads = (part.get_payload(decode=True) for part in parts if not part.is_multipart())
    return any(is_infected(payload) for payload in payloads if isinstance(payload, bytes))


def _is_hidden(name: str) -> bool:
    """What SES takes out before it sends."""
    return name.lower().startswith("x-ses-") or name.lower() == "bcc"


def _readable(value: str) -> str:
    try:
        return str(make_header(decode_header(value)))
    except (LookupError, ValueError):
        return value
