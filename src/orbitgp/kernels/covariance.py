"""k_g: the kernel of the function that is averaged over the orbit.

Any ``gpytorch.kernels.Kernel`` serves. The model asks it for three things only:

    gram(Z)               Kuu = k_g(Z, Z), or its means over pairs of sets of points, (M, M)
    expectations(xa, Z)   Kfu, the mean of k_g(x_a, z) over each block of samples, (N, B, M)
                          and kff, the paired mean of k_g(x_a, x_a') over a datum's own samples, (N,)
    cross(xa, xb)         the mean of k_g over two sets of samples, for joint predictions

:func:`covariance` picks the implementation: RBF and Matérn kernels (in a ScaleKernel or not, ARD or not) take a hand-written
path: one GEMM with two extra columns yields all scaled squared distances, and its backward pass is two GEMMs. Any other kernel
goes through GPyTorch.
Hyperparameters stay in float64; the large products run in the dtype of the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.settings import lazily_evaluate_kernels
from jaxtyping import Float
from linear_operator import to_dense
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from orbitgp.orbits.sampling import Blocks, Pairing, pair_sides, pair_weights

Inducing = Float[Tensor, "inducing dim"]
InducingSets = Float[Tensor, "inducing *samples dim"]  # points, or sets of points
Gram = Float[Tensor, "inducing inducing"]
Points = Float[Tensor, "*batch n dim"]
Others = Float[Tensor, "*batch m dim"]
Expectations = tuple[Float[Tensor, "rows blocks inducing"], Float[Tensor, " rows"]]  # Kfu of each block, and kff

_GRAM_POINTS = {False: 2**9, True: 2**12}  # points of Kuu whose rows are computed together
_KEPT = {False: 2**24, True: 2**28}  # values of k_g in Kuu that are kept for its gradient; more of them are computed again
LOST = {torch.float32: 1e-5, torch.float64: 1e-12}  # by which d^2 / lengthscale^2 may be off; noise may be a 1e-8 of the kernel


def show_values(kernel: Kernel) -> Kernel:
    """The same kernel, whose parts print their hyperparameters, as in ``RBFKernel(lengthscale=0.5)``."""
    for part in kernel.modules():
        if isinstance(part, Kernel) and type(part).extra_repr is nn.Module.extra_repr:
            vars(part)["extra_repr"] = partial(_values, part)
    return kernel


def _values(part: Kernel) -> str:
    """The hyperparameters of this part alone, in their own units."""
    names = [name.removeprefix("raw_") for name, _ in part.named_parameters(recurse=False)]
    values = [getattr(part, name).detach().cpu().squeeze().numpy() for name in names]
    return "\n".join(f"{name}={np.array2string(value, precision=4)}" for name, value in zip(names, values, strict=True))


class Covariance(nn.Module):
    """The general implementation, through GPyTorch's own evaluation. A faster one may run large products on tensor cores."""

    def __init__(self, kernel: Kernel, tensor_cores: bool = False) -> None:
        super().__init__()
        self.kernel, self.tensor_cores = kernel, tensor_cores

    @contextmanager
    def in_full_precision(self) -> Iterator[None]:
        """Keep the large products of a GPU in single precision within this context: TF32 could lift a bound."""
        before, self.tensor_cores = self.tensor_cores, False
        try:
            yield
        finally:
            self.tensor_cores = before

    def features(self, x: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows features"]:
        """The features that the kernel compares: the inputs themselves, unless the kernel has a feature map.

        Kuu and Kfu need the features of the same inducing points, so the model computes them once.
        """
        return x

    @torch.no_grad()
    def num_features(self, x: Float[Tensor, "rows *dims"]) -> int:
        """The size of what the kernel compares, for inputs like these."""
        return self.features(x[:1].flatten(1)).shape[-1]

    @property
    def of_features(self) -> Covariance:
        """The same kernel as a function of features."""
        return self

    def gram(self, z: InducingSets) -> Gram:
        """Kuu; of sets of points, the means over pairs of two sets. For the gradient of many points they are computed again."""
        sets = z[:, None] if z.ndim == 2 else z
        step = max(1, _GRAM_POINTS[z.is_cuda] // sets.shape[1])
        again = torch.is_grad_enabled() and sets.shape[:2].numel() ** 2 > _KEPT[z.is_cuda]
        rows: Callable[..., Tensor] = self.gram_rows
        if again:
            rows = partial(checkpoint, self.gram_rows, use_reentrant=False, preserve_rng_state=False)
        lower = [rows(sets, start, start + step) for start in range(0, len(sets), step)]
        right = [[below[:, i * step : (i + 1) * step].mT for below in lower[i + 1 :]] for i in range(len(lower))]
        return torch.cat([torch.cat([row, *others], 1) for row, others in zip(lower, right, strict=True)])

    def gram_rows(self, sets: Float[Tensor, "sets samples dim"], start: int, stop: int) -> Float[Tensor, "rows columns"]:
        """Some rows of that, up to the diagonal. A set with itself is exact: no distance is rounded."""
        means, own = self.expectations(sets[start:stop, None], sets[:stop].flatten(0, 1), Pairing.exact())
        values = means[:, 0].unflatten(1, (-1, sets.shape[1])).mean(-1)
        return torch.diagonal_scatter(values, own, offset=start)

    def expectations(self, xa: Blocks, z: Inducing, pairing: Pairing) -> Expectations:
        """Kfu for each block and kff for each datum."""
        rows, blocks, size, dim = xa.shape
        kfu = self._dense(xa.reshape(-1, dim), z).reshape(rows, blocks, size, -1).mean(2)
        return kfu, (self._dense(*pair_sides(xa, pairing)) * pair_weights(xa, pairing)).sum((-2, -1))

    def cross(self, xa: Float[Tensor, "rows size dim"], xb: Float[Tensor, "others size dim"]) -> Float[Tensor, "rows others"]:
        """k_f between different data whose samples are finite orbits: the mean over all pairs of samples."""
        block = self.expectations(xa[:, None], xb.flatten(0, 1), Pairing.exact())[0]
        return block.reshape(len(xa), len(xb), -1).mean(-1)

    def _dense(self, a: Points, b: Others) -> Float[Tensor, "*batch n m"]:
        sharpness = self._sharpness(a.dtype)
        if sharpness is not None and loses_digits(a, sharpness, a.detach().reshape(-1, a.shape[-1]).mean(0)):
            if a.dtype != torch.float64:
                return self._dense(a.double(), b.double()).to(a.dtype)
            # Pair by pair, GPyTorch takes distances from differences.
            shape = torch.broadcast_shapes(a[..., :, None, :].shape, b[..., None, :, :].shape)
            pairs = (a[..., :, None, :].expand(shape), b[..., None, :, :].expand(shape))
            return self._evaluated(*(side.reshape(-1, shape[-1]) for side in pairs), diag=True).reshape(shape[:-1])
        return self._evaluated(a, b)

    @torch.no_grad()
    def _sharpness(self, dtype: torch.dtype) -> Float[Tensor, ""] | None:
        """1 / lengthscale^2 of the shortest lengthscale, if the kernel is one of distances."""
        parts = [part for part in self.kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]
        if not (parts and self.kernel.is_stationary):
            return None
        return torch.stack([part.lengthscale.min() for part in parts]).min().to(dtype).pow(-2)

    def _evaluated(self, a: Points, b: Others, **how: bool) -> Tensor:
        # Hyperparameters are cast to the dtype of the inputs, inside the call, so that gradients reach them.
        state = (*self.kernel.named_parameters(), *self.kernel.named_buffers())
        cast = {name: t.to(a.dtype) for name, t in state if t.is_floating_point()}
        with lazily_evaluate_kernels(False):  # evaluated while they are cast
            dense: Tensor = to_dense(torch.func.functional_call(self.kernel, cast, (a, b), how))
        return dense


def loses_digits(
    points: Float[Tensor, "*batch n dim"], sharpness: Float[Tensor, ""], centre: Float[Tensor, " dim"], smooth: bool = True
) -> bool:
    """Whether points lie so far from the centre, in lengthscales, that distances from a product cancel.

    In the precision of ``sharpness`` = 1 / lengthscale^2, |x - z|^2 = |x|^2 - 2 x.z + |z|^2 is off by the rounding of its
    largest term. A kernel that is not smooth has a kink where points are equal, and takes the root of that: of nearly equal
    points it then has half the digits, wherever they lie. A GPU is not asked, because the host would wait for the answer.
    """
    if points.is_cuda or not points.numel():
        return False
    if not smooth:
        return True
    farthest = float(torch.linalg.vector_norm(points.detach() - centre, dim=-1).max())
    return not farthest**2 * float(sharpness.detach()) <= LOST[sharpness.dtype] / torch.finfo(sharpness.dtype).eps
