"""What can go wrong with the development servers. Each message is one sentence that names the remedy.

DevServersError
    PrerequisiteMissing     a program or package is not there, or too old
    DownloadFailed          a jar could not be fetched, or is not the one the lock names
    DiskFull                too little free space for data and caches
    PortBusy                a port that was asked for is taken
    StartFailed             a server ended or stayed silent while it started
    ProcessGone             a process that should be signalled has ended
    ExternalServer          the server belongs to somebody else, so it cannot be stopped or killed here
    NotStarted              the server was left out by the settings
    AlreadyRunning          another supervisor holds the state directory
"""


class DevServersError(Exception):
    """Base of all; its text is one sentence for a person."""


class PrerequisiteMissing(DevServersError):
    """A program or package is not there, or too old."""


class DownloadFailed(DevServersError):
    """A jar could not be fetched, or is not the one the lock names."""


class DiskFull(DevServersError):
    """Too little free space for data and caches."""


class PortBusy(DevServersError):
    """A port that was asked for is taken."""


class StartFailed(DevServersError):
    """A server ended or stayed silent while it started."""


class ProcessGone(DevServersError):
    """A process that should be signalled has ended."""


class ExternalServer(DevServersError):
    """The server belongs to somebody else, so it cannot be stopped or killed here."""


class NotStarted(DevServersError):
    """The server was left out by the settings."""


class AlreadyRunning(DevServersError):
    """Another supervisor holds the state directory."""
