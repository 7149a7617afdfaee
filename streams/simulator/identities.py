"""Addresses and domains that may send, and the check that SES makes of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from streams.simulator.addresses import domain_of, is_mailbox_simulator
from streams.simulator.refusals import already_exists, not_found, not_verified


@dataclass(slots=True, kw_only=True)
class Identity:
    """One address or domain, in lower case."""

    name: str
    verified: bool = True
    configuration_set: str | None = None
    """What a call uses that names none."""
    tags: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_address(self) -> bool:
        return "@" in self.name


class Identities:
    """The identities of the account; unless `checked`, every sender counts as verified."""

    def __init__(self, *, checked: bool, verified: Iterable[str] = ()) -> None:
        self.checked = checked
        self._identities = {name.lower(): Identity(name=name.lower()) for name in verified}

    def __iter__(self) -> Iterator[Identity]:
        return iter(self._identities.values())

    def create(self, identity: Identity) -> None:
        if identity.name in self._identities:
            raise already_exists(f"Email identity {identity.name} already exist.")
        self._identities[identity.name] = identity

    def put(self, identity: Identity) -> None:
        self._identities[identity.name] = identity

    def get(self, name: str) -> Identity:
        found = self._identities.get(name.lower())
        if found is None:
            raise not_found(f"Email identity {name} does not exist.")
        return found

    def delete(self, name: str) -> None:
        del self._identities[self.get(name).name]

    def default_set(self, source: str) -> str | None:
        """The configuration set of the address, else that of its domain."""
        for name in (source.lower(), domain_of(source)):
            found = self._identities.get(name)
            if found is not None and found.configuration_set is not None:
                return found.configuration_set
        return None

    def check(self, *, source: str, recipients: Iterable[str], sandbox: bool, region: str) -> None:
        """The sender must be verified if that is checked; in the sandbox each recipient must be."""
        failed = [source] if self.checked and not self._is_verified(source) else []
        if sandbox:
            failed += [
                item
                for item in recipients
                if not is_mailbox_simulator(item) and not self._is_verified(item)
            ]
        if failed:
            raise not_verified(list(dict.fromkeys(failed)), region)

    def _is_verified(self, address: str) -> bool:
        found = (self._identities.get(name) for name in (address.lower(), domain_of(address)))
        return any(identity is not None and identity.verified for identity in found)
