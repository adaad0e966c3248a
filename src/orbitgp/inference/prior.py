"""The prior: the mean of g, and f of data whose orbits are finite.

The orbit is enumerated, K_f has a closed form (:mod:`orbitgp.kernels.dispatch`), or S fixed draws shared by all data stand
for the orbit: a finite one, and a model of its own.
"""

from __future__ import annotations

from copy import copy
from typing import Literal, TypeVar

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.inference import orbit_gram
from orbitgp.inference.memory import chunk_elements, in_parts
from orbitgp.inference.orbit_gram import Seen
from orbitgp.kernels import Covariance, covariance
from orbitgp.kernels.dispatch import closed_form
from orbitgp.orbits import FiniteOrbit, Identity, Orbit, Pairing
from orbitgp.orbits.sampling import Inputs

MeanName = Literal["zero", "constant", "linear"]
Means = Float[Tensor, "rows latents"]

EXACT = Pairing.exact()
NOISE_OVER_ROUNDING = 1e3  # the least noise, in units of the rounding of a kernel, that single precision is enough for


class PriorMean(nn.Module):
    """m_g(x) = bias + W (x - centre) / unit: ``zero``, ``constant`` or ``linear``, for each latent function.

    ``centre`` and ``unit`` are where the inputs of g lie and how far apart: W learns alike in any units of x. They start from
    the first inducing points. :meth:`place` takes them from orbit samples of the data, which one inducing point cannot tell.
    """

    centre: Tensor
    unit: Tensor

    def __init__(self, name: MeanName, inducing: Float[Tensor, "inducing dim"], num_latents: int) -> None:
        super().__init__()
        if name not in ("zero", "constant", "linear"):
            raise ValueError(f"mean must be 'zero', 'constant' or 'linear', got {name!r}.")
        zeros = torch.zeros(num_latents, dtype=torch.float64)
        self.bias = nn.Parameter(zeros, requires_grad=name != "zero")
        self.weight = nn.Parameter(zeros.new_zeros(inducing.shape[1], num_latents)) if name == "linear" else None
        self.register_buffer("centre", zeros.new_zeros(inducing.shape[1]))
        self.register_buffer("unit", zeros.new_ones(()))
        self.place(inducing.detach().cpu())

    @torch.no_grad()
    def place(self, points: Float[Tensor, "points dim"]) -> None:
        """Let the mean be linear around these points, in units of how far apart they are."""
        points = points.double()
        spread = points.var(0, correction=0).mean().sqrt()
        self.centre.copy_(points.mean(0))
        self.unit.copy_(torch.where(spread > 0, spread, 1.0))

    @torch.no_grad()
    def set_bias(self, bias: Float[Tensor, " latents"] | None) -> None:
        """Let this be the constant, if one was found."""
        if bias is not None and bias.isfinite().all():
            self.bias.copy_(bias)

    def without_bias(self, means: Means) -> Means:
        """Prior means less a constant that is to be found."""
        return means - self.bias if self.bias.requires_grad else means

    def forward(self, xa: Float[Tensor, "rows blocks size dim"]) -> Float[Tensor, "rows blocks latents"]:
        """The block means of m_g: linear in x, so the mean of the samples is enough."""
        if self.weight is None:
            return self.bias.expand(*xa.shape[:2], -1)
        return (xa.mean(2).double() - self.centre) / self.unit @ self.weight + self.bias


Prior = TypeVar("Prior", bound="FinitePrior")


