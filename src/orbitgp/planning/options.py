"""How to train: one frozen object of named numbers, checked when it is made.

:class:`TrainingOptions` is what users set, by ``InvariantGPRegressor(training=TrainingOptions(learning_rate=0.01))``.
:class:`TrainerSettings` is what a :class:`~orbitgp.training.trainer.Trainer` gets: those options, and the length of the
run, the number of samples and a seed, which estimators take as arguments of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import isfinite
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, get_args

from orbitgp.inference.local_parameters import LocalName
from orbitgp.orbits.sampling import Policy

PrecisionName = Literal["auto", "float32", "float64"]
Options = TypeVar("Options", bound="TrainingOptions")

_NAMES = {"Policy": get_args(Policy), "LocalName": get_args(LocalName), "PrecisionName": get_args(PrecisionName)}
_MAY_BE_ZERO = ("start_rows", "seed")


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainingOptions:
    """How to train, beyond the arguments of the estimators.

    The object is immutable. ``set_params`` returns a changed copy, and an estimator's
    ``set_params(training__jitter=1e-5)`` replaces its options by such a copy, so that grid searches reach every option.
    ``print`` shows all options, and ``repr`` those that differ from the defaults.

        >>> TrainingOptions(learning_rate=0.01).learning_rate
        0.01

    Args:
        sampler: how the base draws of a group are made: ``qmc`` or ``iid`` (:mod:`orbitgp.orbits.sampling`).
        inducing_samples: orbit samples over which each inducing variable averages. 1 as in the paper; averages are
            close to f, and the bound is tighter (:class:`orbitgp.InvariantGP`). By default 8, or all elements of a
            finite orbit that has up to 32.
        num_predict_samples: orbit samples for each row at prediction, the same base draws for every row. By default
            128, or all elements of a finite orbit that has up to 1,024. Exact models predict with training's draws.
        learning_rate: the rate of all but the inducing points. By default 0.03.
        posterior_rows: the most data that one refit of q(u) sees.
        local: where local parameters come from, if the likelihood has any: ``kept`` or ``network``.
        start_rows: the data by whose exact evidence the best of several starts is chosen
            (:mod:`orbitgp.training.starts`); 0 starts from the orbit as given. So do sparse runs of fewer than 100
            steps.
        jitter: added to the diagonal of the inducing points' covariance, as a fraction of the kernel's first variance,
            or of the noise where that is less and inputs are in float64.
        exact_seconds: exact inference is taken by default where it would take no longer, at a nominal speed of the
            device (:mod:`orbitgp.planning.cost`).
        dtype: ``float32``, ``float64`` or ``auto`` (float32 for images); linear algebra is in float64 either way.
    """

    sampler: Policy = "qmc"
    inducing_samples: int | None = None
    num_predict_samples: int | None = None
    learning_rate: float | None = None
    posterior_rows: int = 20_000
    local: LocalName = "kept"
    start_rows: int = 150
    jitter: float = 1e-6
    exact_seconds: float = 150.0
    dtype: PrecisionName = "auto"

    # These annotations are checked below, with a sentence about each mistake. So shape checkers leave it alone.
    __no_type_check__ = True

    def __post_init__(self) -> None:
        for field in fields(self):
            value, (kind, _, other) = getattr(self, field.name), str(field.type).partition(" | ")
            if value is None and other:
                continue
            if kind == "int":
                value = whole_number(field.name, value, least=0 if field.name in _MAY_BE_ZERO else 1)
            else:
                name = field.name
                value = positive_number(name, value) if kind == "float" else one_of(name, value, _NAMES[kind])
            object.__setattr__(self, field.name, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All options by name, as scikit-learn asks for them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self: Options, **params: Any) -> Options:
        """A copy with these options changed; the object itself is immutable."""
        if unknown := [name for name in params if name not in self.get_params()]:
            known = ", ".join(self.get_params())
            raise ValueError(f"{type(self).__name__} has no option {unknown[0]!r}: it has {known}.")
        return replace(self, **params)

    def changed(self) -> set[str]:
        """The names of the options that differ from the defaults."""
        return {f.name for f in fields(self) if getattr(self, f.name) != f.default}

    def __sklearn_clone__(self: Options) -> Options:
        """Immutable, so that a clone of an estimator shares it."""
        return self

    def __repr__(self) -> str:
        changed = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.name in self.changed()]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __str__(self) -> str:
        lines = [f"  {name} = {value!r}" for name, value in self.get_params().items()]
        return "\n".join([type(self).__name__, *lines])


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainerSettings(TrainingOptions):
    """All that a :class:`~orbitgp.training.trainer.Trainer` needs to know: options, budget, samples and seed.

    Args:
        max_steps: stochastic steps, or evaluations of the bound, after which training ends.
        max_seconds: seconds after which it ends, if that is sooner.
        batch_size: data for each gradient.
        num_samples: orbit samples of each of them. None where a finite orbit is enumerated.
        posterior_samples: orbit samples of each datum that a refit of q(u) sees. None: ``num_samples``.
        climb_samples: draws of an infinite orbit with which a run climbs the collapsed bound. None: as needed.
        seed: of all that is random in training.
    """

    max_steps: int = 300
    max_seconds: float | None = None
    batch_size: int = 512
    num_samples: int | None = 32
    posterior_samples: int | None = None
    climb_samples: int | None = None
    seed: int = 0


# Checks of single values. Grid searches hand over NumPy's numbers: whole numbers become ``int``, and numbers ``float``.


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """A whole number that is at least ``least``."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, got {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")
    return int(value)


def positive_number(name: str, value: Any) -> float:
    """A finite number above zero."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    if not (isfinite(number := float(value)) and number > 0):
        raise ValueError(f"{name} must be positive and finite, got {value}.")
    return number


def one_of(name: str, value: Any, known: tuple[str, ...]) -> str:
    """One of these names."""
    if not (isinstance(value, str) and value in known):
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
    return str(value)
