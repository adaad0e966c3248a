"""k_g: the kernel of the function that is averaged over the orbit.

Any ``gpytorch.kernels.Kernel`` serves. The model asks it for two things only:

    expectations(xa, Z)   Kfu, the mean of k_g(x_a, z) over each block of samples, (N, B, M)
                          and kff, the paired mean of k_g(x_a, x_a') over a datum's own samples, (N,)
    cross(xa, xb)         the mean of k_g over two sets of samples, for joint predictions

:func:`covariance` picks the implementation: RBF and Matérn kernels (in a ScaleKernel or not, ARD or not) take a
hand-written path: one GEMM with two extra columns yields all scaled squared distances, and its backward pass is two
GEMMs. Any other kernel goes through GPyTorch. Hyperparameters stay in float64; large products have the samples' dtype.

Where the expectation over the orbit is an integral that is known, no draws are needed, and the evidence is that of the
infinite orbit. Such a closed form (:func:`closed_form`) is a :class:`Covariance` of the inputs themselves: the model
takes it for k_g, and the orbit for one with a single element.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.settings import lazily_evaluate_kernels
from jaxtyping import Float
from linear_operator import to_dense
from torch import Tensor, nn

from orbitgp.kernels.feature_maps import FeatureMapKernel
from orbitgp.kernels.radial import BlockSums, Exponents, TileSums
from orbitgp.machine import split_rows
from orbitgp.orbits import GaussianNoise, Orbit
from orbitgp.orbits.sampling import Blocks, Pairing, pair_sides, pair_weights

Inducing = Float[Tensor, "inducing dim"]
Points = Float[Tensor, "*batch n dim"]
Others = Float[Tensor, "*batch m dim"]
Seen = Float[Tensor, "rows size dim"]  # what g sees of the finite orbit of each datum,
OthersSeen = Float[Tensor, "others another dim"]  # and of others
Cross = Float[Tensor, "rows others"]
Centre = Float[Tensor, " dim"]
Expectations = tuple[Float[Tensor, "rows blocks inducing"], Float[Tensor, " rows"]]  # Kfu of each block, and kff
# k_g / variance between points and others (None: the same points), summed over blocks of as many points
Evaluate = Callable[[Tensor, Tensor | None, int], Tensor]

_AT_ONCE = {False: 2**22, True: 2**28}  # values of k_g: few on a CPU, where fresh memory costs as much as a pass
_HAS_TRITON = find_spec("triton") is not None
LOST = {torch.float32: 1e-5, torch.float64: 1e-12}  # error of d^2 / lengthscale^2; noise may be a 1e-8 of the kernel


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
    """The general implementation, through GPyTorch's own evaluation."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def features(self, x: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows features"]:
        """The features that the kernel compares: the inputs themselves, unless the kernel has a feature map.

        Kuu and Kfu need the features of the same inducing points, so the model computes them once.
        """
        return x

    @property
    def of_features(self) -> Covariance:
        """The same kernel as a function of features."""
        return self

    def expectations(self, xa: Blocks, z: Inducing, pairing: Pairing) -> Expectations:
        """Kfu for each block and kff for each datum."""
        k, xa, z = self.of_features, self.features(xa), self.features(z)
        return k.cross(xa.flatten(0, 1), z[:, None]).unflatten(0, xa.shape[:2]), k.own(xa, pairing)

    def cross(self, xa: Seen, xb: OthersSeen, centre: Centre | None = None) -> Cross:
        """k_f between different data: the mean over all pairs of elements. Blocks of one matrix must share a centre."""
        values = self.values(xa.flatten(0, 1), xb.flatten(0, 1))
        return values.unflatten(0, xa.shape[:2]).mean(1).unflatten(1, xb.shape[:2]).mean(2)

    def own(self, xa: Blocks, pairing: Pairing) -> Float[Tensor, " rows"]:
        """k_f of each datum with itself."""
        return (self.values(*pair_sides(xa, pairing)) * pair_weights(xa, pairing)).sum((-2, -1))

    def sums_in_cache(self, points: Seen, centre: Centre) -> bool:
        """Whether sums over pairs of such points are made without writing values of k_g to memory."""
        return False

    def pairs(self, samples: int) -> int:
        """How many values of k_g one of k_f takes, where orbits have this number of elements."""
        return samples * samples

    def values(self, a: Points, b: Others) -> Float[Tensor, "*batch n m"]:
        """k_g itself, computed in double precision: noise may be a 1e-8 of the kernel."""
        dtype, sharpness = a.dtype, self.sharpness()
        a, b = (a.double(),) * 2 if a is b else (a.double(), b.double())
        with lazily_evaluate_kernels(False):
            if sharpness is None or not loses_digits(a, sharpness, a.detach().reshape(-1, a.shape[-1]).mean(0)):
                return to_dense(self.kernel(a, b)).to(dtype)
            # Pair by pair, GPyTorch takes distances from differences.
            shape = torch.broadcast_shapes(a[..., :, None, :].shape, b[..., None, :, :].shape)
            pairs = (a[..., :, None, :].expand(shape), b[..., None, :, :].expand(shape))
            dense = to_dense(self.kernel(*(side.reshape(-1, shape[-1]) for side in pairs), diag=True))
            return dense.reshape(shape[:-1]).to(dtype)

    @torch.no_grad()
    def sharpness(self) -> Float[Tensor, ""] | None:
        """1 / lengthscale^2 of the shortest lengthscale, if the kernel is one of distances."""
        parts = [part for part in self.kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]
        if not (parts and self.kernel.is_stationary):
            return None
        return torch.stack([part.lengthscale.min() for part in parts]).min().double().pow(-2)


