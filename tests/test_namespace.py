"""What ``import orbitgp`` offers, and that it is quick."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import orbitgp
from tests import new_process

MODULES = ("datasets", "kernels", "likelihoods", "metrics", "orbits", "plotting", "saving", "training")


@pytest.mark.slow
def test_import_alone_is_enough() -> None:
    """In a process of its own: here, other tests have imported everything already."""
    process = new_process.start(import_alone)
    process.join()
    assert process.exitcode == 0


def import_alone() -> None:
    """What is not ours stays imported: that takes seconds."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "orbitgp"]:
        del sys.modules[name]
    again = import_module("orbitgp")
    assert again is not orbitgp
    for name in (*MODULES, "elbo", "compare", "TrainingOptions"):
        getattr(again, name)
    _ = again.likelihoods.Gaussian, again.datasets.digits, again.metrics.nll, again.plotting.show


def test_import_loads_nothing() -> None:
    heavy = {"torch", "numpy", "sklearn", "gpytorch", "matplotlib", "typer"}
    code = f"import sys, orbitgp; print(*{heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == ""


def test_dir_shows_what_users_call_and_all_of_it_is_there() -> None:
    names = dir(orbitgp)
    assert set(orbitgp.__all__) | {"__version__"} == set(names)
    assert {"InvariantGPClassifier", "InvariantGPRegressor", "InvariantKernel", "TrainingOptions", *MODULES} <= set(
        names
    )
    assert all(getattr(orbitgp, name) is not None for name in names)


def test_other_names_are_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'orbitgp' has no attribute 'reproduce'"):
        orbitgp.reproduce  # noqa: B018


def test_the_citation_names_the_version() -> None:
    """pyproject.toml reads it from the package."""
    citation = (Path(__file__).parents[1] / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {orbitgp.__version__}\n" in citation
