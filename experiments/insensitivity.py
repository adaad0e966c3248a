"""How little a function cares: insensitivity, as appendix A of the paper measures it.

A strictly invariant function has the same value at x and at every x_a. An insensitive one rarely has a very different
value. How rarely follows from the expected squared deviation, by Markov's inequality:

    P( [f(x) - f(x_a)]^2 > eps E[f(x) - f(x_a)]^2 ) <= 1/eps

Under the prior, with f normalised to unit variance so that "different" has a scale, that number is 2 (1 - E_a k(x,
x_a)), with k the normalised :class:`~orbitgp.kernels.invariant.InvariantKernel`: the lemma of appendix A. A group gives
expected covariance 1 and deviation 0.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from orbitgp.kernels.covariance import covariance
from orbitgp.kernels.invariant import InvariantKernel
from orbitgp.orbits import FiniteOrbit, Orbit, Pairing
from orbitgp.orbits.sampling import Elements, Inputs

Rows = Float[Tensor, " rows"]  # one number for each input
Taken = Callable[[Inputs], Elements]
"""The elements that are taken of the orbit of each row, by the same draws for every row."""

DEFAULT_SAMPLES = 64  # of an infinite orbit; the prior needs their third power in kernel values for each row


@dataclass(frozen=True, repr=False)
class Insensitivity:
    """What may be expected of f(x) - f(x_a) for each row x, for a random element x_a of its orbit and a random function
    f.

    Attributes:
        expected_covariance: E_a k(x, x_a) under the normalised prior, at most 1.
        expected_squared_deviation: E [f(x) - f(x_a)]^2.
        elements: how many elements of the orbit of each row were taken.
        exact: whether those are all there are.
    """

    expected_covariance: Rows
    expected_squared_deviation: Rows
    elements: int
    exact: bool

    def bound(self, eps: float) -> Rows:
        """The squared deviation that is exceeded with probability at most 1/eps: 2 eps (1 - E_a k(x, x_a))."""
        if not eps > 0:
            raise ValueError(f"eps must be positive, got {eps}.")
        return eps * self.expected_squared_deviation

    def quantile(self, prob: float) -> Rows:
        """A squared deviation that is *not* exceeded with at least this probability: ``bound(1 / (1 - prob))``."""
        if not 0 <= prob < 1:
            raise ValueError(f"prob must be at least 0 and below 1, got {prob}.")
        return self.bound(1 / (1 - prob))

    def __len__(self) -> int:
        return len(self.expected_covariance)

    def __repr__(self) -> str:
        rows, elements = (
            f"{n} {noun}{'s' * (n != 1)}" for n, noun in ((len(self), "row"), (self.elements, "orbit element"))
        )
        title = f"Insensitivity under the prior: {rows}, {elements}"
        title += " (all of them)" if self.exact else " (a sample)"
        if not len(self):
            return title
        cov, dev = self.expected_covariance, self.expected_squared_deviation
        deviation = self.quantile(0.9).sqrt()
        return "\n".join(
            [
                title,
                "                                mean       worst row",
                f"  expected covariance           {cov.mean():<9.4g}  {cov.min():.4g}",
                f"  expected squared deviation    {dev.mean():<9.4g}  {dev.max():.4g}",
                f"  |f(x) - f(x_a)|, 90 % below   {deviation.mean():<9.4g}  {deviation.max():.4g}",
            ]
        )


@torch.no_grad()
def insensitivity(
    kernel: Kernel,
    orbit: Orbit,
    x: Inputs,
    *,
    num_samples: int | None = None,
    image_shape: tuple[int, ...] | None = None,
    seed: int = 0,
) -> Insensitivity:
    """How much f, the mean over the orbit of g ~ GP(0, kernel), may change within the orbit of each row.

    Args:
        kernel: k_g, the kernel of g.
        orbit: what may happen to x.
        x: inputs, as vectors or images.
        num_samples: how many elements of the orbit to take; by default all of a finite one and 64 of an infinite one.
            Those of an infinite orbit are the draws that predictions use, the same for every row.
        image_shape: the shape of the images that the rows of x hold, where x has vectors and the orbit acts on images.
        seed: of those draws.
    """
    features = torch.Size(image_shape) if image_shape else x.shape[1:]
    if features.numel() != x.shape[1:].numel():
        raise ValueError(f"image_shape {tuple(features)} does not fit inputs of shape {tuple(x.shape[1:])}.")
    orbit.check(features)
    if isinstance(orbit, FiniteOrbit) and orbit.weights() is not None:
        raise ValueError("insensitivity takes equally likely elements: give it no Weighted.")
    if num_samples is None and not isinstance(orbit, FiniteOrbit):
        num_samples = DEFAULT_SAMPLES

    def taken(x: Inputs) -> Elements:
        return orbit.shared_samples(x, num_samples, seed).points.flatten(1, 2)

    images = x.reshape(len(x), *features)
    cov, dev = _under_prior(kernel, taken, images)
    elements = taken(images[:1]).shape[1] if len(x) else 0
    exact = isinstance(orbit, FiniteOrbit) and elements == orbit.size
    return Insensitivity(cov, dev, elements, exact)


def _under_prior(kernel: Kernel, taken: Taken, images: Inputs) -> tuple[Rows, Rows]:
    """E_a k(x, x_a) with unit variance, and 2 (1 - E_a k(x, x_a)): the expectation in the lemma of appendix A."""
    if isinstance(kernel, InvariantKernel):
        raise TypeError("insensitivity averages over the orbit itself: give it the base_kernel of the InvariantKernel.")
    if kernel.batch_shape:
        raise ValueError(f"insensitivity needs one kernel, got a batch of shape {tuple(kernel.batch_shape)}.")
    k_g = covariance(deepcopy(kernel).double())  # one minus a number close to one needs double precision
    cov = torch.empty(len(images), dtype=torch.float64, device=images.device)
    for i, image in enumerate(images):
        xa = taken(image[None])
        orbits = k_g.features(torch.cat([xa, taken(xa[0])]).flatten(2).double())  # of x, then of each x_a
        variance = k_g.of_features.expectations(orbits[:, None], orbits[:1, 0], Pairing.exact())[1]
        scale = variance.clamp_min(torch.finfo(variance.dtype).tiny).rsqrt()
        cov[i] = (k_g.of_features.cross(orbits[:1], orbits[1:])[0] * scale[0] * scale[1:]).mean()
    # A correlation within rounding of one is one, and no correlation is larger.
    cov = torch.where(cov > 1 - 32 * torch.finfo(cov.dtype).eps, 1.0, cov)
    return cov.to(images.dtype), (2 * (1 - cov)).to(images.dtype)
