"""The concentration of the Dirichlet likelihood, chosen by leave-one-out prediction.

With a small concentration a label is nearly proof of its class. That suits digits. Where labels are noisy it makes predictions
sure and wrong. The evidence cannot choose the concentration, because the concentration changes the targets. But the likelihood
is Gaussian, so an exact GP on some of the data predicts every label from the others in closed form:

    f_n without y_n ~ N(t_n - [A^-1 t]_n / [A^-1]_nn,  1 / [A^-1]_nn - s_n^2),    A = K + diag s^2

For each concentration, the kernel is the one of nine with the best evidence. The chosen concentration is the one whose
predictions have the best log probability. The choice depends on no orbit and on no random number. So models of the same data
share their targets, and their evidence can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHOICES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
_MAX_ROWS = 256
_LENGTHSCALES = (0.5, 1.0, 2.0)  # in units of the median distance
_VARIANCES = (0.3, 1.0, 3.0)  # in units of the variance of the targets

Observations = tuple[Float[Tensor, "rows classes"], Float[Tensor, "rows classes"]]
Predict = Callable[[Float[Tensor, "rows classes"], Float[Tensor, "rows classes"]], Float[Tensor, "rows classes"]]


@torch.no_grad()
def best_concentration(
    x: Float[Tensor, "rows *features"],
    labels: Int[Tensor, " rows"],
    observe: Callable[[Int[Tensor, " some"], float], Observations],
    predict: Predict,
) -> float:
    """The one of ``CHOICES`` with the best leave-one-out predictions of up to 256 data.

    ``observe(labels, concentration)`` returns targets and noise variances. ``predict(mean, variance)`` returns class
    probabilities.
    """
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:_MAX_ROWS]
    x, labels = x.cpu()[order].flatten(1).double(), labels.cpu()[order]
    kernels = list(_kernels(x))

    def log_prob(concentration: float) -> float:
        targets, noise = observe(labels, concentration)
        mean, variance = _left_out(kernels, targets, noise)
        own = predict(mean, variance).gather(1, labels[:, None])
        return float(own.clamp_min(torch.finfo(own.dtype).tiny).log().mean())

    return max(CHOICES, key=log_prob)


def _kernels(x: Float[Tensor, "rows dim"]) -> Iterator[Float[Tensor, "rows rows"]]:
    distances = torch.cdist(x, x)
    apart = distances[distances > 0]
    unit = apart.median() if len(apart) else distances.new_ones(())
    for lengthscale in _LENGTHSCALES:
        yield torch.exp(-0.5 * (distances / (lengthscale * unit)).square())


def _left_out(kernels: list[Tensor], targets: Tensor, noise: Tensor) -> Observations:
    """Mean and variance of every f_n given all targets but its own, with the kernel of the best evidence."""
    centre = targets.mean(0)
    scale = targets.var(0, correction=0).mean()
    t, s = (targets - centre).mT, noise.mT
    best: tuple[float, Tensor, Tensor] | None = None
    for kernel in kernels:
        for variance in _VARIANCES:
            factor = torch.linalg.cholesky(variance * scale * kernel + torch.diag_embed(s))  # (K, N, N)
            weights = torch.cholesky_solve(t[..., None], factor)[..., 0]
            evidence = float(-0.5 * (t * weights).sum() - factor.diagonal(dim1=-2, dim2=-1).log().sum())
            if best is None or evidence > best[0]:
                best = evidence, factor, weights
    assert best is not None
    precision = torch.cholesky_inverse(best[1]).diagonal(dim1=-2, dim2=-1)
    return (t - best[2] / precision).mT + centre, (1 / precision - s).mT.clamp_min(0.0)
