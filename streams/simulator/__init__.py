"""A simulator of Amazon SES v2 and SNS that keeps its own truth.

    SendEmail -> refuse | accept -> ledger -> event plan -> records -> SNS -> subscribers
                   (faults and held answers lie to the caller; the ledger never does)

It imports nothing from the rest of `streams`, so that it can judge it. `server` has the class for
tests and `run` for a process of its own, `settings` what both take.
"""
