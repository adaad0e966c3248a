"""Pictures of what an orbit does to an input.

:func:`show` returns a ``matplotlib.figure.Figure`` and touches no global state. Save it with ``figure.savefig(...)``,
or let a notebook show it, as the last line of a cell. matplotlib is the extra ``orbitgp[plot]``.
"""

from orbitgp.plotting.samples import show

__all__ = ["show"]
