"""The name of a member of a consumer group that survives its restarts."""

import re
from collections.abc import Mapping
from typing import Final

AUTO: Final = "auto"
NONE: Final = "none"
# A pod of a StatefulSet is named by its ordinal, one of a Deployment by five letters and digits.
_ORDINAL: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?-\d{1,4}")


def group_instance(wanted: str, *, host: str, environment: Mapping[str, str]) -> str | None:
    """The instance id, None for a membership that ends with the process.

    Two processes of one name throw each other out of the group, and a name that never comes back holds its partitions until the
    session ends: so one is only derived where the platform gives names of which both are known.
    """
    if wanted == NONE:
        return None
    if wanted != AUTO:
        return wanted
    in_kubernetes = "KUBERNETES_SERVICE_HOST" in environment
    return host if in_kubernetes and _ORDINAL.fullmatch(host) else None
