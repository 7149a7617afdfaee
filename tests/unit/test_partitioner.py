"""The partition of a key is the one that Java's default partitioner finds."""

import pytest
from aiokafka.partitioner import murmur2 as reference
from hypothesis import given
from hypothesis import strategies as st

from streams.domain.partitioner import murmur2, partition_of, positive_hashes


@given(st.binary(max_size=70))
def test_one_key_hashes_as_the_reference_does(key: bytes) -> None:
    assert murmur2(key) == reference(key)


@given(st.lists(st.binary(max_size=70), max_size=60))
def test_many_keys_of_any_lengths_hash_as_the_reference_does(keys: list[bytes]) -> None:
    assert positive_hashes(keys) == [reference(key) & 0x7FFFFFFF for key in keys]


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=13, max_size=80))
def test_many_keys_of_32_bytes_hash_as_the_reference_does(keys: list[bytes]) -> None:
    assert positive_hashes(keys) == [reference(key) & 0x7FFFFFFF for key in keys]


@pytest.mark.parametrize("length", range(10))
def test_a_batch_of_keys_of_each_remainder_modulo_four_hashes_as_the_reference_does(
    length: int,
) -> None:
    keys = [bytes((n + i) % 256 for i in range(length)) for n in range(200, 230)]
    assert positive_hashes(keys) == [reference(key) & 0x7FFFFFFF for key in keys]


@pytest.mark.parametrize(
    ("key", "partitions", "partition"),
    [(b"100:48069", 12, 9), (b"TT0124", 15, 10), (b"user1@example.com", 12, 7)],
)
def test_known_keys_go_to_their_known_partitions(
    key: bytes, partitions: int, partition: int
) -> None:
    assert partition_of(key, partitions) == partition
    assert [h % partitions for h in positive_hashes([key] * 20)] == [partition] * 20
