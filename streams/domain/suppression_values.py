"""What the values of mail.suppressions say: scope and expiry of each rule, whole pages of them at once."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from streams.domain.errors import BadMessage
from streams.domain.topics import Lane

EVERY: Final = "*"
LANES: Final = {EVERY: 0, Lane.TRANSACTIONAL.value: 1, Lane.BULK.value: 2}
NEVER: Final = 0
_LATEST: Final = 2**32 - 1
# One rule without expiry exactly as PostgreSQL writes it, which is nearly every record. What differs from one recipient to the
# next are the groups `created` and `evidence`.
_USUAL: Final = re.compile(
    rb'\{"suppressions": \[\{"lane": "[^"\\]*", "reason": "[^"\\]*", "tenant": "[^"\\]*", "created": "(?P<created>[^"\\]*)"'
    rb'(?:, "evidence_id": "(?P<evidence>[^"\\]*)")?, "rule_version": \d+\}\]\}'
)
# Fewer values than that are read one by one.
_MANY: Final = 16
# So many forms of one length are looked for in a page; what is left is read one by one.
_TRIES: Final = 8

Places = NDArray[np.int64]

# Lane (0: every) and tenant ("*": every).
Scope = tuple[int, str]
# When each scope's rule ends, in seconds since 1970.
Rules = dict[Scope, int]


def rules_of(value: bytes | None) -> Rules:
    """Rules that say the same are one, and what another one covers for good is left out; BadMessage if it is none of this topic."""
    if value is None:
        return {}
    try:
        body = orjson.loads(value)
        found = [] if body is None else [_rule(rule) for rule in body["suppressions"]]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadMessage("not a suppression: the value has an unknown form") from error
    rules: Rules = {}
    for scope, expires in found:
        before = rules.get(scope, expires)
        rules[scope] = NEVER if NEVER in (before, expires) else max(before, expires)
    everybody = (0, EVERY)
    return {everybody: NEVER} if rules.get(everybody) == NEVER else rules


def _rule(rule: dict[str, Any]) -> tuple[Scope, int]:
    expires = rule.get("expires")
    at = NEVER if expires is None else min(max(ceil(time_of(expires).timestamp()), 1), _LATEST)
    # A lane that this version does not know counts as every lane.
    return (LANES.get(rule["lane"], 0), str(rule["tenant"])), at


def time_of(text: str) -> datetime:
    """Of ISO 8601; without a zone it is UTC."""
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def kinds_of(values: Sequence[bytes | None]) -> tuple[list[Rules | BadMessage], Places]:
    """What is said, each once or a few times, and of each value which of that it says. What cannot be read is a BadMessage."""
    kinds: list[Rules | BadMessage] = [{}]
    which = np.zeros(len(values), np.int64)
    lengths = np.array([-1 if value is None else len(value) for value in values], np.int64)
    for length in np.unique(lengths).tolist():
        if length >= 0:
            _read_group(values, np.flatnonzero(lengths == length).tolist(), kinds, which)
    return kinds, which


def _read_group(
    values: Sequence[bytes | None], rows: list[int], kinds: list[Rules | BadMessage], which: Places
) -> None:
    """Values of one length."""
    tries = 0
    while len(rows) >= _MANY and tries < _TRIES:
        tries += 1
        first, rest = values[rows[0]] or b"", rows
        usual = _USUAL.fullmatch(first)
        if usual is None:
            alike, rows = rows[:1], rows[1:]
        else:
            texts = np.frombuffer(b"".join(values[row] or b"" for row in rest), np.uint8)
            same = _alike(texts.reshape(len(rest), len(first)), usual)
            places = np.array(rest)
            alike, rows = places[same].tolist(), places[~same].tolist()
        which[alike] = len(kinds)
        kinds.append(_read(first))
    for row in rows:
        which[row] = len(kinds)
        kinds.append(_read(values[row]))


def _alike(texts: NDArray[np.uint8], usual: re.Match[bytes]) -> NDArray[np.bool_]:
    """Which texts have the form of the first one, and differ from it in creation and evidence only."""
    same = np.ones(len(texts), np.bool_)
    behind = 0
    for name in ("created", "evidence"):
        start, end = usual.span(name)
        if start < 0:  # there is no evidence
            continue
        same &= (texts[:, behind:start] == texts[0, behind:start]).all(axis=1)
        free = texts[:, start:end]
        # A quotation mark or a backslash would end or change the text, a control character is no JSON.
        same &= ((free != 34) & (free != 92) & (free >= 32)).all(axis=1)
        behind = end
    same &= (texts[:, behind:] == texts[0, behind:]).all(axis=1)
    return same


def _read(value: bytes | None) -> Rules | BadMessage:
    try:
        return rules_of(value)
    except BadMessage as error:
        return error
