"""The feature maps that have a name on the command line, for images and for signals.

Each is a class of :mod:`orbitgp.kernels`, or several, the outer one first. They are named here, and not imported: help and
completion must not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitgp.cli.own import is_own, make_own

if TYPE_CHECKING:
    from torch import nn

OF_IMAGES = {"gradients": ["OrientedGradients"], "framed-gradients": ["Frame", "OrientedGradients"], "frame": ["Frame"]}
OF_SIGNALS = {"shapes": ["ShapeHistograms"], "derivative": ["SmoothDerivative"]}
NAMES = ("none", *OF_IMAGES, *OF_SIGNALS)


def listed(names: dict[str, list[str]]) -> str:
    """The names in words."""
    *others, last = names
    return f"{', '.join(others)} or {last}"


def make_feature_map(text: str) -> nn.Module | None:
    """The map of this name, or of a class of the user's own."""
    from torch import nn

    from orbitgp import kernels

    if text not in NAMES and not is_own(text):
        raise ValueError(f"--feature-map is {', '.join(NAMES)} or a class of your own, as in my.py:Spectrum, not {text!r}.")
    if is_own(text):
        own: nn.Module = make_own(text, nn.Module)
        return own
    made: nn.Module | None = None
    for name in reversed((OF_IMAGES | OF_SIGNALS).get(text, [])):
        made = getattr(kernels, name)(*([] if made is None else [made]))
    return made
