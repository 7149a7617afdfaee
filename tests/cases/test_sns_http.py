"""Every case of kind sns_http, over real HTTP and a real Kafka."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import devservers
from streams.domain.topics import Topics
from tests.cases.http_runner import run_group
from tests.cases.loading import Group, folder, groups, read_folder
from tests.cases.scene import Scene, scene

pytestmark = pytest.mark.servers
GROUPS = groups(read_folder(folder()), "sns_http")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    runner: asyncio.Runner
    scene: Scene


@pytest.fixture(scope="module")
def stage(servers: devservers.Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One loop for all cases of this kind, so that clients that stay connected may."""
    directory: Path = tmp_path_factory.mktemp("authority")
    topics = Topics(prefix=f"cases-http-{os.getpid()}.")
    with asyncio.Runner() as runner:
        opened = scene(servers, topics, directory)
        made = runner.run(opened.__aenter__())
        try:
            yield Stage(runner=runner, scene=made)
        finally:
            runner.run(opened.__aexit__(None, None, None))


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.id)
def test_sns_http(stage: Stage, group: Group) -> None:
    reports, skipped = stage.runner.run(run_group(stage.scene, group))
    if reports:
        pytest.fail("\n".join(reports), pytrace=False)
    if len(skipped) == len(group.variants):
        pytest.skip("the product does not have what these variants need")
