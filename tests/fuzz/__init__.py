"""Random problems, hostile files and injected faults, from seeds: ``python -m tests.fuzz --help``."""
