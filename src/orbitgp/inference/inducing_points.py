"""Where the inducing points start.

Where inducing variables are values of g, which lives on *transformed* inputs, the first points are orbit samples of the
data, not the data themselves. Where they average g over samples of the orbit, as f does, the first points are data as
they are: each brings its own samples. There are two ways to choose among these candidates.
"""

from __future__ import annotations

from typing import Literal

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, Int
from torch import Tensor

from orbitgp.inference.rows import AllInputs, fetch
from orbitgp.kernels.covariance import covariance
from orbitgp.orbits import FiniteOrbit, Identity, Orbit, Pairing
from orbitgp.orbits.sampling import base_draws

Method = Literal["random", "greedy"]


@torch.no_grad()
def initial_inducing(
    x: AllInputs,
    orbit: Orbit,
    kernel: Kernel,
    size: int,
    method: Method | None = None,
    generator: torch.Generator | None = None,
    inducing_samples: int = 1,
) -> Float[Tensor, "inducing *features"]:
    """``size`` inducing points for inducing variables that average g over ``inducing_samples`` samples.

    - ``random``: random candidates, each datum used before any is used twice. Averages over an infinite orbit have
      their own draws for each point, so two of them at one datum differ, and together are more like f.
    - ``greedy``: one after the other where the prior variance of the inducing variable, given those chosen, is largest
      (pivoted Cholesky). That of an average is the slack that f at this datum would leave.

    By default greedy where variables are like f (averages, or no orbit) and there are at least a quarter as many as
    data, else random: of few points, greedy ones lie too far out (``experiments/slack.py``).
    """
    averages = inducing_samples > 1
    like_f = averages or isinstance(orbit, Identity)
    if method is None:
        method = "greedy" if like_f and 4 * size >= len(x) else "random"
    pool = size if method == "random" else max(4 * size, min(len(x), 16 * size))
    if like_f:  # each datum counts once, if there are enough
        pool = max(size, min(pool, len(x)))
    # The averages over a finite orbit at one datum would all be the same.
    at_data = averages and not (isinstance(orbit, FiniteOrbit) and pool > len(x))
    candidates = _orbit_samples(x, Identity() if at_data else orbit, pool, generator)
    if method == "greedy" and size < pool:
        sets = orbit.shared_samples(candidates, inducing_samples).points[:, 0] if averages else candidates[:, None]
        return candidates[_pivots(sets.flatten(2), kernel, size)]
    return candidates


def points_are_best(orbit: Orbit, points: int, rows: int) -> bool:
    """Whether inducing points are at their best where they start: one at each datum, without an orbit."""
    return isinstance(orbit, Identity) and points >= rows


def _orbit_samples(x: AllInputs, orbit: Orbit, count: int, generator: torch.Generator | None) -> Tensor:
    rounds = -(-count // len(x))
    device = x.device if generator is None else generator.device
    order = torch.cat([torch.randperm(len(x), generator=generator, device=device) for _ in range(rounds)])[:count]
    order = order.to(x.device)
    chosen = fetch(x, order)
    u = base_draws("iid", count, 1, 1, orbit.draws_for(x.shape[1:]), generator=generator, dtype=x.dtype, device=device)
    samples = orbit.transform(chosen, u[:, 0].to(x.device))
    # A finite orbit gives all its elements. Take one of them for each point, and the next one in each round, so that a
    # datum with as many points as its orbit has elements gets every element once.
    size = samples.shape[1]
    first = torch.randint(size, (len(x),), generator=generator, device=device).to(x.device)
    each = torch.arange(count, device=x.device)
    return samples[each, (first[order] + each // len(x)) % size].contiguous()


def _pivots(sets: Float[Tensor, "candidates samples dim"], kernel: Kernel, size: int) -> Int[Tensor, " inducing"]:
    """Pivoted Cholesky of the covariance of means of g: each pivot is the candidate with the most variance left."""
    with_features = covariance(kernel)
    k, sets = with_features.of_features, with_features.features(sets)
    variance = torch.cat([k.expectations(z[:, None], z[0, :1], Pairing.exact())[1] for z in sets.split(1024)]).double()
    rows = variance.new_zeros(size, len(sets))
    pivots = torch.zeros(size, dtype=torch.long, device=sets.device)
    for i in range(size):
        pivot = variance.argmax()
        pivots[i] = pivot
        column = k.cross(sets[pivot][None], sets)[0].double()
        row = (column - rows[:i, pivot] @ rows[:i]) / variance[pivot].clamp_min(1e-12).sqrt()
        rows[i] = row
        variance = (variance - row.square()).clamp_min(0.0)
        variance[pivot] = -1.0
    return pivots
