"""The invariant Gaussian process: its prior, its posterior, its bound and its evidence."""
