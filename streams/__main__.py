"""The command `mailstreams`."""

from streams.cli import main

if __name__ == "__main__":
    main()
