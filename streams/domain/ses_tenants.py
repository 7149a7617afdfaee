"""Which of our tenants are tenants of SES too, and what they are called there."""

import re
from collections.abc import Sequence
from typing import Final

from streams.domain.errors import Misconfigured

_ENTRY: Final = re.compile(r"\*|([A-Za-z0-9_-]{1,64})(?:=([A-Za-z0-9_-]{1,64}))?")


class SesTenants:
    """From entries like "shop", "shop=shop-in-ses" or "*" for all others. Calls of the rest carry no TenantName."""

    def __init__(self, entries: Sequence[str] = ()) -> None:
        self._names: dict[str, str] = {}
        self._all = False
        for entry in entries:
            found = _ENTRY.fullmatch(entry)
            if found is None:
                raise Misconfigured(
                    f"MAILSTREAMS_SES_TENANTS: {entry} is not a tenant, a tenant=name in SES, or *"
                )
            if entry == "*":
                self._all = True
            else:
                self._names[found[1]] = found[2] or found[1]

    def name_of(self, tenant: str) -> str | None:
        """The TenantName of the tenant's calls."""
        return self._names.get(tenant, tenant if self._all else None)
