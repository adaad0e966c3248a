"""Which invariance do the data support? Models are compared by their evidence, and the comparison is checked.

:func:`compare` trains a model for each orbit under the same budget, and says which the evidence prefers, or that it
cannot tell. :func:`find_symmetry` searches among exchanges of columns and changes of sign.
"""

from orbitgp.comparison.compare import compare
from orbitgp.comparison.result import Comparison, Row
from orbitgp.comparison.symmetry import Symmetry, find_symmetry

__all__ = ["Comparison", "Row", "Symmetry", "compare", "find_symmetry"]
