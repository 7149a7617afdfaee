"""Measurements that stay: `python -m benchmarks NAME`, `--quick` for a smoke test. The last line is one JSON object."""
