"""How a command of an operator ends, if not well: one sentence on standard error and an exit code by kind."""

from enum import IntEnum

from streams.domain.errors import MailstreamsError


class Code(IntEnum):
    """The exit codes of every command; docs/commands.md tells them."""

    DONE = 0
    # A server is away, something was left as it was, or an overview wants attention.
    FAILED = 1
    # A wrong argument or setting, or something that is refused as asked: nothing was done.
    REFUSED = 2
    # Nothing has this id, address or name.
    UNKNOWN = 3
    # Several messages are meant: name one.
    SEVERAL = 4
    # It is so already.
    NOTHING = 5


class Ending(MailstreamsError):
    """The command has done what it could; the text says what came of it."""

    def __init__(self, code: Code, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
