"""How far each partition is done, and what of that Kafka knows. A partition that was taken away starts anew when it comes back."""

from collections.abc import Iterable, Mapping

from aiokafka import TopicPartition


class Progress:
    """One partition in one assignment. done: the offset after the last record that is finished with; held: it is ours."""

    __slots__ = ("committed", "done", "held")

    def __init__(self) -> None:
        self.done: int | None = None
        self.committed: int | None = None
        self.held = True


class Positions:
    """Only partitions that we hold are in it, so nothing is ever committed for one that was lost."""

    def __init__(self) -> None:
        self._held: dict[TopicPartition, Progress] = {}

    def progress(self, partition: TopicPartition) -> Progress:
        """That of the present assignment."""
        return self._held.setdefault(partition, Progress())

    def lost(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            progress = self._held.pop(partition, None)
            if progress is not None:
                progress.held = False

    def uncommitted(self) -> dict[TopicPartition, int]:
        return {
            partition: held.done
            for partition, held in self._held.items()
            if held.done is not None and held.done != held.committed
        }

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            if partition in self._held:
                self._held[partition].committed = offset
