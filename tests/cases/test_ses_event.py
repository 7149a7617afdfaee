"""Every case of kind ses_event, through the endpoint, a real Kafka and the fold on a real PostgreSQL."""

import pytest

from tests.cases.conftest import RunEvent
from tests.cases.loading import Group, folder, groups, read_folder

pytestmark = pytest.mark.servers
GROUPS = groups(read_folder(folder()), "ses_event")


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.id)
def test_ses_event(run_event: RunEvent, group: Group) -> None:
    if reports := run_event(group):
        pytest.fail("\n".join(reports), pytrace=False)
