"""The crash harness: the pipeline as many processes that are killed, frozen and cut off, judged by the simulator's ledger.

plan (by seed) -> load + disturbances on a running system -> quiet -> judged against ledger, tables and topics
"""
