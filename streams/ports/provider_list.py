"""What the duty on the provider's suppression list needs: the list itself, and what PostgreSQL keeps about it."""

from datetime import timedelta
from typing import Protocol

from streams.domain.provider_list import (
    ImportProgress,
    ListPage,
    Outcome,
    PageTaken,
    Recipients,
    Turn,
    Unlisting,
    UnlistingBacklog,
)


class ListedAtProvider(Protocol):
    """The account-level list. Its calls are limited to about one a second for the whole account, all other callers included."""

    @property
    def region(self) -> str:
        """The region whose list it is; Misconfigured without one."""

    async def stop(self) -> None: ...

    async def page(self, token: str | None) -> ListPage | Outcome:
        """The entries behind the token, from the beginning without one, or why there are none. Unavailable: no answer."""

    async def unlist(self, address: str) -> Outcome:
        """Deletes the address. Unavailable: no answer, it may be deleted or not."""


class ProviderListStore(Protocol):
    """What is kept of the list in PostgreSQL; each method one transaction, safe beside other replicas."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def prepare(self, scope: str) -> None:
        """Must be called before the others."""

    async def take_turn(self, scope: str, *, lasting: timedelta) -> Turn | None:
        """Leave for one call, if there is anything to do and no other replica has a turn or a pause; ours until it ends, or for so long."""

    async def end_turn(self, scope: str, pause: timedelta) -> None:
        """The call is over; nobody makes another for so long."""

    async def take_page(
        self, scope: str, turn: Turn, found: Recipients, next_token: str | None
    ) -> PageTaken | None:
        """Suppresses the recipients, but for those lifted since, and moves the import on; None if it has moved on meanwhile."""

    async def begin_anew(self, scope: str, turn: Turn) -> None:
        """The import begins with the first page again."""

    async def progress(self, scope: str) -> ImportProgress: ...

    async def claim_unlisting(self) -> Unlisting | None:
        """The next address to delete; it is not given out again for a minute, longer after each try."""

    async def unlisted(self, unlisting: Unlisting) -> None:
        """Done: forgets the address, unless it was asked for again meanwhile."""

    async def forget_address(self, unlisting: Unlisting) -> None:
        """The provider never takes this address: a person has to look."""

    async def backlog(self) -> UnlistingBacklog: ...
