"""Kafka's own Java client in a process of its own: python -m tests.integration.java_partitions JVM CLASSPATH [KAFKA TOPIC].

Reads lines of "<key in hex> <partitions>" from standard input and writes the partition of each. With a broker and a
topic the keys are sent by the real producer and its acknowledgements say where they went.
"""

import sys
from collections.abc import Iterator
from typing import Any


def main(jvm: str, class_path: str, *broker: str) -> None:
    import jpype  # type: ignore[import-untyped]

    jpype.startJVM(jvm, "-Xmx256m", "-XX:-UsePerfData", classpath=class_path.split(":"))
    cases = [line.split() for line in sys.stdin if line.strip()]
    keys = [(bytes.fromhex(key), int(partitions)) for key, partitions in cases]
    partitions = sent(jpype, keys, *broker) if broker else computed(jpype, keys)
    for partition in partitions:
        sys.stdout.write(f"{partition}\n")
    sys.stdout.flush()


def computed(jpype: Any, keys: list[tuple[bytes, int]]) -> Iterator[int]:
    """What the built-in partitioner says."""
    partitioner = jpype.JClass("org.apache.kafka.clients.producer.internals.BuiltInPartitioner")
    for key, partitions in keys:
        yield int(partitioner.partitionForKey(jpype.JArray(jpype.JByte)(key), partitions))


def sent(
    jpype: Any, keys: list[tuple[bytes, int]], bootstrap_servers: str, topic: str
) -> list[int]:
    """Where the records of a producer with its defaults went."""
    serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
    properties = jpype.JClass("java.util.Properties")()
    for name, value in {
        "bootstrap.servers": bootstrap_servers,
        "key.serializer": serializer,
        "value.serializer": serializer,
    }.items():
        properties.setProperty(name, value)
    producer = jpype.JClass("org.apache.kafka.clients.producer.KafkaProducer")(properties)
    record = jpype.JClass("org.apache.kafka.clients.producer.ProducerRecord")
    array = jpype.JArray(jpype.JByte)
    futures = [producer.send(record(topic, array(key), array(b"v"))) for key, _ in keys]
    found = [int(future.get().partition()) for future in futures]
    producer.close()
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
