"""The parts of the sender: intake -> dispatch -> calls -> outcomes."""