class FinitePrior(nn.Module):
    """f of the data ``x``, averaged over finite orbits.

    ``num_samples`` fixed draws (seeded by ``seed``) stand for an infinite orbit, or for a finite one with more elements; None
    enumerates, or takes the closed form of k_f: the orbit then has one element, the input itself. Draws are the same for every
    input, in training and in prediction.
    """

    x: Tensor

    def __init__(
        self,
        kernel: Kernel,
        orbit: Orbit,
        x: Inputs,
        num_latents: int,
        mean: MeanName,
        num_samples: int | None,
        seed: int,
    ) -> None:
        super().__init__()
        self.orbit = orbit
        self.covariance = covariance(kernel.double(), tensor_cores=False)
        self.prior_mean = PriorMean(mean, x.flatten(1), num_latents)
        self.register_buffer("x", x)
        self.num_latents, self.num_samples, self.seed = num_latents, num_samples, seed

    @property
    def kernel(self) -> Kernel:
        return self.covariance.kernel

    @property
    def dtype(self) -> torch.dtype:
        """The precision of inputs."""
        return self.x.dtype

    @property
    def is_enumerated(self) -> bool:
        """Whether f needs no draws: the orbit is finite, or k_f has a closed form."""
        return isinstance(self.orbit, FiniteOrbit) or closed_form(self.kernel, self.orbit) is not None

    @property
    def _closed_form(self) -> Covariance | None:
        """k_f of the inputs themselves, if nothing is drawn. Made anew: kernel and orbit are parts of this module already."""
        return closed_form(self.kernel, self.orbit) if self.num_samples is None else None

    @property
    def vectors(self) -> Covariance:
        """The covariance whose mean over pairs of what g sees of two finite orbits is k_f."""
        return self._closed_form or self.covariance.of_features

    @property
    def learns_inputs(self) -> bool:
        """Whether feature map or orbit learn."""
        vectors = {id(p) for p in self.vectors.parameters()}
        inner = [p for p in (*self.orbit.parameters(), *self.covariance.parameters()) if id(p) not in vectors]
        return any(p.requires_grad for p in inner)

    def restricted(
        self: Prior, x: Inputs, num_samples: int | None, orbit: Orbit | None = None, seed: int | None = None
    ) -> Prior:
        """The same model of other data, draws or another orbit. Parameters are shared."""
        view = copy(self)
        view._modules, view._buffers = dict(self._modules), dict(self._buffers)
        view.x, view.num_samples = x, num_samples
        view.orbit = self.orbit if orbit is None else orbit
        view.seed = self.seed if seed is None else seed
        return view

    def samples(self, x: Inputs) -> Float[Tensor, "rows samples dim"]:
        """The finite orbit of each row."""
        orbit = self.orbit if self._closed_form is None else Identity()
        return orbit.shared_samples(x, self.num_samples, self.seed).points[:, 0].flatten(2)

    def seen_and_means(self, x: Inputs) -> tuple[Seen, Means]:
        """What g sees of the finite orbit of each row, and their prior mean; computed again for a gradient of many rows."""

        def of_part(x: Inputs) -> tuple[Tensor, Tensor]:
            samples = self.samples(x)
            return self.covariance.features(samples), self.prior_mean(samples[:, None])[:, 0]

        seen, means = in_parts(of_part, x.split(self.rows_at_once(x)))
        return seen, means

    def rows_at_once(self, x: Inputs) -> int:
        """How many rows are transformed and mapped at once."""
        return max(1, chunk_elements(x.device) // (16 * x[0].numel() * (self.num_samples or 1)))

    @torch.no_grad()
    def features(self, x: Inputs) -> Seen:
        """What g sees of the finite orbit of each row."""
        return self.seen_and_means(x)[0]

    @torch.no_grad()
    def gram(self) -> Float[Tensor, "rows rows"]:
        """K_f of the data."""
        return orbit_gram.gram(self.vectors, self.features(self.x))

    @torch.no_grad()
    def precise(self, seen: Seen, noise: Float[Tensor, "rows anylatents"]) -> Seen:
        """What g sees, in double precision where the noise is not far above the rounding of K_f: solutions divide by it."""
        if seen.dtype == torch.float64:
            return seen
        variance = self.vectors.expectations(seen[:4, None], seen[:1, 0], EXACT)[1].max()
        rounding = torch.finfo(seen.dtype).eps * float(variance)
        return seen if float(noise.min()) > NOISE_OVER_ROUNDING * rounding else seen.double()


def draw_normal(
    mean: Means, covariance: Float[Tensor, "anylatents rows rows"], count: int, generator: torch.Generator | None = None
) -> Float[Tensor, "count rows latents"]:
    """Draws from N(mean, covariance) of each latent function."""
    # Eigenvalues below zero are rounding: an invariant posterior is singular at inputs that share an orbit.
    values, vectors = torch.linalg.eigh(covariance)
    root = vectors * values.clamp_min(0.0).sqrt()[:, None, :]
    noise = torch.randn(count, *mean.mT.shape, 1, generator=generator, dtype=mean.dtype)
    return mean + (root @ noise.to(mean.device))[..., 0].mT
