"""The table of legal transitions, and the schema's."""

import re
from itertools import product

import pytest

from streams.adapters.queries import sql_folder
from streams.domain.states import TRANSITIONS, State, is_legal


def _schema() -> str:
    return (sql_folder() / "schema.sql").read_text(encoding="utf-8")


def test_transitions_are_those_of_the_schema() -> None:
    function = re.search(r"FUNCTION email_outbox_transition\(\).*?\$\$;", _schema(), re.DOTALL)
    assert function is not None
    written = {tuple(pair.split(">")) for pair in re.findall(r"'(\w+>\w+)'", function[0])}
    assert written == {(before.value, after.value) for before, after in TRANSITIONS}


def test_transitions_that_pass_the_schema_unasked_are_legal() -> None:
    trigger = re.search(r"CREATE TRIGGER transition .*?EXECUTE", _schema(), re.DOTALL)
    assert trigger is not None
    unasked = re.findall(r"OLD\.state = '(\w+)' AND NEW\.state = '(\w+)'", trigger[0])
    assert unasked == [("pending", "sending"), ("sending", "submitted")]
    assert all(is_legal(State(before), State(after)) for before, after in unasked)


def test_states_are_those_of_the_schema() -> None:
    check = re.search(r"CONSTRAINT state_is_known CHECK \(state IN \((.*?)\)\)", _schema())
    assert check is not None
    assert set(re.findall(r"'(\w+)'", check[1])) == {state.value for state in State}


@pytest.mark.parametrize(
    "state", [State.SUBMITTED, State.SUPPRESSED, State.EXPIRED, State.CANCELLED]
)
def test_nothing_leads_out_of_a_final_state(state: State) -> None:
    assert not [after for after in State if after is not state and is_legal(state, after)]


def test_staying_is_legal_and_what_is_not_listed_is_not() -> None:
    for before, after in product(State, State):
        assert is_legal(before, after) == (before is after or (before, after) in TRANSITIONS)
