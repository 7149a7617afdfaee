"""Every case of kind ses_send: an outbox row, real servers and stages, and a fake SES."""

import pytest

from tests.cases.conftest import RunSend
from tests.cases.loading import Group, folder, groups, read_folder

# One group of xdist, since its variants run side by side already.
pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("ses_send")]
GROUPS = groups(read_folder(folder()), "ses_send")


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.id)
def test_ses_send(run_send: RunSend, group: Group) -> None:
    if reports := run_send(group):
        pytest.fail("\n".join(reports), pytrace=False)
