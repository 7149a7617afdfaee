"""Every file of the folder follows FORMAT.md; kinds that have no runner yet are skipped, which is not green."""

import pytest

from tests.cases.loading import CaseFile, folder, read_folder
from tests.cases.words import NOT_BUILT

FILES = read_folder(folder())


def test_the_folder_holds_cases() -> None:
    assert FILES, f"there is no case file (*.json) in {folder()}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.id)
def test_file(file: CaseFile) -> None:
    if file.errors:
        pytest.fail(file.report, pytrace=False)
    if file.kind in NOT_BUILT:
        pytest.skip(f"the runner of kind {file.kind} is not built yet: this case was not run")
