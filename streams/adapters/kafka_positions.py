"""Committed positions of a consumer group, asked of a broker that may still be finding the group's coordinator."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

_AGAIN_S: Final = 0.1


async def committed_positions(
    admin: AIOKafkaAdminClient, group: str, partitions: Sequence[TopicPartition] | None = None
) -> Mapping[TopicPartition, int]:
    """The positions that the group has committed, -1 where it has none; of all its partitions if none are named.

    The first group of a cluster makes the topic of the groups, and a restarted broker loads it: meanwhile there is no
    coordinator, and aiokafka's admin client does not ask again. This one does, for as long as its caller waits (asyncio.timeout).
    """
    while True:
        try:
            found = await admin.list_consumer_group_offsets(group, partitions=partitions)
        except KafkaError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(_AGAIN_S)
        else:
            return {partition: position.offset for partition, position in found.items()}
