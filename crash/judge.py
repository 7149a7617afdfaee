"""The simulator as a process whose requests are too old after seconds instead of minutes: so a late call is fenced soon."""

import sys

from streams.simulator import sigv4
from streams.simulator.__main__ import main

if __name__ == "__main__":
    sigv4.MAX_AGE_S = float(sys.argv[1])
    main(sys.argv[2:])
