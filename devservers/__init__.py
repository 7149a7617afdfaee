"""Real servers for the demo, the tests and the benchmarks: PostgreSQL and Apache Kafka from `pip` alone.

    with devservers.running(ServerSettings()) as servers:
        servers.postgres.dsn, servers.kafka.bootstrap_servers, servers.environment()

Not part of the wheel. Nothing it starts outlives the process that asked for it.
"""

from devservers.containers import running_in_containers
from devservers.errors import DevServersError
from devservers.places import memory_directory
from devservers.run import running
from devservers.servers import Servers
from devservers.settings import ServerSettings, Source

__all__ = [
    "DevServersError",
    "ServerSettings",
    "Servers",
    "Source",
    "memory_directory",
    "running",
    "running_in_containers",
]
