"""Measurements that anyone can run again: `python -m engine.bench --help`."""
