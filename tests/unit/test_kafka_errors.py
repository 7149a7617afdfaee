"""What an error of Kafka tells whoever reads the log or readiness."""

import pytest
from aiokafka.errors import KafkaStorageError, NotEnoughReplicasError, UnknownTopicOrPartitionError

from streams.adapters.kafka import kafka_errors, tell
from streams.domain.errors import Unavailable

ADVICE = "min.insync.replicas asks for, and that their disks have room"


@pytest.mark.parametrize("error", [NotEnoughReplicasError(), KafkaStorageError(), TimeoutError()])
async def test_kafka_that_takes_no_records_is_told_with_what_to_look_at(error: Exception) -> None:
    with pytest.raises(Unavailable, match=ADVICE):
        async with kafka_errors():
            raise error
    assert tell(error, "Kafka did not take a batch").startswith("Kafka did not take a batch: ")


def test_other_errors_are_told_without_advice_that_would_mislead() -> None:
    assert tell(UnknownTopicOrPartitionError()).endswith("UnknownTopicOrPartitionError()")
