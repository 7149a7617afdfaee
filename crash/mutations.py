"""Faults put into the product in a worker, to show that the harness finds them."""

from collections.abc import Callable
from typing import Final

Apply = Callable[[], None]


def apply(name: str, stage: str) -> None:
    """Breaks this process as the mutation says, if it is one of this stage."""
    of_stage, put_in = MUTATIONS[name]
    if of_stage == stage:
        put_in()


MUTATIONS: Final[dict[str, tuple[str, Apply]]] = {}
