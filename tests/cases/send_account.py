"""What the fake SES says of its account."""

from collections.abc import Mapping
from typing import Any

from tests.cases.loading import Variant
from tests.cases.ses_script import Script


def account(variant: Variant, script: Script) -> Mapping[str, Any]:
    """What GetAccount says. The word of the variant counts from the first call on, since what SES answers to it is the case;
    where no call may come, from the beginning."""
    word = variant.get("account", "healthy") if script.calls or not script.stub else "healthy"
    used = 50_000.0 if word == "quota-used" else 100.0
    return {
        "DedicatedIpAutoWarmupEnabled": False,
        "EnforcementStatus": "SHUTDOWN" if word == "shutdown" else "HEALTHY",
        "ProductionAccessEnabled": word != "sandbox",
        "SendQuota": {
            "Max24HourSend": 50_000.0,
            "MaxSendRate": float(variant.get("limits", {}).get("max_send_rate", 1000)),
            "SentLast24Hours": used,
        },
        "SendingEnabled": word not in ("paused", "shutdown"),
    }
