"""`python -m devservers`: run a command with servers, or keep servers running."""

from devservers.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
