"""Three brokers, and a broker behind a proxy: asked for, used, gone."""

import asyncio
import os
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError

import devservers
from devservers import ServerSettings
from devservers.errors import StartFailed
from devservers.settings import KAFKA_BOOTSTRAP_SERVERS, SERVERS
from devservers.tcp_proxy import TcpProxy

pytestmark = pytest.mark.servers


@pytest.fixture(autouse=True)
def _local_servers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SERVERS, raising=False)
    monkeypatch.delenv(KAFKA_BOOTSTRAP_SERVERS, raising=False)


def test_three_brokers_take_records_while_any_of_them_is_down_and_leave_nothing() -> None:
    with devservers.running(ServerSettings(postgres=False, kafka_brokers=3)) as servers:
        addresses = servers.environment()[KAFKA_BOOTSTRAP_SERVERS]
        pids = [broker.pid for broker in servers.brokers]
        assert len(addresses.split(",")) == len(set(pids)) == 3

        async def use() -> None:
            async with AIOKafkaProducer(bootstrap_servers=addresses, acks="all") as producer:
                await replicated_topic(addresses)
                for partition, broker in enumerate(servers.brokers):
                    broker.kill()
                    async with asyncio.timeout(60):
                        await producer.send_and_wait("kept", b"x", partition=partition)
                    broker.start()

        asyncio.run(use())
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


async def replicated_topic(addresses: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=addresses)
    await admin.start()
    try:
        await admin.create_topics([NewTopic("kept", 3, 3)])
        async with asyncio.timeout(60):
            while True:
                try:
                    [topic] = await admin.describe_topics(["kept"])
                    if all(len(part["isr"]) == 3 for part in topic["partitions"]):
                        return
                except (LeaderNotAvailableError, UnknownTopicOrPartitionError):
                    pass
                await asyncio.sleep(0.05)
    finally:
        await admin.close()


def test_several_brokers_are_refused_on_data_that_are_kept(tmp_path: Path) -> None:
    settings = ServerSettings(postgres=False, kafka_brokers=3, data_directory=tmp_path)
    with pytest.raises(StartFailed, match="throw-away"), devservers.running(settings):
        pass


def test_clients_that_come_by_the_proxy_stay_behind_it_and_others_do_not() -> None:
    with TcpProxy(kafka=True) as proxy:
        settings = ServerSettings(postgres=False, kafka_proxy_port=proxy.port)
        with devservers.running(settings) as servers:
            [broker] = servers.brokers
            proxy.upstream = broker.proxied_port

            async def told(address: str) -> set[int]:
                async with AIOKafkaProducer(bootstrap_servers=address) as producer:
                    return {b.port for b in producer.client.cluster.brokers()}

            assert asyncio.run(told(f"127.0.0.1:{proxy.port}")) == {proxy.port}
            assert proxy.connections > 0
            assert asyncio.run(told(broker.bootstrap_servers)) == {broker.port}
            assert servers.environment() == {KAFKA_BOOTSTRAP_SERVERS: broker.bootstrap_servers}
    assert os.environ.get(KAFKA_BOOTSTRAP_SERVERS) is None
