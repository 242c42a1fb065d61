"""Benchmarks: run one as ``python -m tests.benchmarks.graph``; each prints what it compares."""
