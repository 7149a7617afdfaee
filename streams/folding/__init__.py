"""The parts of the recipients stage: one transaction of the fold, and what it counts."""
