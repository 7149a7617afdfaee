"""A file that sets the simulator up at start, in the words of the control API."""

from collections.abc import Callable
from pathlib import Path

from streams.simulator.strict import BadDocumentError, Document, read_document


def apply_script(path: Path, apply: Callable[[str, Document], None]) -> None:
    """Apply each member in the order of the file; its value is one document or a list of them."""
    try:
        script = read_document(path.read_bytes())
    except BadDocumentError as error:
        raise BadDocumentError(f"{path.name}: it must be a JSON object.") from error
    for name, value in script.items():
        for document in value if isinstance(value, list) else [value]:
            if not isinstance(document, dict):
                raise BadDocumentError(
                    f"{path.name}: '{name}' must be an object or a list of objects."
                )
            try:
                apply(name, document)
            except BadDocumentError as error:
                raise BadDocumentError(f"{path.name}: {error}") from error
