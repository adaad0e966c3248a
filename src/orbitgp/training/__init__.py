"""Training: everything that is learned, by maximising the bound."""

from orbitgp.training.options import TrainingOptions

__all__ = ["TrainingOptions"]
