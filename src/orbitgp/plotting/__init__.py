"""Pictures of orbits: what an orbit does to an input, how it grew while it was learned, and its ranges before and after.

Every function returns a ``matplotlib.figure.Figure`` and touches no global state. Save it with ``figure.savefig(...)``, or let
a notebook show it: it does so where the figure is the last line of a cell. ``theme`` is ``"light"`` (paper) or ``"dark"``
(slides). matplotlib is the extra ``orbitgp[plot]``.
"""

from orbitgp.plotting.figures import ranges
from orbitgp.plotting.samples import film, sensitivities, sensitivity, show

__all__ = ["film", "ranges", "sensitivities", "sensitivity", "show"]
