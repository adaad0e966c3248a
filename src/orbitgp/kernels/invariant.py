"""The exact kernel of an invariant function, for orbits that can be enumerated.

If f(x) is the mean of g ~ GP(0, k_g) over the P elements of the orbit of x, then f is a Gaussian process too, and its
kernel is the double mean (the paper's eq. 8, as a mean instead of a sum, so that the kernel variance keeps its meaning)

    k_f(x, x') = 1/P^2 sum_a sum_a' k_g(x_a, x'_a')

With few data and a small orbit nothing needs to be estimated. This is an ordinary GPyTorch kernel, for use wherever
kernels are used (``ExactGP``, BoTorch's ``SingleTaskGP``, sums and products with other kernels)::

    kernel = InvariantKernel(ScaleKernel(RBFKernel()), Permutation.swap(0, 1))
    model = SingleTaskGP(X, y, covar_module=kernel)

It costs P^2 evaluations of k_g for each entry. Where the orbit is a group that k_g does not notice, it costs P of them,
because one sum then stands for two (:mod:`orbitgp.kernels.orbit_average` says how that is found out). Where that is too
much, or the orbit is infinite, the estimators take samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from linear_operator import to_dense
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from orbitgp.kernels.orbit_average import SingleSum, element_weights, single_sum
from orbitgp.orbits import FiniteOrbit, Orbit
from orbitgp.orbits.images.warps import as_inputs

Elements1 = Float[Tensor, "*batch1 n chosen dim"]
Elements2 = Float[Tensor, "*batch2 m size dim"]
Weights = Sequence[Tensor]  # of the elements on the left of k_g, and on the right
Params = dict[str, Any]  # for k_g


class InvariantKernel(Kernel):
    """k_f(x, x') = mean_{a, a'} k_g(x_a, x'_a'), exactly, over a finite orbit.

    With ``normalise=True``, the correlation of f (appendix A, k_g in the normaliser): each f(x) has variance 1.

        k(x, x') = k_f(x, x') / sqrt(k_f(x, x) k_f(x', x'))

    The scale of k_g then cancels: put a ``ScaleKernel`` around this kernel, not inside.

        >>> kernel = InvariantKernel(RBFKernel(), Permutation.swap(0, 1))
        >>> x = torch.rand(3, 2)
        >>> torch.allclose(kernel(x).to_dense(), kernel(x.flip(1)).to_dense())
        True

    Args:
        base_kernel: k_g, any kernel with one output, with its own priors, constraints, ``active_dims`` and
            ``batch_shape``. Its ``active_dims`` choose among the features of x_a: the orbit acts first.
        orbit: a finite orbit. If it has parameters, they are learned with those of the kernel.
        normalise: whether to give f unit variance everywhere.
        image_shape: the shape (H, W) or (C, H, W) of the images that the rows of x hold, for orbits that act on images.
        active_dims: the features of x that this kernel, and so the orbit, sees.
        max_entries: how many values of k_g to hold at once. Larger matrices are computed a few rows at a time, and
            those rows again for their gradient.
        single_sum: None takes the single sum where it is right. True claims that it is, and an error says where it is
            not; False takes the double sum.
    """

    def __init__(
        self,
        base_kernel: Kernel,
        orbit: Orbit,
        normalise: bool = False,
        image_shape: tuple[int, ...] | None = None,
        active_dims: tuple[int, ...] | None = None,
        max_entries: int = 2**25,
        single_sum: bool | None = None,
    ) -> None:
        if not isinstance(orbit, FiniteOrbit):
            raise TypeError(
                f"InvariantKernel enumerates a finite orbit, which {type(orbit).__name__} is not: "
                "use InvariantGPRegressor or InvariantGPClassifier, which learn from samples of it."
            )
        super().__init__(active_dims=active_dims)
        self.base_kernel = base_kernel
        self.orbit = orbit
        self.normalise = normalise
        self.image_shape = image_shape
        self.max_entries = max_entries
        self.single_sum = single_sum
        self._single_sums: dict[tuple[int, ...], SingleSum] = {}  # by the shape of one input

    @property
    def dtype(self) -> torch.dtype:
        return self.base_kernel.dtype  # parameters of the orbit may have another

    def forward(
        self, x1: Float[Tensor, "*batch1 n dim"], x2: Float[Tensor, "*batch2 m dim"], diag: bool = False, **params: Any
    ) -> Float[Tensor, "..."]:
        if self.base_kernel.num_outputs_per_input(x1, x2) != 1:
            raise ValueError(
                f"InvariantKernel needs a base kernel with one output, which {type(self.base_kernel).__name__} is not: "
                "put the InvariantKernel inside of it."
            )
        # Equal inputs share their elements, unless each needs a gradient of its own.
        same = x1 is x2 or (not (x1.requires_grad or x2.requires_grad) and torch.equal(x1, x2))
        xa2 = self._elements(x2)
        chosen, *weights = self._weights(x2, params)
        xa1 = xa2 if same else self._elements(x1)
        covariance = self._mean(xa1[..., chosen, :], xa2, weights, diag, params)
        if self.normalise:
            # A function that is zero at x has covariance zero with every other: 0 / 0 must not be NaN.
            tiny = torch.finfo(covariance.dtype).tiny
            own = [self._mean(xa[..., chosen, :], xa, weights, True, params) for xa in ([xa1] if same else [xa1, xa2])]
            scale1, scale2 = (own[i].clamp_min(tiny).rsqrt() for i in (0, -1))
            covariance = covariance * (scale1 * scale2 if diag else scale1[..., :, None] * scale2[..., None, :])
        # The order of summation differs above and below the diagonal; the mean makes the covariance exactly symmetric.
        return 0.5 * (covariance + covariance.mT) if same and not diag else covariance

    def _elements(self, x: Float[Tensor, "*batch n dim"]) -> Float[Tensor, "*batch n size dim"]:
        """All elements of the orbit of each row, as vectors."""
        rows = as_inputs(x, self.image_shape)
        self.orbit.check(rows.shape[1:])
        xa = self.orbit.elements(rows)
        return xa.reshape(*x.shape[:-1], xa.shape[1], x.shape[-1])

    def _weights(self, x: Float[Tensor, "*batch n dim"], params: Params) -> tuple[slice, Tensor, Tensor]:
        """The elements that stand on the left of k_g, their weights, and those of all elements on the right."""
        rows = as_inputs(x, self.image_shape)
        shape = tuple(rows.shape[1:])
        if self.single_sum is False or any(params.values()):  # these may make another kernel of k_g
            found = SingleSum(obstacle="nobody has tried")
        else:
            found = self._single_sums.get(shape) or single_sum(self.base_kernel, self.orbit, rows)
            self._single_sums[shape] = found
            if self.single_sum and found.obstacle:
                raise ValueError(f"single_sum=True is not possible, because {found.obstacle}: leave it out.")
        chosen, left, right = element_weights(self.orbit, found)
        return chosen, left.to(x), right.to(x)

    def _mean(self, xa1: Elements1, xa2: Elements2, weights: Weights, diag: bool, params: Params) -> Tensor:
        """k_f between all rows (n, m), or, with ``diag``, equal rows (n,), at most ``max_entries`` values at once."""
        batch = torch.broadcast_shapes(xa1.shape[:-3], xa2.shape[:-3], self.batch_shape)
        columns = xa1.shape[-2] * xa2.shape[-2] * (1 if diag else xa2.shape[-3])
        rows = max(1, self.max_entries // max(1, columns * batch.numel()))
        mean = self._diagonal if diag else self._matrix
        if rows >= xa1.shape[-3]:
            return mean(xa1, xa2, weights, params)
        pieces1 = xa1.split(rows, dim=-3)
        pieces2 = xa2.split(rows, dim=-3) if diag else (xa2,) * len(pieces1)
        # Without checkpoints, autograd would keep all pieces in memory.
        pairs = zip(pieces1, pieces2, strict=True)
        pieces = [checkpoint(mean, a, b, weights, params, use_reentrant=False) for a, b in pairs]
        return torch.cat(pieces, dim=-1 if diag else -2)

    def _matrix(self, xa1: Elements1, xa2: Elements2, weights: Weights, params: Params) -> Float[Tensor, "*out n m"]:
        left, right = weights
        kg = to_dense(self.base_kernel(xa1.flatten(-3, -2), xa2.flatten(-3, -2), **params))  # (…, n L, m P)
        return left @ (kg.unflatten(-1, xa2.shape[-3:-1]) @ right).unflatten(-2, xa1.shape[-3:-1])

    def _diagonal(self, xa1: Elements1, xa2: Elements2, weights: Weights, params: Params) -> Float[Tensor, "*out n"]:
        # The rows become the first batch axis, in front of those of the parameters of k_g.
        axes = max(xa1.ndim - 3, xa2.ndim - 3, len(self.batch_shape))
        first, second = (xa.reshape((1,) * (axes + 3 - xa.ndim) + xa.shape).movedim(-3, 0) for xa in (xa1, xa2))
        kg = to_dense(self.base_kernel(first, second, **params))  # (n, …, L, P)
        left, right = weights
        return (kg @ right @ left).movedim(0, -1)
