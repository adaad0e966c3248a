"""Which invariance do the data support? Models are compared by their evidence, and the comparison is checked.

:func:`compare` trains a model for each orbit under the same budget, and says which the evidence prefers, or that it cannot
tell. :func:`profile` trains one orbit at several fixed values of one of its quantities.
"""

from orbitgp.comparison.compare import compare, profile
from orbitgp.comparison.result import Comparison, Profile, Row

__all__ = ["Comparison", "Profile", "Row", "compare", "profile"]
