"""What the requests of the endpoint hold in memory together."""

MAX_BODIES = 64 * 1024 * 1024
MAX_IN_FLIGHT = 1024


class RequestLoad:
    """What all requests hold together: at most 64 MiB of bodies, and 1,024 whole bodies that are worked on."""

    def __init__(self) -> None:
        self.size = 0
        self.requests = 0

    def share(self) -> "RequestShare":
        return RequestShare(self)


class RequestShare:
    """What one request holds, given back at its end."""

    def __init__(self, load: RequestLoad) -> None:
        self._load = load
        self._size = 0
        self._admitted = False

    def __enter__(self) -> "RequestShare":
        return self

    def __exit__(self, *_: object) -> None:
        self._load.size -= self._size
        self._load.requests -= self._admitted

    def grown(self, size: int) -> int:
        self._size += size
        self._load.size += size
        return self._size

    def fits(self) -> bool:
        return self._load.size <= MAX_BODIES

    def admitted(self) -> bool:
        self._admitted = self._load.requests < MAX_IN_FLIGHT
        self._load.requests += self._admitted
        return self._admitted
