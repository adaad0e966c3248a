"""What g sees of an input: a feature map between the orbit and the kernel.

    f(x) = E_{x_a ~ p(x_a | x)} g(x_a),    k_g(x, x') = k(phi(x), phi(x'))

Distances between pixels ignore neighbourhoods: a stroke that moves by its own width is as far from itself as from any
other. A map phi with a wider view makes a better prior. The evidence says by how much, because models with and without
a map have the same targets. The orbit acts on the inputs, before phi, and inducing points are inputs too.

Any ``nn.Module`` serves that maps rows of inputs (N, ...) to rows of vectors (N, D), each row on its own and
deterministically. A map that has a method ``prepare(x)`` sees some training inputs once, before learning
(:func:`prepare`). :class:`FeatureMapKernel` turns it and a kernel of vectors into a kernel of inputs. For images there
are :class:`orbitgp.kernels.OrientedGradients` and :class:`orbitgp.kernels.PatchDictionary`. :class:`SideBySide` makes
one map of several.
"""

from __future__ import annotations

from typing import Any

import torch
from gpytorch import Module
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor, nn

from orbitgp.machine import in_parts, split_rows
from orbitgp.orbits.images.warps import as_inputs


class FeatureMapKernel(Kernel):
    """k(phi(x), phi(x')), for a kernel of vectors and a feature map: an ordinary GPyTorch kernel.

        >>> kernel = FeatureMapKernel(RBFKernel(), SNV(), (50,))
        >>> kernel(torch.rand(3, 50)).shape
        torch.Size([3, 3])

    Args:
        base_kernel: a kernel of what the map yields.
        feature_map: a module from inputs (N, D), or images if ``image_shape`` is given, to vectors (N, D'). If it has
            parameters, they are learned with those of the kernel.
        image_shape: the shape (H, W) or (C, H, W) of the images that the rows of x hold.
    """

    def __init__(self, base_kernel: Kernel, feature_map: nn.Module, image_shape: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.base_kernel = base_kernel
        self.feature_map = feature_map
        self.image_shape = image_shape

    @property
    def dtype(self) -> torch.dtype:
        return self.base_kernel.dtype  # parameters of the map may have another

    def map(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch mapped"]:
        """phi(x), a few rows at a time.

        A map may need many times the memory of its input. For the gradient of many rows, it is computed again.
        """
        rows = as_inputs(x, self.image_shape)
        parts = split_rows(rows, max(1, _PART[rows.is_cuda] // x.shape[-1]))
        (mapped,) = in_parts(self._mapped, parts, _KEPT[rows.is_cuda])
        return mapped.reshape(*x.shape[:-1], mapped.shape[-1])

    def _mapped(self, rows: Float[Tensor, "rows *shape"]) -> tuple[Float[Tensor, "rows mapped"]]:
        """The map in the precision of its input; its parameters are cast. Output of several axes becomes a vector."""
        state = (*self.feature_map.named_parameters(), *self.feature_map.named_buffers())
        cast = {name: t.to(rows.dtype) for name, t in state if t.is_floating_point()}
        mapped: Tensor = torch.func.functional_call(self.feature_map, cast, (rows,))
        return (mapped.flatten(1),)

    def forward(
        self, x1: Float[Tensor, "*batch1 n dim"], x2: Float[Tensor, "*batch2 m dim"], diag: bool = False, **params: Any
    ) -> Any:
        phi1 = self.map(x1)
        return self.base_kernel(phi1, phi1 if x1 is x2 else self.map(x2), diag=diag, **params)


class SideBySide(Module):
    """Several feature maps as one: their vectors side by side, each times a weight that is learned.

    The squares of the weights sum to one, so maps of unit length, such as :class:`orbitgp.kernels.OrientedGradients` at
    several scales, yield vectors of unit length.

        >>> SideBySide(SNV(), SmoothDerivative(1))(torch.rand(2, 50)).shape
        torch.Size([2, 100])
    """

    def __init__(self, *maps: nn.Module) -> None:
        super().__init__()
        if not maps:
            raise ValueError("SideBySide needs at least one feature map.")
        self.maps = nn.ModuleList(maps)
        self.log_weights = nn.Parameter(torch.zeros(len(maps), dtype=torch.float64), requires_grad=len(maps) > 1)

    def forward(self, x: Float[Tensor, "rows *shape"]) -> Float[Tensor, "rows mapped"]:
        weights = torch.softmax(2 * self.log_weights, 0).sqrt().to(x.dtype)
        return torch.cat([weight * part(x).flatten(1) for weight, part in zip(weights, self.maps, strict=True)], 1)

    def prepare(self, x: Float[Tensor, "rows *shape"]) -> None:
        """Let every map see these inputs."""
        for part in self.maps:
            prepare(part, x)

    def saved_arguments(self) -> dict[str, Any]:
        return {"*": list(self.maps)}


class MeanEmbedding(nn.Module):
    """A feature map whose mean over the orbit is what the kernel compares:

        k_f(x, x') = k(E_a phi(x_a), E_b phi(x'_b))    in place of    E_a E_b k(phi(x_a), phi(x'_b))

    For S elements that costs S maps and one value of k, in place of S^2 values. Both are the same where k is linear.
    Elsewhere f is another model, as invariant, and the evidence says which is better. It takes exact inference.

        >>> MeanEmbedding(SNV())(torch.rand(2, 50)).shape
        torch.Size([2, 50])
    """

    def __init__(self, feature_map: nn.Module) -> None:
        super().__init__()
        self.feature_map = feature_map

    def forward(self, x: Float[Tensor, "rows *shape"]) -> Float[Tensor, "rows *mapped"]:
        mapped: Tensor = self.feature_map(x)
        return mapped

    def prepare(self, x: Float[Tensor, "rows *shape"]) -> None:
        """Let the map see these inputs."""
        prepare(self.feature_map, x)


def embeds_means(kernel: Kernel) -> bool:
    """Whether this kernel compares means over orbits."""
    return isinstance(kernel, FeatureMapKernel) and isinstance(kernel.feature_map, MeanEmbedding)


@torch.no_grad()
def prepare(feature_map: nn.Module, x: Float[Tensor, "rows *shape"]) -> None:
    """Let a feature map with ``prepare`` see training inputs. Parts of a sequence see what earlier ones yield."""
    if isinstance(feature_map, nn.Sequential):
        *earlier, last = feature_map
        for part in earlier:
            prepare(part, x)
            x = part(x)
        prepare(last, x)
    elif callable(own := getattr(feature_map, "prepare", None)):
        own(x)


_PART = {False: 2**18, True: 2**25}  # numbers mapped at once: few on a CPU, with its small cache, and more on a GPU
_KEPT = {False: 4, True: 1}  # such parts whose intermediate results are kept for the gradient
