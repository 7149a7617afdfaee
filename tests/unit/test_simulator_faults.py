"""The script of lies."""

from typing import Any

import pytest

from streams.simulator.faults import Fault, FaultScript, read_faults
from streams.simulator.strict import BadDocumentError


def script(*documents: dict[str, Any]) -> FaultScript:
    result = FaultScript()
    result.replace(read_faults(list(documents), "seed"))
    return result


def names(faults: list[Fault | None]) -> list[str | None]:
    return [None if fault is None else fault.name for fault in faults]


def test_the_next_calls_get_their_faults_in_order_then_none() -> None:
    lies = script(
        {"when": "before", "lie": "close", "next": 2},
        {"when": "after", "lie": "hang", "next": 1},
    )
    given = names([lies.next_fault() for _ in range(4)])
    assert given == ["before close", "before close", "after hang", None]


def test_what_is_left_is_told() -> None:
    lies = script({"when": "before", "lie": "close", "next": 2})
    lies.next_fault()
    assert lies.as_json() == [{"when": "before", "lie": "close", "next": 1}]


def test_a_share_of_calls_is_hit_and_always_the_same_ones() -> None:
    document = {"when": "after", "lie": "reset", "share": 0.1}
    one = [script_call is not None for script_call in _calls(script(document), 2000)]
    two = [script_call is not None for script_call in _calls(script(document), 2000)]
    assert one == two
    assert 150 < sum(one) < 250


def _calls(lies: FaultScript, number: int) -> list[Fault | None]:
    return [lies.next_fault() for _ in range(number)]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            {"when": "before", "lie": "broken-body", "next": 1},
            "Fault 0: 'broken-body' is possible only after acceptance.",
        ),
        ({"when": "before", "lie": "close"}, "Fault 0 needs either 'next' or 'share'."),
        (
            {"when": "before", "lie": "close", "next": 1, "share": 0.5},
            "Fault 0 needs either 'next' or 'share'.",
        ),
        (
            {"when": "after", "lie": "error", "next": 1, "code": "InternalFailure"},
            "Field 'status' is missing in fault 0.",
        ),
        (
            {"when": "after", "lie": "error", "next": 1, "code": "X", "status": 200},
            "Field 'status' in fault 0 must be a whole number of at least 400.",
        ),
        ({"when": "after", "lie": "delay", "next": 1}, "Field 'seconds' is missing in fault 0."),
        (
            {"when": "after", "lie": "close", "next": 1, "seconds": 1},
            "Unknown field 'seconds' in fault 0; known fields: when, lie, next, seed.",
        ),
    ],
)
def test_bad_faults_are_named(document: dict[str, Any], message: str) -> None:
    with pytest.raises(BadDocumentError) as caught:
        script(document)
    assert str(caught.value) == message