def loses_digits(
    points: Float[Tensor, "*batch n dim"], sharpness: Float[Tensor, ""], centre: Centre, smooth: bool = True
) -> bool:
    """Whether points lie so far from the centre, in lengthscales, that distances from a product cancel.

    In the precision of ``sharpness`` = 1 / lengthscale^2, |x - z|^2 = |x|^2 - 2 x.z + |z|^2 is off by the rounding of
    its largest term. A kernel that is not smooth has a kink where points are equal, and takes the root of that: of
    nearly equal points it then has half the digits, wherever they lie. A GPU is not asked: the host would wait. Nor is
    a graph that is exported: its points are not known.
    """
    if points.is_cuda or not points.numel():
        return False
    if not smooth:
        return True
    if torch.compiler.is_exporting():
        return False
    farthest = float(torch.linalg.vector_norm(points.detach() - centre, dim=-1).max())
    return not farthest**2 * float(sharpness.detach()) <= LOST[sharpness.dtype] / torch.finfo(sharpness.dtype).eps


class Stationary(Covariance):
    """RBF and Matérn kernels, k = variance * profile(|x - z|^2 / lengthscale^2)."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        base = unscaled(kernel)
        self.nu = None if isinstance(base, RBFKernel) else float(base.nu)
        self.smooth = self.nu != 0.5

    def cross(self, xa: Seen, xb: OthersSeen, centre: Centre | None = None) -> Cross:
        centre = xb.detach()[0].mean(0) if centre is None else centre
        if self.sums_in_cache(xb, centre) and (xa is xb or self.sums_in_cache(xa, centre)):
            return self.sums(xa, xb, centre)
        size, z = xa.shape[1], xb.flatten(0, 1)
        (x, points), evaluate, variance = self._prepared(z.detach().mean(0), xa, z)
        parts = split_rows(x, max(1, _AT_ONCE[x.is_cuda] // max(1, size * len(z))))
        found = torch.cat([evaluate(part.flatten(0, 1), points, size) for part in parts])
        kfu = (found * (variance / size)).to(xa.dtype)
        return kfu if xb.shape[1] == 1 else kfu.unflatten(1, xb.shape[:2]).mean(2)

    def own(self, xa: Blocks, pairing: Pairing) -> Float[Tensor, " rows"]:
        if xa.shape[1:3] == (1, 1):
            return self.hyperparameters(xa.shape[-1])[1].to(xa.dtype).expand(xa.shape[0])
        (x,), evaluate, variance = self._prepared(xa.detach().reshape(-1, xa.shape[-1]).mean(0), xa)
        left, right = pair_sides(x, pairing)
        kff = evaluate(left, None if left is right else right, 1) * pair_weights(x, pairing)
        return (kff.sum((-2, -1)) * variance).to(xa.dtype)

    def sums_on_tensor_cores(self, points: Tensor) -> bool:
        """Whether a GPU makes such sums in registers."""
        return points.is_cuda and points.dtype == torch.float32 and self.smooth and _HAS_TRITON

    def sums_in_cache(self, points: Seen, centre: Centre) -> bool:
        """On a CPU, those of smooth kernels and of points near enough for distances from products."""
        if points.is_cuda:
            return self.sums_on_tensor_cores(points)
        if torch.compiler.is_exporting() or points.shape[1] == 1:
            return False
        shortest = self.hyperparameters(len(centre))[0].detach().min().to(points.dtype)
        return not loses_digits(points, shortest.pow(-2), centre, self.smooth)

    def sums(self, xa: Seen, xb: OthersSeen, centre: Centre, rounded: bool = False) -> Cross:
        """The means without values of k_g in memory; on a GPU, sooner of points that are rounded to half precision."""
        lengthscales, variance = self.hyperparameters(xa.shape[-1])
        scale = lengthscales.reciprocal().to(xa.dtype)
        left, right = ((points.flatten(0, 1) - centre) * scale for points in (xa, xb))
        if not xa.is_cuda:
            sums = TileSums.apply(left, None if xa is xb else right, self.nu, xa.shape[1], xb.shape[1])
        else:
            from orbitgp.kernels.pair_sums import PairSums  # needs Triton, which comes with torch for GPUs

            if rounded:  # the gradient is that of the points before
                left, right = (x.detach().half().float() + (x - x.detach()) for x in (left, right))
            sums = PairSums.apply(left, right, self.nu, xa.shape[1], xb.shape[1])
        return sums * (variance / (xa.shape[1] * xb.shape[1])).to(xa.dtype)

    def values(self, a: Points, b: Others) -> Float[Tensor, "*batch n m"]:
        (left, right), evaluate, variance = self._prepared(b.detach().reshape(-1, b.shape[-1]).mean(0), a, b)
        return (evaluate(left, right, 1) * variance).to(a.dtype)

    def _prepared(
        self, centre: Float[Tensor, " dim"], *points: Tensor
    ) -> tuple[tuple[Tensor, ...], Evaluate, Float[Tensor, ""]]:
        """Points, the function that evaluates the kernel between them in their precision, and the variance.

        Distances come from products, or from differences where products cancel: these are slower, and in double
        precision. With ARD the points are scaled. One lengthscale is applied in the product.
        """
        (lengthscales, variance), dtype = self.hyperparameters(len(centre)), centre.dtype
        gamma, scaled, origin = lengthscales[0].pow(-2).to(dtype), points, centre
        if len(lengthscales) > 1:  # far from zero, x / lengthscale loses digits: centre first
            scaled = tuple((x - centre) / lengthscales.to(x.dtype) for x in points)
            gamma, origin = torch.ones_like(gamma), torch.zeros_like(centre)
        cancels = any(loses_digits(x, gamma, origin, self.smooth) for x in scaled)
        if cancels and dtype != torch.float64:
            return self._prepared(centre.double(), *(x.double() for x in points))

        def evaluate(a: Tensor, b: Tensor | None, size: int) -> Tensor:
            if cancels:
                squares = torch.cdist(a, a if b is None else b, compute_mode="donot_use_mm_for_euclid_dist").square()
                h = squares * (-0.5 * gamma)
            else:
                h = Exponents.apply(a, b, origin, gamma)
            return BlockSums.apply(h, self.nu, size)

        return scaled, evaluate, variance.to(dtype)

    def hyperparameters(self, dim: int) -> tuple[Float[Tensor, " lengthscales"], Float[Tensor, ""]]:
        """The lengthscale of all of these features, or one for each of them, and the variance."""
        lengthscales = unscaled(self.kernel).lengthscale.reshape(-1)
        variance = self.kernel.outputscale if isinstance(self.kernel, ScaleKernel) else lengthscales.new_ones(())
        return lengthscales, variance


def unscaled(kernel: Kernel) -> Kernel:
    """The kernel inside a ScaleKernel, or the kernel itself."""
    return kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel


def covariance(kernel: Kernel) -> Covariance:
    """The fastest implementation of what the model needs from this kernel."""
    base = unscaled(kernel)
    plain = all(k.active_dims is None and not k.batch_shape for k in (kernel, base))
    if plain and type(base) in (RBFKernel, MaternKernel):
        return Stationary(kernel)
    if type(kernel) is FeatureMapKernel:
        return FeatureMapCovariance(kernel)
    own: Callable[[], Covariance] | None = getattr(kernel, "fast_covariance", None)
    return Covariance(kernel) if own is None else own()


class FeatureMapCovariance(Covariance):
    """A kernel behind a feature map: map inputs once, then use the fastest implementation for the features' kernel."""

    def features(self, x: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows features"]:
        return self.kernel.map(x)

    @property
    def of_features(self) -> Covariance:
        # Made anew: as a part of this module it would be saved twice.
        return covariance(self.kernel.base_kernel)


def closed_form(kernel: Kernel, orbit: Orbit) -> Covariance | None:
    """k_f of this k_g and this orbit as a function of the inputs; None where it is not known."""
    if type(orbit) is not GaussianNoise or type(unscaled(kernel)) is not RBFKernel:
        return None
    return NoisyRBF(kernel, orbit) if isinstance(covariance(kernel), Stationary) else None


class NoisyRBF(Stationary):
    """An RBF kernel of inputs with Gaussian noise is an RBF kernel again, wider and lower:

        k_f(x, x') = v prod_d (l_d^2 / w_d^2)^(1/2) exp(-1/2 sum_d (x_d - x'_d)^2 / w_d^2),   w_d^2 = l_d^2 + 2 s_d^2

    with lengthscales l, variance v and scales s of the noise. Each input has its own noise, also if x = x': so 2.
    """

    def __init__(self, kernel: Kernel, noise: GaussianNoise) -> None:
        super().__init__(kernel)
        self.noise = noise

    def hyperparameters(self, dim: int) -> tuple[Float[Tensor, " lengthscales"], Float[Tensor, ""]]:
        lengthscales, variance = super().hyperparameters(dim)
        growth = 1 + 2 * (self.noise.scales(dim) / lengthscales).square()  # w^2 / l^2
        return lengthscales * growth.sqrt(), variance * torch.exp(-0.5 * growth.log().expand(dim).sum())
