"""What a training step costs, against the operations that it cannot do without. Run ``python -m benchmarks``."""
