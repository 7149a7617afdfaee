"""What stages say of a server that refuses them, and that all goes on afterwards."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tests.scenarios.scene import Scene


def told(scene: Scene, stage: str, words: str) -> bool:
    """Whether the stage says so in its readiness."""
    process = "sender-1" if stage == "sender" else "around"
    return any(
        name.startswith(f"{stage}.") and words in why
        for name, why in scene.missing(process).items()
    )


def all_told(scene: Scene, stages: Sequence[str], words: str) -> Callable[[], bool]:
    """Whether each of them has said it by now; one duty may say so for a moment only."""
    silent = set(stages)

    def ask() -> bool:
        silent.difference_update({stage for stage in silent if told(scene, stage, words)})
        return not silent

    return ask


def goes_on(scene: Scene, ids: list[str]) -> None:
    """Everything is sent, once, and every stage is ready and still the same process."""
    scene.wait_submitted(ids, 150)
    scene.assert_each_accepted_once(ids)
    for name in ("around", "sender-1"):
        scene.wait_ready(name, 60)
        assert len(scene.said(name, "process.started")) == 1


@contextmanager
def under_way(scene: Scene, count: int) -> Iterator[list[str]]:
    """So many mails while the block runs, of which SES has taken some and answered none; answers and events come at its end."""
    scene.control("hold", answers=True, events=True)
    ids = scene.commit(f"held-{n}@example.com" for n in range(count))
    scene.wait_for(lambda: scene.simulator_state()["held"] > 0, "calls under way", timeout_s=60)
    yield ids
    scene.control("hold", answers=False, events=False)
