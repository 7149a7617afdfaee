"""Every query of the tables that grow with the mail has its plan tested, or a reason why not."""

from tests.integration.plan_queries import EXCEPTED, SQL, TESTED, named


def test_every_query_of_a_table_that_grows_has_a_plan_test_or_a_reason() -> None:
    asked = {path.stem for path in SQL.glob("*.sql") if named(path.stem)}
    assert len(asked) > 50
    assert asked == {*TESTED, *EXCEPTED}


def test_every_exception_is_a_query_and_has_a_reason() -> None:
    assert all(named(name) and reason for name, reason in EXCEPTED.items())
