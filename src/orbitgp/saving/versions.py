"""The versions of the packages that wrote a file."""

from __future__ import annotations

from importlib.metadata import version

from orbitgp import __version__


def versions(*packages: str) -> dict[str, str]:
    """The versions of orbitgp, which need not be installed to be used, and of these packages."""
    return {"orbitgp": __version__, **{name: version(name) for name in packages}}
