"""A progress bar in a terminal or a notebook; nothing elsewhere, such as in a log file."""

from __future__ import annotations

import sys
import warnings
from typing import Any


def progress_bar(show: bool, unit: str, total: int | None = None) -> Any:
    """A bar of tqdm. It is imported here, since its notebook form warns where ipywidgets is not installed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        from tqdm.auto import tqdm
    in_notebook = "ipykernel" in sys.modules  # where the output is no terminal, but is shown
    return tqdm(total=total, unit=f" {unit}", disable=not show or (False if in_notebook else None), dynamic_ncols=True)
