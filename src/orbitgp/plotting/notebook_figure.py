"""A figure of matplotlib that a notebook shows as it stands.

Figures that ``pyplot`` does not manage are shown only after ``%matplotlib inline``. This one brings its own picture. It imports
matplotlib, an extra, so :mod:`orbitgp.plotting.figures` imports this module only when something is drawn.
"""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure that is a picture where it is the last line of a cell."""

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.savefig(file, format="png", dpi=min(self.dpi, 100))
        return file.getvalue()
