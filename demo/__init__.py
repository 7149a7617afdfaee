"""The whole pipeline on this machine: real servers, every stage a process of its own, judged by the simulator's ledger."""
