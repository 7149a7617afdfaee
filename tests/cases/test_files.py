"""Every file of the folder follows FORMAT.md; one of kind scenario, which no runner can read, names the test that covers it."""

import pytest

from tests.cases.loading import CaseFile, folder, read_folder
from tests.cases.scenarios import covering_test
from tests.cases.words import TOLD_IN_PROSE

FILES = read_folder(folder())


def test_the_folder_holds_cases() -> None:
    assert FILES, f"there is no case file (*.json) in {folder()}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.id)
def test_file(file: CaseFile) -> None:
    if file.errors:
        pytest.fail(file.report, pytrace=False)
    if file.kind in TOLD_IN_PROSE:
        covered_by = covering_test(file.id)
        if covered_by is None:
            pytest.skip(f"{file.id} is told in prose (kind {file.kind}) and has no test here")
        pytest.skip(f"{file.id} is told in prose (kind {file.kind}): {covered_by} is its test")
