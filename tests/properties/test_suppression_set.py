"""The packed table of suppressions against a plain dictionary: any records, in pages of any size."""

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streams.domain.addresses import RecipientKey
from streams.domain.suppressions import SuppressionPage, SuppressionSet
from streams.domain.topics import Lane

NOW = 1_700_000_000
KEYS = [f"{n:032x}" for n in range(6)] + [f"{n:016x}{7:016x}" for n in range(3)]
TENANTS = ["shop", "bank", "*"]
EXPIRES = [None, "2023-11-14T22:13:21Z", "2023-11-14T22:13:19Z", "2001-01-01T00:00:00Z"]

rules = st.fixed_dictionaries(
    {
        "lane": st.sampled_from(["*", "bulk", "transactional"]),
        "reason": st.sampled_from(["hard-bounce", "complaint"]),
        "tenant": st.sampled_from(TENANTS),
        "created": st.just("2023-01-01T00:00:00.000000Z"),
        "expires": st.sampled_from(EXPIRES),
        "evidence_id": st.sampled_from(["0123", "4567", 'a "quoted" \\ one', "ü"]),
        "rule_version": st.just(1),
    }
)
records = st.tuples(
    st.sampled_from(KEYS),
    st.none() | st.lists(rules, min_size=1, max_size=3),
    st.integers(1, 9) | st.none(),
)


def value_of(found: list[dict[str, Any]] | None) -> bytes | None:
    if found is None:
        return None
    kept = [{n: v for n, v in rule.items() if v is not None} for rule in found]
    return json.dumps({"suppressions": kept}, ensure_ascii=False).encode()


@dataclass
class Plain:
    """What the topic's contract says, record by record."""

    held: dict[str, tuple[int, list[dict[str, Any]]]] = field(default_factory=dict)

    def apply(self, key: str, found: list[dict[str, Any]] | None, sequence: int | None) -> None:
        before = self.held.get(key, (0, []))[0]
        at = before if sequence is None else sequence
        if at >= before:
            self.held[key] = (at, found or [])

    def hit(self, key: str, tenant: str, lane: str) -> int | None:
        sequence, found = self.held.get(key, (0, []))
        in_force = any(
            rule["lane"] in ("*", lane)
            and rule["tenant"] in ("*", tenant)
            and rule["expires"] in (None, EXPIRES[1])
            for rule in found
        )
        return sequence if in_force else None


@given(st.lists(records, max_size=60), st.integers(1, 25))
def test_set_says_what_a_plain_dictionary_says(
    found: list[tuple[str, list[dict[str, Any]] | None, int | None]], size: int
) -> None:
    table, plain = SuppressionSet(), Plain()
    for start in range(0, len(found), size):
        page = found[start : start + size]
        table.apply(
            SuppressionPage(
                0,
                start + len(page),
                range(start, start + len(page)),
                [key.encode() for key, _, _ in page],
                [value_of(rules_) for _, rules_, _ in page],
                [None if s is None else str(s).encode() for _, _, s in page],
            )
        )
        for record in page:
            plain.apply(*record)
    for key in KEYS:
        for tenant in TENANTS[:2]:
            for lane in Lane:
                expected = plain.hit(key, tenant, lane.value)
                assert table.hit(RecipientKey(key), tenant, lane, NOW) == expected
    assert len(table) == sum(bool(rules_) for _, rules_ in plain.held.values())


@given(st.sets(st.integers(0, 2**128 - 1) | st.integers(0, 3000), max_size=2000))
def test_no_key_is_lost_while_the_table_grows(numbers: set[int]) -> None:
    table = SuppressionSet()
    keys = [f"{number:032x}" for number in numbers]
    value = value_of(
        [{"lane": "*", "reason": "complaint", "tenant": "*", "created": "x", "rule_version": 1}]
    )
    for start in range(0, len(keys), 300):
        page = keys[start : start + 300]
        table.apply(
            SuppressionPage(
                0,
                0,
                range(len(page)),
                [k.encode() for k in page],
                [value] * len(page),
                [b"7"] * len(page),
            )
        )
    assert all(table.hit(key, "shop", Lane.BULK, NOW) == 7 for key in keys)
    assert table.hit("f" * 31 + "0", "shop", Lane.BULK, NOW) is None or (2**128 - 16) in numbers
    assert len(table) == len(keys)
