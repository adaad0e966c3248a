"""Training: everything that is learned, by maximising the bound."""

from orbitgp.planning.options import TrainingOptions

__all__ = ["TrainingOptions"]
