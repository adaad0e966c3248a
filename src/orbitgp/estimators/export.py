"""A fitted model as a program of PyTorch: one file that predicts where orbitgp is not installed.

The program is the graph of one prediction, from inputs of any number of rows to class probabilities, or to means and
standard deviations in the units of y. ``torch.export`` follows the code of the model once. What does not depend on the
inputs is computed before, and is numbers in the graph: base draws, what g sees of the inducing sets, and L^-1. So the
program has no factorisation and no random number, and ONNX can be made from it.

A graph has no control flow that depends on numbers. In it, products give the distances between points
(:func:`orbitgp.kernels.covariance.loses_digits`), and all rows go through at once.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from orbitgp.inference.model import InvariantGP
from orbitgp.inference.moments import WhitenedMeans
from orbitgp.inference.prior import Means
from orbitgp.kernels import Covariance
from orbitgp.likelihoods import Classification, HeteroscedasticGaussian, Noise
from orbitgp.orbits import FiniteOrbit, Orbit, Pairing, Samples
from orbitgp.orbits.sampling import Inputs, Transformed, base_draws
from orbitgp.saving.container import replace

Outputs = Float[Tensor, "rows classes"] | tuple[Float[Tensor, "rows *outputs"], Float[Tensor, "rows *outputs"]]
OutputsOf = Callable[[Means, Means], Outputs]

_CHECKED_ROWS = 16  # a program that predicts these as the model does is written
_ERROR = 1e-5  # of a probability, or of a mean or standard deviation in units of the latter


class Exports:
    """Estimators that can be exported."""

    model_: Any

    def export(self, path: str | Path) -> None:
        """Write a program that predicts without orbitgp: ``torch.export.load(path).module()(x)``.

        ``x`` is a tensor (N, *``input_shape_``), in single precision for images and in double precision for tables.
        Memory grows with N. A classifier yields what ``predict_proba`` does, a regressor the mean and the standard
        deviation. Models of exact inference are made small first, by ``compact``. What ``torch.export.load`` returns,
        ``torch.onnx.export`` turns into ONNX. Unlike a saved model, a program is code: load those that you trust.
        """
        check_is_fitted(self)
        path, model = Path(path), self.model_
        if not isinstance(model, InvariantGP):
            raise ValueError("a program would hold all data of exact inference: export model.compact().")
        if getattr(self, "columns_", None) is not None:
            raise ValueError(
                "the model was fitted to a table with words, dates or gaps: fit it to numbers to export it."
            )
        if not path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into.")
        if type(model.covariance.of_features) is Covariance:
            raise ValueError("kernels other than RBF and Matérn cannot be exported: take one of these, scaled or not.")
        num_samples = self._num_predict_samples()  # type: ignore[attr-defined]
        outputs = _outputs_of(self)
        program = _Program(deepcopy(model).requires_grad_(False), *model.draws(num_samples, 0), outputs)
        checked = model.inducing.detach()[:_CHECKED_ROWS]
        expected = outputs(*model.predict(checked, num_samples))
        with warnings.catch_warnings(action="ignore"):  # of torch, about itself
            exported = _exported(program, torch.cat([checked, checked])[:2])
            if not _agree(exported.module()(checked), expected):
                raise ValueError("the program would not predict what the model does: keep the model.")
            file = io.BytesIO()
            torch.export.save(exported, file)
        replace(path, lambda unfinished: unfinished.write_bytes(file.getvalue()))


def _outputs_of(estimator: Any) -> OutputsOf:
    """What is predicted from mean and variance of f."""
    likelihood = deepcopy(estimator.likelihood_).requires_grad_(False)
    if isinstance(likelihood, Classification):
        return lambda mean, variance: likelihood.predictive(mean, variance).probs
    if not isinstance(likelihood, Noise) or isinstance(likelihood, HeteroscedasticGaussian):
        raise ValueError(f"{type(likelihood).__name__} cannot be exported: take Gaussian or Student-t noise.")
    zero = torch.zeros(1, likelihood.num_latents, dtype=torch.float64)
    noise = likelihood.predictive(zero, zero).std.square()
    numbers = estimator.target_mean_, estimator.target_scale_, estimator._interval_scale()
    shift, unit, std_unit = (torch.tensor(values, dtype=torch.float64) for values in numbers)

    def outputs(mean: Means, variance: Means) -> Outputs:
        found = mean * unit + shift, (variance + noise).sqrt() * std_unit
        return (found[0][:, 0], found[1][:, 0]) if estimator._flat_targets else found

    return outputs


class _Program(nn.Module):
    """A prediction, for any number of rows. The model is no part of this module: its numbers become constants."""

    features: Tensor
    whitening: Tensor

    def __init__(self, model: InvariantGP, num_samples: int | None, seed: int, outputs: OutputsOf) -> None:
        super().__init__()
        self.given = model, outputs, _with_fixed_draws(model.orbit, model.inducing, num_samples, seed)
        with torch.no_grad(), model.cached_inducing_features():
            factor = model.factor()
            self.register_buffer("features", model._kept_features)
            self.register_buffer("whitening", torch.linalg.inv(factor).mT.contiguous())

    def forward(self, x: Inputs) -> Outputs:
        model, outputs, transform = self.given
        samples = Samples(transform(x)[:, None], Pairing.exact())
        ku, prior_mean, kff = model.kernel_means(samples, features=self.features)
        return outputs(*model.marginals(WhitenedMeans(ku @ self.whitening, prior_mean, kff, samples.pairing)))


@torch.no_grad()
def _exported(program: _Program, two: Inputs) -> torch.export.ExportedProgram:
    """The graph of this program, for any number of rows; it is followed with two."""
    try:
        program(two)  # tables that are kept are made before, from numbers
        exported = torch.export.export(program, (two,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    except Exception as error:  # orbits, kernels and feature maps may be anybody's
        first = next(iter(str(error).splitlines()), type(error).__name__)
        own = "in orbits and maps of your own, take x.shape[0] for len(x), and no branch that depends on numbers"
        raise ValueError(f"torch.export cannot follow this model ({own}): {first[:200]}") from error
    # No constant is a part of another: files have whole ones.
    exported.constants.update({name: value.clone() for name, value in exported.constants.items()})
    return exported


def _with_fixed_draws(
    orbit: Orbit, like: Inputs, num_samples: int | None, seed: int
) -> Callable[[Inputs], Transformed]:
    """The samples of ``orbit.shared_samples``, with draws that are made once."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(orbit, FiniteOrbit):
        if num_samples is None or num_samples >= orbit.size:
            return orbit.elements
        index = torch.randperm(orbit.size, generator=generator)[:num_samples]
        return lambda x: orbit.select(x, index.expand(x.shape[0], -1))
    shape = (1, 1, num_samples or 1, orbit.draws_for(like.shape[1:]))
    u = base_draws("qmc", *shape, generator=generator, dtype=like.dtype)[0]
    return lambda x: orbit.transform(x, u.expand(x.shape[0], -1, -1))


def _agree(found: Outputs, expected: Outputs) -> bool:
    if isinstance(found, Tensor) and isinstance(expected, Tensor):
        return bool(torch.allclose(found, expected, rtol=0.0, atol=_ERROR))
    unit = expected[1]
    return all(bool(((a - b).abs() <= _ERROR * unit).all()) for a, b in zip(found, expected, strict=True))
