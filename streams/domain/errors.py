"""The exceptions of mailstreams.

MailstreamsError
├── BadMessage      the message is bad: set it aside with this reason and go on
├── Overloaded      we are full: slow down, take no more
├── Unavailable     the world is down: retry, commit nothing
└── Misconfigured   a person has to change something; the text says what
"""


class MailstreamsError(Exception):
    """The root; never raised itself."""


class BadMessage(MailstreamsError):
    """One message or record cannot be processed, now or later; its neighbours can."""


class Overloaded(MailstreamsError):
    """A bound of ours is reached; the caller may try again later."""


class Unavailable(MailstreamsError):
    """A server or the network fails; the same work may succeed later, so nothing is committed."""


class Misconfigured(MailstreamsError):
    """The process cannot work as it is set up; one sentence that names the remedy."""
