"""A simulator of Amazon SES v2, SNS and SQS that keeps its own truth.

    SendEmail, SendBulkEmail -> refuse | accept -> ledger -> event plan -> records
                   (faults and held answers lie to the caller; the ledger never does)

    records -> configuration set -> topics -> subscribers: endpoints and queues -> dead letters

It imports nothing from the rest of `streams`, so that it can judge it. `server` has the class for
tests and `run` for a process of its own, `settings` what both take.
"""
