"""What `mailstreams doctor` says: findings, each with a stable id, and the remedy of what is wrong.

The rules stand beside this file by what they look at; they take facts and return findings, and look at nothing themselves.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from streams.domain.diagnosis_checks import REMEDIES


class Level(StrEnum):
    """How bad it is. A warning keeps no mail from being sent today."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line. remedy: None if there is nothing to mend. unseen: it could not be looked at, so that nothing is known."""

    level: Level
    id: str
    found: str
    remedy: str | None = None
    unseen: bool = False


def ok(id_: str, found: str) -> Finding:
    return Finding(level=Level.OK, id=_known(id_), found=found)


def warning(id_: str, found: str, remedy: str | None = None) -> Finding:
    return Finding(level=Level.WARNING, id=_known(id_), found=found, remedy=remedy or REMEDIES[id_])


def error(id_: str, found: str, remedy: str | None = None) -> Finding:
    return Finding(level=Level.ERROR, id=_known(id_), found=found, remedy=remedy or REMEDIES[id_])


def unseen(id_: str, found: str) -> Finding:
    """A part that does not answer."""
    return Finding(
        level=Level.ERROR, id=_known(id_), found=found, remedy=REMEDIES[id_], unseen=True
    )


def exit_code(findings: Iterable[Finding]) -> int:
    """1: something is wrong. 2: nothing that was seen is wrong, but not everything could be looked at. 0: neither."""
    errors = [finding for finding in findings if finding.level is Level.ERROR]
    if not errors:
        return 0
    return 2 if all(finding.unseen for finding in errors) else 1


def _known(id_: str) -> str:
    if id_ not in REMEDIES:
        raise ValueError(f"{id_} is no id of a finding")
    return id_


_ADDRESS: Final = re.compile(r"[^\s@<>\"'(]+@[^\s@<>\"',;)]+")
_PASSWORD: Final = re.compile(r"(?i)(password\s*=\s*)('[^']*'|\S+)")


def clean(finding: Finding, secrets: Sequence[str]) -> Finding:
    """The same without these secrets, or what looks like an address or a password in the text of a server."""

    def cleaned(text: str) -> str:
        for secret in sorted(filter(None, secrets), key=len, reverse=True):
            text = text.replace(secret, "***")
        return _ADDRESS.sub("***", _PASSWORD.sub(r"\1***", " ".join(text.split())))

    return Finding(
        level=finding.level,
        id=finding.id,
        found=cleaned(finding.found),
        remedy=None if finding.remedy is None else cleaned(finding.remedy),
        unseen=finding.unseen,
    )


def bytes_text(size: float) -> str:
    """Such as 1.5 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def seconds_text(seconds: float) -> str:
    """Such as 42 s, or 3 h."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def listed(names: Iterable[str], most: int = 5) -> str:
    """The names behind commas, not too many."""
    given = list(names)
    more = f" and {len(given) - most} more" if len(given) > most else ""
    return ", ".join(given[:most]) + more
