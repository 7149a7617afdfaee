"""Every case of kind sns_http, over real HTTP and a real Kafka."""

import pytest

from tests.cases.conftest import RunHttp
from tests.cases.loading import Group, folder, groups, read_folder

pytestmark = pytest.mark.servers
GROUPS = groups(read_folder(folder()), "sns_http")


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.id)
def test_sns_http(run_http: RunHttp, group: Group) -> None:
    reports, skipped = run_http(group)
    if reports:
        pytest.fail("\n".join(reports), pytrace=False)
    if len(skipped) == len(group.variants):
        pytest.skip("the product does not have what these variants need")
