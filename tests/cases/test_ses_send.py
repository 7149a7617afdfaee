"""Every case of kind ses_send: an outbox row, real servers and stages, and a fake SES."""

import pytest

from tests.cases.conftest import RunSend
from tests.cases.loading import Group, folder, groups, read_folder

# What a test waits for is the whole module's work, since all variants begin with the first one.
pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]
GROUPS = groups(read_folder(folder()), "ses_send")


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.id)
def test_ses_send(run_send: RunSend, group: Group) -> None:
    if reports := run_send(group):
        pytest.fail("\n".join(reports), pytrace=False)
