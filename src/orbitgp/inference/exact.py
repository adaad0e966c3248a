"""The invariant Gaussian process without inducing points: f at the data themselves.

The orbit is enumerated, K_f has a closed form (:mod:`orbitgp.kernels.closed_forms`), or S fixed draws shared by all data stand
for the orbit: a finite one, and a model of its own. K_f gives the log evidence (:mod:`orbitgp.inference.dense_posterior`):
exactly for a Gaussian or Dirichlet likelihood, by expectation propagation for two classes, and for the others as the bound that
their quadratic gives. With C_l = K_f + diag(noise_l), targets t and prior mean m, its gradient in K_f is
G = 1/2 sum_l (alpha_l alpha_l^T - C_l^-1) with alpha_l = C_l^-1 (t_l - m_l), and goes on into kernel, feature map and orbit
through the blocks of K_f (:mod:`orbitgp.inference.orbit_gram`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy, deepcopy
from typing import Any

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.inference import orbit_gram
from orbitgp.inference.dense_posterior import Locals, Observations, Solution, Targets, quadratic_at, solve
from orbitgp.inference.fresh_evidence import FreshEvidence, fresh_evidence
from orbitgp.inference.memory import chunk_elements, in_smaller_chunks
from orbitgp.inference.noisy_covariance import NoisyCovariance
from orbitgp.inference.prior_mean import MeanName, PriorMean
from orbitgp.kernels import Covariance, covariance
from orbitgp.kernels.closed_forms import closed_form
from orbitgp.likelihoods import Likelihood
from orbitgp.orbits import FiniteOrbit, Identity, Orbit, Pairing
from orbitgp.orbits.sampling import Inputs

_EXACT = Pairing.exact()
_PROBES = 4  # data
CLEAR = 1e3  # how far the noise must lie above the rounding of K_f, or K_f is made in double precision


class ExactGP(nn.Module):
    """A Gaussian process that is insensitive to an orbit, conditioned on all data exactly.

    ``num_samples`` fixed draws (seeded by ``seed``) stand for an infinite orbit, or for a finite one with more elements; None
    enumerates, or takes the closed form of k_f: the orbit then has one element, the input itself. Draws are the same for every
    input, in training and in prediction. ``by_bound``: the likelihood enters by its bound, as in a sparse model, even where
    expectation propagation is possible. :meth:`condition` must be called before predictions, and again after any parameter
    has changed.
    """

    x: Tensor
    weights: Tensor
    noise: Tensor

    def __init__(
        self,
        kernel: Kernel,
        orbit: Orbit,
        x: Inputs,
        num_latents: int = 1,
        mean: MeanName = "constant",
        num_samples: int | None = None,
        seed: int = 0,
        by_bound: bool = False,
    ) -> None:
        super().__init__()
        self.orbit = orbit
        self.covariance = covariance(kernel.double(), tensor_cores=False)
        self.prior_mean = PriorMean(mean, x.flatten(1), num_latents)
        self.register_buffer("x", x)
        self.register_buffer("weights", torch.zeros(len(x), num_latents, dtype=torch.float64))
        self.register_buffer("noise", torch.ones(len(x), 1, dtype=torch.float64))
        self.num_latents, self.num_samples, self.seed, self.by_bound = num_latents, num_samples, seed, by_bound
        self._inverted: dict[torch.device, NoisyCovariance] = {}

    @property
    def kernel(self) -> Kernel:
        return self.covariance.kernel

    @property
    def dtype(self) -> torch.dtype:
        """The precision of inputs."""
        return self.x.dtype

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_inverted": {}}  # made again when it is needed

    @property
    def is_enumerated(self) -> bool:
        """Whether f needs no draws: the orbit is finite, or k_f has a closed form."""
        return isinstance(self.orbit, FiniteOrbit) or closed_form(self.kernel, self.orbit) is not None

    @property
    def _closed_form(self) -> Covariance | None:
        """k_f of the inputs themselves, if nothing is drawn. Made anew: kernel and orbit are parts of this module already."""
        return closed_form(self.kernel, self.orbit) if self.num_samples is None else None

    @property
    def _vectors(self) -> Covariance:
        """The covariance whose mean over pairs of what g sees of two finite orbits is k_f."""
        return self._closed_form or self.covariance.of_features

    def samples(self, x: Inputs) -> Float[Tensor, "rows samples dim"]:
        """The finite orbit of each row."""
        orbit = self.orbit if self._closed_form is None else Identity()
        return orbit.shared_samples(x, self.num_samples, self.seed).points[:, 0].flatten(2)

    def features(self, x: Inputs) -> Float[Tensor, "rows samples dim"]:
        """What g sees of the finite orbit of each row."""
        return self.covariance.features(self.samples(x))

    @torch.no_grad()
    def _seen_and_means(self, x: Inputs) -> tuple[Float[Tensor, "rows samples dim"], Float[Tensor, "rows latents"]]:
        parts = [self._seen_and_means_of_few(part) for part in x.split(self._rows(x))]
        return torch.cat([seen for seen, _ in parts]), torch.cat([means for _, means in parts])

    def _seen_and_means_of_few(self, x: Inputs) -> tuple[Float[Tensor, "rows samples dim"], Float[Tensor, "rows latents"]]:
        samples = self.samples(x)
        return self.covariance.features(samples), self.prior_mean(samples[:, None])[:, 0]

    @torch.no_grad()
    def _training_inputs(self) -> tuple[Float[Tensor, "rows samples dim"], Float[Tensor, "rows latents"]]:
        """What g sees of the data, and their prior mean less a bias that is to be found."""
        return self._without_bias(*self._seen_and_means(self.x))

    def _without_bias(self, seen: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
        return seen, means - self.prior_mean.bias if self.prior_mean.bias.requires_grad else means

    def _rows(self, x: Inputs) -> int:
        """How many rows are transformed and mapped at once."""
        return max(1, chunk_elements(x.device) // (16 * x[0].numel() * (self.num_samples or 1)))

    @torch.no_grad()
    def gram(self) -> Float[Tensor, "rows rows"]:
        """K_f of the data."""
        return orbit_gram.gram(self._vectors, self._seen_and_means(self.x)[0])

    @torch.no_grad()
    def condition(self, likelihood: Likelihood, y: Targets, local: Locals | None = None) -> Solution:
        """The posterior given these targets, kept for predictions; local parameters start from ``local``."""
        seen, solution, _ = self._solved(likelihood, y, local)
        if solution.bias is not None and solution.bias.isfinite().all():
            self.prior_mean.bias.copy_(solution.bias)
        self.weights, self.noise = solution.weights, solution.system.noise
        self._inverted = {seen.device: solution.system}
        return solution

    @torch.no_grad()
    def log_evidence(self, likelihood: Likelihood, y: Targets, local: Locals | None = None) -> float:
        """The log evidence of the finite orbit; nothing is kept."""
        return self._solved(likelihood, y, local)[1].log_evidence

    def fresh_evidence(
        self, likelihood: Likelihood, y: Targets, local: Locals | None = None, sets: Sequence[int] = (1, 2)
    ) -> FreshEvidence:
        """The log evidence of the infinite orbit, by sets of draws that nothing was fitted to; by their numbers."""
        if self.num_samples is None:
            return FreshEvidence(self.log_evidence(likelihood, y, local), 0.0)
        means = self._training_inputs()[1]
        views = [self.restricted(self.x, self.num_samples, seed=self.seed + number) for number in sets]
        seen = [view._training_inputs()[0] for view in views]
        if not likelihood.num_locals:
            noise = Observations.of(likelihood.quadratic(y, None)).noise
            seen = [one.to(self._precise(seen[0], noise).dtype) for one in seen]

        def evidence(gram: Float[Tensor, "rows rows"]) -> Solution:
            return solve(gram, means, likelihood, y, local, self.prior_mean.bias.requires_grad, by_bound=self.by_bound)

        return fresh_evidence(self._vectors, seen, evidence)

    def restricted(self, x: Inputs, num_samples: int | None, orbit: Orbit | None = None, seed: int | None = None) -> ExactGP:
        """The same model of other data, draws or another orbit. Parameters are shared; it has no posterior of its own."""
        view = copy(self)
        view._modules, view._buffers = dict(self._modules), dict(self._buffers)
        view.x, view.num_samples, view._inverted = x, num_samples, {}
        view.orbit = self.orbit if orbit is None else orbit
        view.seed = self.seed if seed is None else seed
        return view

    @torch.no_grad()
    def _solved(
        self,
        likelihood: Likelihood,
        y: Targets,
        local: Locals | None,
        few: tuple[Float[Tensor, "rows samples dim"], Float[Tensor, "rows latents"]] | None = None,
        observed: Observations | None = None,
        with_gradient: bool = False,
    ) -> tuple[Float[Tensor, "rows samples dim"], Solution, orbit_gram.Kept | None]:
        """What g sees of the data, in the precision that the solution needs, the solution, and blocks of K_f for its gradient.

        ``few`` is what g sees, and ``observed`` what the targets say of f, if that is known. Blocks are kept if a gradient is
        wanted, and data are few.
        """
        seen, means = self._training_inputs() if few is None else self._without_bias(*few)
        vectors, learns_mean = self._vectors, self.prior_mean.bias.requires_grad
        knows_noise = not likelihood.num_locals
        if knows_noise:
            observed = Observations.of(likelihood.quadratic(y, None)) if observed is None else observed.detached()
            seen = self._precise(seen, observed.noise)
        while True:
            kept = None
            if with_gradient and orbit_gram.kept_elements(len(seen), seen.shape[1], seen.shape[2], seen.device):
                gram, kept = orbit_gram.gram_to_pull_back(vectors, seen, self._learns_inputs())
            else:
                gram = orbit_gram.gram(vectors, seen)
            try:
                solution = solve(gram, means, likelihood, y, local, learns_mean, with_gradient, observed, self.by_bound)
                enough = seen if knows_noise else self._precise(seen, solution.system.noise)
            except FloatingPointError:
                enough = seen.double()
                if enough is seen:
                    raise
            if enough is seen:
                return seen, solution, kept
            seen = enough

    @torch.no_grad()
    def _precise(
        self, seen: Float[Tensor, "rows samples dim"], noise: Float[Tensor, "rows anylatents"]
    ) -> Float[Tensor, "rows samples dim"]:
        """What g sees, in double precision where the noise is not far above the rounding of K_f: solutions divide by it."""
        if seen.dtype == torch.float64:
            return seen
        variance = self._vectors.expectations(seen[:_PROBES, None], seen[:1, 0], _EXACT)[1].max()
        rounding = torch.finfo(seen.dtype).eps * float(variance)
        return seen if float(noise.min()) > CLEAR * rounding else seen.double()

    def _conditioned_on(self) -> Float[Tensor, "rows samples dim"]:
        """What g sees of the data, in the precision in which they were conditioned on."""
        return self._precise(self._seen_and_means(self.x)[0], self.noise)

    def evidence_with_gradient(self, likelihood: Likelihood, y: Targets, local: Locals | None = None) -> Solution:
        """The log evidence; its gradient is added to the parameters of kernel, feature map, orbit, likelihood and mean."""
        # What few data take to be seen is kept for the gradient; that of many is computed again.
        few = self._seen_and_means_of_few(self.x) if self._learns_inputs() and len(self.x) <= self._rows(self.x) else None
        observed = None if likelihood.num_locals else Observations.of(likelihood.quadratic(y, None))
        seen, solution, kept = self._solved(likelihood, y, local, few, observed, with_gradient=True)
        system, weights = solution.system, solution.weights
        if observed is None:
            observed = Observations.of(quadratic_at(likelihood, y, solution.local, self.by_bound))
        total, diagonals = system.total_and_diagonals(self.num_latents)
        gradient = 0.5 * (weights @ weights.mT - total)
        to_noise = 0.5 * (weights.square() - diagonals)
        # d/dt = -alpha; of the quadratic's own constants autograd takes care.
        backward(list(observed), [-weights, to_noise, torch.ones_like(observed.constant)])
        to_seen = orbit_gram.pull_back(self._vectors, seen, gradient, self._learns_inputs(), kept)
        self._pull_back_to_inputs(to_seen, weights, few)
        return solution

    def _learns_inputs(self) -> bool:
        vectors = {id(p) for p in self._vectors.parameters()}
        inner = [p for p in (*self.orbit.parameters(), *self.covariance.parameters()) if id(p) not in vectors]
        return any(p.requires_grad for p in inner)

    def _pull_back_to_inputs(self, to_seen: Tensor | None, weights: Tensor, few: tuple[Tensor, Tensor] | None) -> None:
        """From what g sees, and from the prior mean, to feature map, orbit and weights of a linear mean."""
        linear = self.prior_mean.weight is not None
        if to_seen is None and not linear:
            return
        step = self._rows(self.x)
        for start in range(0, len(self.x), step):
            rows = slice(start, start + step)
            seen, means = few or self._seen_and_means_of_few(self.x[rows])
            pairs = [(seen, to_seen[rows])] if to_seen is not None else []
            pairs += [(means, weights[rows])] if linear else []
            backward(*zip(*pairs, strict=True))

    @in_smaller_chunks
    @torch.no_grad()
    def predict(self, x: Inputs, *_: Any, **__: Any) -> tuple[Float[Tensor, "others latents"], Float[Tensor, "others latents"]]:
        """Mean and variance of f, each row on its own, streamed."""
        vectors, seen = self._vectors, self._conditioned_on()
        system = self._posterior(seen)
        means, variances = [], []
        for other, prior, cross in self._with_data(x, seen):
            own = vectors.expectations(other[:, None], other[:1, 0], _EXACT)[1].double()
            means.append(prior + cross @ self.weights)
            variance = own[:, None] - system.explained(cross.mT)
            variances.append(variance.clamp_min(0.0).expand(-1, self.num_latents))
        return torch.cat(means), torch.cat(variances)

    @in_smaller_chunks
    @torch.no_grad()
    def predict_mean(self, x: Inputs, *_: Any, **__: Any) -> Float[Tensor, "others latents"]:
        """The mean of f alone, each row on its own, streamed: it needs no factor, and no variance of the prior."""
        return torch.cat([prior + cross @ self.weights for _, prior, cross in self._with_data(x, self._conditioned_on())])

    def _with_data(
        self, x: Inputs, seen: Float[Tensor, "data samples dim"]
    ) -> Iterator[tuple[Float[Tensor, "some samples dim"], Float[Tensor, "some latents"], Float[Tensor, "some data"]]]:
        """What g sees of some new rows, their prior means, and covariances of f there and at the data; a few rows at a time."""
        for part in x.split(max(1, min(self._rows(x), chunk_elements(x.device) // len(self.x)))):
            other, prior = self._seen_and_means(part)
            other = other.to(seen.dtype)
            yield other, prior, orbit_gram.cross(self._vectors, other, seen).double()

    def mean_gradient(self, x: Inputs) -> Float[Tensor, "latents others *features"]:
        """The gradient of the mean of f with respect to each input. f averages over the orbit, and so does its gradient."""
        vectors, seen = self._vectors, self._conditioned_on()
        found = []
        for row in x.split(1):
            row = row.detach().requires_grad_()
            with torch.enable_grad():
                samples = self.samples(row)
                cross = vectors.cross(self.covariance.features(samples).to(seen.dtype), seen).double()
                mean = self.prior_mean(samples[:, None])[0, 0] + (cross @ self.weights)[0]
                found.append(torch.stack([torch.autograd.grad(one, row, retain_graph=True)[0][0] for one in mean]))
        return torch.stack(found, 1)

    @torch.no_grad()
    def joint(self, x: Inputs, **_: Any) -> tuple[Float[Tensor, "others latents"], Float[Tensor, "anylatents others others"]]:
        """Mean and joint covariance of f at x; one covariance if all latent functions share it."""
        vectors, seen = self._vectors, self._conditioned_on()
        system = self._posterior(seen)
        other, prior = self._seen_and_means(x)
        other = other.to(seen.dtype)
        cross = orbit_gram.cross(vectors, other, seen).double()
        prior_covariance = orbit_gram.gram(vectors, other).double()
        solved = system.solve(cross.mT[:, None].repeat(1, system.noise.shape[1], 1))
        return prior + cross @ self.weights, prior_covariance - cross @ solved.transpose(0, 1)

    def _posterior(self, seen: Tensor) -> NoisyCovariance:
        """The inverses; made again where they are not at hand, as after loading from a file, or on another device."""
        if seen.device not in self._inverted:
            self._inverted[seen.device] = NoisyCovariance(orbit_gram.gram(self._vectors, seen), self.noise)
        return self._inverted[seen.device]

    def copied_to(self, device: torch.device) -> ExactGP:
        """A copy on this device. What either of them inverts serves both: for many data that takes long, and much memory."""
        copy = deepcopy(self).to(device)
        copy._inverted = self._inverted
        return copy

    def forget_posterior(self) -> None:
        """Give back the memory of what was inverted; the next prediction inverts it again."""
        self._inverted.clear()

    @torch.no_grad()
    def probe(self) -> tuple[Float[Tensor, "few latents"], Float[Tensor, "few latents"]]:
        """Numbers that tell one orbit, kernel or feature map from another, from few data and without the posterior."""
        seen, means = self._seen_and_means(self.x[:_PROBES])
        gram = orbit_gram.gram(self._vectors, seen).double()
        return means + gram @ self.weights[:_PROBES], gram.diagonal()[:, None].expand(-1, self.num_latents)


def backward(outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Leave the gradient of these outputs, which is known, in the parameters that they depend on."""
    pairs = [(o, g.to(o.dtype)) for o, g in zip(outputs, gradients, strict=True) if o.requires_grad]
    if pairs:
        torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
