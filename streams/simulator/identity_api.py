"""SES v2 calls on identities."""

from streams.simulator.addresses import check_domain, mailbox_address
from streams.simulator.configuration_sets import ConfigurationSets
from streams.simulator.identities import Identities, Identity
from streams.simulator.members import Members, required_text, structures, text
from streams.simulator.ses_api import Operation, SesCall, page

_PATH = "/v2/email/identities"


class IdentityApi:
    """An identity is verified as soon as it is created: there is nobody to click on a link."""

    def __init__(self, *, identities: Identities, sets: ConfigurationSets) -> None:
        self._identities = identities
        self._sets = sets

    def operations(self) -> list[Operation]:
        one = _PATH + "/{name}"
        return [
            Operation("POST", _PATH, self._create),
            Operation("GET", _PATH, self._list),
            Operation("GET", one, self._get),
            Operation("DELETE", one, self._delete),
            Operation("PUT", one + "/configuration-set", self._put_set),
        ]

    def _create(self, call: SesCall) -> Members:
        name = required_text(call.members, "EmailIdentity").lower()
        if "@" in name:
            mailbox_address(name)
        else:
            check_domain(name)
        identity = Identity(
            name=name,
            configuration_set=self._known_set(call),
            tags=structures(call.members, "Tags"),
        )
        self._identities.create(identity)
        return {
            "IdentityType": _kind(identity),
            "VerifiedForSendingStatus": identity.verified,
            "DkimAttributes": _dkim(identity),
        }

    def _list(self, call: SesCall) -> Members:
        shown = [
            {
                "IdentityType": _kind(identity),
                "IdentityName": identity.name,
                "SendingEnabled": identity.verified,
                "VerificationStatus": _status(identity),
            }
            for identity in self._identities
        ]
        return page(call, "EmailIdentities", shown)

    def _get(self, call: SesCall) -> Members:
        identity = self._identities.get(call.path("name"))
        shown: Members = {
            "IdentityType": _kind(identity),
            "FeedbackForwardingStatus": True,
            "VerifiedForSendingStatus": identity.verified,
            "VerificationStatus": _status(identity),
            "DkimAttributes": _dkim(identity),
            "Policies": {},
            "Tags": identity.tags,
        }
        if identity.configuration_set is not None:
            shown["ConfigurationSetName"] = identity.configuration_set
        return shown

    def _delete(self, call: SesCall) -> Members:
        self._identities.delete(call.path("name"))
        return {}

    def _put_set(self, call: SesCall) -> Members:
        identity = self._identities.get(call.path("name"))
        identity.configuration_set = self._known_set(call)
        return {}

    def _known_set(self, call: SesCall) -> str | None:
        name = text(call.members, "ConfigurationSetName")
        return None if name is None else self._sets.get(name).name


def _kind(identity: Identity) -> str:
    return "EMAIL_ADDRESS" if identity.is_address else "DOMAIN"


def _status(identity: Identity) -> str:
    return "SUCCESS" if identity.verified else "PENDING"


def _dkim(identity: Identity) -> Members:
    """Nothing is signed: the simulator sends no mail."""
    return {
        "SigningEnabled": False,
        "Status": "NOT_STARTED" if identity.is_address else _status(identity),
        "Tokens": [],
        "SigningAttributesOrigin": "AWS_SES",
    }
