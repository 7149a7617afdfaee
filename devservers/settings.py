"""What to start. Addresses in the environment win over local servers, each on its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from devservers.errors import PrerequisiteMissing

POSTGRES_DSN = "MAILSTREAMS_POSTGRES_DSN"
KAFKA_BOOTSTRAP_SERVERS = "MAILSTREAMS_KAFKA_BOOTSTRAP_SERVERS"
SERVERS = "MAILSTREAMS_SERVERS"
DEV_POSTGRES = "MAILSTREAMS_DEV_POSTGRES"
DEV_JAVA = "MAILSTREAMS_DEV_JAVA"
DEV_MAVEN = "MAILSTREAMS_DEV_MAVEN"
DEV_RUNS = "MAILSTREAMS_DEV_RUNS"


class Source(StrEnum):
    """Where a program comes from."""

    ANY = "any"
    SYSTEM = "system"
    WHEEL = "wheel"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Which servers, where from, and how they are set. Ports: 0 means a free one."""

    postgres: bool = True
    kafka: bool = True
    postgres_dsn: str | None = None
    kafka_bootstrap_servers: str | None = None
    postgres_port: int = 0
    kafka_port: int = 0
    kafka_brokers: int = 1  # more than one: a cluster on throw-away data, everything replicated
    kafka_proxy_port: int = 0  # of a proxy that stands before kafka.proxied_port
    postgres_source: Source = Source.ANY  # the system's from version 15 on, else the wheel's
    java_source: Source = Source.ANY  # the wheel's, else the system's from version 17 on
    postgres_options: Mapping[str, str] = field(default_factory=dict)
    kafka_options: Mapping[str, str] = field(default_factory=dict)
    data_directory: Path | None = None  # None: the data are thrown away at the end
    cache_directory: Path | None = None  # None: below $XDG_CACHE_HOME or ~/.cache
    runs_directory: Path | None = None  # of data that are thrown away; None: below the cache

    def with_environment(self, environment: Mapping[str, str] | None = None) -> ServerSettings:
        """The same with what the environment says and the settings left open."""
        env = os.environ if environment is None else environment
        return replace(
            self,
            postgres_dsn=self.postgres_dsn or env.get(POSTGRES_DSN) or None,
            kafka_bootstrap_servers=self.kafka_bootstrap_servers
            or env.get(KAFKA_BOOTSTRAP_SERVERS)
            or None,
            postgres_source=_source(self.postgres_source, env, DEV_POSTGRES),
            java_source=_source(self.java_source, env, DEV_JAVA),
            runs_directory=self.runs_directory or _path(env.get(DEV_RUNS)),
        )


class Kind(StrEnum):
    """What runs the servers that no address names."""

    LOCAL = "local"
    TESTCONTAINERS = "testcontainers"


def kind_of(environment: Mapping[str, str]) -> Kind:
    """What MAILSTREAMS_SERVERS says; local by default."""
    word = environment.get(SERVERS) or Kind.LOCAL
    try:
        return Kind(word)
    except ValueError:
        raise PrerequisiteMissing(
            f"{SERVERS} is {word!r}: set it to local or testcontainers, or unset it."
        ) from None


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _source(given: Source, env: Mapping[str, str], variable: str) -> Source:
    word = env.get(variable, "")
    if given is not Source.ANY or not word:
        return given
    try:
        return Source(word)
    except ValueError:
        raise PrerequisiteMissing(
            f"{variable} is {word!r}: set it to system or wheel, or unset it."
        ) from None
