"""A simulator of Amazon SES v2 and SNS that keeps its own truth.

It accepts, refuses and publishes as AWS does, really signs what it publishes, can lie on purpose
when told so, and keeps a ledger of what it accepted whatever the caller saw. It imports nothing
from the rest of `streams`, so that it can judge it.
"""

from streams.simulator.server import Simulator, run
from streams.simulator.settings import EventTimes, SimulatorSettings

__all__ = ["EventTimes", "Simulator", "SimulatorSettings", "run"]
