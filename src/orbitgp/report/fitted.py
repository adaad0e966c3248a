"""What a report needs to know: fitted estimators, comparisons and profiles, which all belong to later layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from gpytorch.kernels import Kernel
from torch import nn

from orbitgp.inference.evidence import Evidence
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import Orbit
from orbitgp.orbits.description import Description
from orbitgp.training.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@runtime_checkable
class Fitted(Protocol):
    """A fitted estimator; the estimators document its attributes."""

    feature_map: nn.Module | None
    random_state: Any
    device: Any
    orbit_: Orbit
    kernel_: Kernel
    likelihood_: Likelihood
    model_: InvariantGP | ExactGP
    evidence_: Evidence
    inference_: Literal["exact", "sparse"]
    plausible_: dict[str, tuple[float, float] | None]
    input_shape_: tuple[int, ...]
    examples_: tuple[np.ndarray, np.ndarray]
    history_: list[Record]
    converged_: bool
    interrupted_: bool

    def describe(self) -> Description: ...


@runtime_checkable
class Classifies(Protocol):
    """An estimator that says how probable each class is."""

    classes_: np.ndarray

    def predict_proba(self, X: Any) -> np.ndarray: ...


@runtime_checkable
class Regresses(Protocol):
    """An estimator that predicts numbers, and how far off they may be."""

    def predict(self, X: Any, return_std: bool = False) -> Any: ...

    def predict_quantiles(self, X: Any, levels: Sequence[float]) -> np.ndarray: ...


@runtime_checkable
class Compared(Protocol):
    """Orbits that were ranked by their evidence. The template of the page reads its table, too."""

    sentences: list[str]
    settled: bool

    @property
    def best(self) -> str: ...

    @property
    def rows(self) -> Sequence[object]: ...

    def over_plain(self) -> float | None: ...

    def plot(self, ax: Axes | None = None) -> Axes: ...

    def to_dict(self) -> dict[str, Any]: ...


@runtime_checkable
class Profiled(Protocol):
    """The evidence over one quantity of an orbit, which was held at several values: a data class."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def quantity(self) -> str: ...

    def plot(self, ax: Axes | None = None) -> Axes: ...
