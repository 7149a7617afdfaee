"""Several stages in one process: python -m tests.scenarios.stages relay events recipients scheduler."""

import sys

from streams import wiring
from streams.commands.running import run_async

if __name__ == "__main__":
    run_async(lambda: wiring.run(sys.argv[1:]))
