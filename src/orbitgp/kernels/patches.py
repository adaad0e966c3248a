"""A feature map for photographs: how much the patches of an image look like patches of the training images.

A whitened patch of the training data is a filter: no training by gradients is needed for a layer of them (Coates, Lee
and Ng, 2011; Thiry, Arbel, Belilovsky and Oyallon, 2021). The patches that serve as filters come from the inputs alone,
so models with and without this map have the same targets, and their evidence can be compared.

Two layers are ``nn.Sequential(PatchDictionary(512, cells=14), PatchDictionary(2048, size=3))``, and one and two layers
side by side are a :class:`orbitgp.kernels.SideBySide` of both.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from orbitgp.kernels.image_maps import check_images
from orbitgp.kernels.learned_constants import LearnedConstants, windows
from orbitgp.machine import chunk_elements, in_parts, split_rows

Images = Float[Tensor, "rows channels height width"]
Patches = Float[Tensor, "*batch pixels"]

_SIZE = 6  # the largest patch that is taken by default
_SEEN = 30_000  # patches, or pixels, that tell their covariance
_FLAT = 1e-6  # variance of a patch that is flat, as a share of the mean variance
_COMPARED = 3000  # patches that tell how similar they are


class WhitenedPatches(LearnedConstants):
    """What whitens patches of images, found in training images; the first of the constants is ``whitening``."""

    size: int | None
    components: int
    seed: int
    channels: int | None
    centre: Tensor
    basis: Tensor
    mean: Tensor
    eigenvalues: Tensor
    eigenvectors: Tensor

    def _allot(self, **more: tuple[int, ...]) -> None:
        """Room for what :meth:`prepare` finds, in the shapes that it will have."""
        channels, kept = self.channels or 0, min(self.channels or 0, self.components)
        pixels = kept * (self.size or 0) ** 2
        own = {"centre": (channels, 1, 1), "basis": (kept, channels, 1, 1), "mean": (pixels,), "eigenvalues": (pixels,)}
        for name, shape in {**own, "eigenvectors": (pixels, pixels), **more}.items():
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    @torch.no_grad()
    def prepare(self, x: Float[Tensor, "rows *shape"]) -> None:
        """Find out from these images what whitens their patches."""
        self._find(x)

    def _find(self, x: Float[Tensor, "rows *shape"]) -> Float[Tensor, "some pixels"]:
        """Some patches of these images, after what whitens them is found out."""
        check_images(self, x)
        images = x if x.ndim == 4 else x[:, None]
        generator = torch.Generator().manual_seed(self.seed)
        self.channels, side = images.shape[1], min(images.shape[2:])
        self.size = self.size or min(max(3, round(side / 5)), _SIZE, side)
        centre, _, vectors = _principal(_sample(images, 1, generator))
        if self.channels <= self.components:
            vectors = torch.eye(self.channels, out=torch.empty_like(vectors))
        basis = vectors[:, : self.components].mT[:, :, None, None]
        images = F.conv2d(images - centre[:, None, None].to(x), basis.to(x))
        patches = _sample(images, self._fits(images), generator)
        if not patches.var(1, correction=0).any():
            raise ValueError("every patch of the training images is flat: there is nothing to compare images by.")
        names = ("centre", "basis", "mean", "eigenvalues", "eigenvectors")
        for name, value in zip(names, (centre[:, None, None], basis, *_principal(_level(patches))), strict=True):
            self.register_buffer(name, value.contiguous())
        return patches

    def _whitening(self, x: Tensor, most: int | None = None) -> Callable[[Patches], Patches]:
        """From patches to whitened ones of unit length, in the precision of x; with at most so many components."""
        mean, eigenvalues, vectors = self.mean.to(x), self.eigenvalues.to(x), self.eigenvectors.to(x)
        whitened = (vectors * (eigenvalues + self.constants(x.dtype)[0] * eigenvalues.mean()).rsqrt())[:, :most]
        return lambda patches: F.normalize((_level(patches) - mean) @ whitened, dim=-1)

    def _images(self, x: Float[Tensor, "rows *shape"]) -> Images:
        """These inputs as images like those that were seen."""
        check_images(self, x)
        images = x if x.ndim == 4 else x[:, None]
        if self.channels != images.shape[1]:
            name, channels = type(self).__name__, self.channels
            had = "has no patches yet" if channels is None else f"has patches of {channels} channels"
            raise ValueError(f"{name} {had}: call prepare() with images like these, or let fit() do it.")
        return images

    def _fits(self, images: Images) -> int:
        """The size of a patch, if these images hold one."""
        size, shape = self.size or 1, tuple(images.shape[2:])
        if size > min(shape):
            raise ValueError(f"patches of {size} by {size} pixels do not fit into images or maps of {shape}: set size.")
        return size


class PatchDictionary(WhitenedPatches):
    """Similarities between patches of an image and patches of the training images, pooled over a grid of windows.

    Patches p of the training images, of all channels and each less the mean of its own numbers, have mean c and
    covariance E L E^T, and l is the mean of the eigenvalues L. A patch is whitened and scaled to unit length, which
    leaves nothing of its contrast:

        u = w / |w|,    w = (L + whitening * l)^(-1/2) E^T (p - c)

    The dictionary is a sample of these patches, d_k after the same steps, and r is the root mean square of u.d_k. Each
    place of the image has

        relu(u.d_k / r - bias)  and  relu(-u.d_k / r - bias)    for each k.

    Gaussian windows take their mean q, ``cells`` by ``cells`` of them evenly over the image. The feature log(1 + q /
    level) brings frequent and rare patches closer, and all features of an image together are scaled to unit length. All
    of it is differentiable, in the image too, so orbits are learned through it.

    Estimators call :meth:`prepare` with training inputs before they learn. The dictionary is saved with the model.

        >>> patches = PatchDictionary(16)
        >>> patches.prepare(torch.rand(10, 3, 16, 16))
        >>> patches(torch.rand(2, 3, 16, 16)).flatten(1).shape
        torch.Size([2, 512])

    Args:
        patches: how many the dictionary has, at most; fewer where the training images have fewer that are not flat.
        size: of a patch, in pixels; by default a fifth of the shorter side of the image, and between 3 and 6.
        cells: windows along each side of the image.
        components: if the images have more channels, as the maps of a layer before have, they are replaced by their
            first principal components.
        whitening: added to the eigenvalues, as a share of their mean. Large values leave patches as they are.
        bias: similarities of less do not count, in units of r.
        level: means of a window below it enter in proportion, and those above it by their logarithm.
        window: the standard deviation of the windows, in their distances.
        seed: of the sample of patches.
        learn: whether whitening, bias, level and window are learned, starting at these values.
        channels: of the images, which :meth:`prepare` finds.
    """

    fixed = ("patches", "size", "cells", "components", "seed")
    dictionary: Tensor
    similarity: Tensor

    def __init__(
        self,
        patches: int = 1024,
        size: int | None = None,
        cells: int = 4,
        components: int = 96,
        whitening: float = 0.01,
        bias: float = 1.0,
        level: float = 0.1,
        window: float = 0.4,
        seed: int = 0,
        learn: bool = True,
        channels: int | None = None,
    ) -> None:
        super().__init__(learn, whitening=whitening, bias=bias, level=level, window=window)
        for name, value in {"patches": patches, "size": size, "cells": cells, "components": components}.items():
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        self.patches, self.size, self.cells, self.components, self.seed = patches, size, cells, components, seed
        self.channels = channels
        count = patches if channels and size else 0
        self._allot(dictionary=(count, min(channels or 0, components) * (size or 0) ** 2), similarity=())

    @torch.no_grad()
    def prepare(self, x: Float[Tensor, "rows *shape"]) -> None:
        """Take the dictionary, and what whitens patches, from these images."""
        patches = self._find(x)
        variances = patches.var(1, correction=0)
        chosen = patches[variances > _FLAT * variances.mean()][: self.patches]  # flat patches are all alike
        self.register_buffer("dictionary", chosen.contiguous())
        self.patches, unit = len(chosen), self._whitening(patches)
        self.register_buffer("similarity", (unit(patches[:_COMPARED]) @ unit(chosen).mT).square().mean().sqrt())

    def forward(self, x: Float[Tensor, "rows *shape"]) -> Float[Tensor, "rows twice cells cells"]:
        images = self._images(x)
        size = self._fits(images)
        _, bias, level, window = self.constants(x.dtype)
        unit, centre, basis = self._whitening(x), self.centre.to(x), self.basis.to(x)
        height, width = (side - size + 1 for side in images.shape[2:])
        down, across = (windows(side, self.cells, window * side / self.cells) for side in (height, width))
        compared = unit(self.dictionary.to(x)).mT / self.similarity.to(x)

        def pooled(images: Images) -> tuple[Tensor]:
            patches = F.unfold(F.conv2d(images - centre, basis), size).mT
            similar = (unit(patches) @ compared).unflatten(1, (height, width))
            both = torch.cat([F.relu(similar - bias), F.relu(-similar - bias)], -1)
            means = torch.einsum("ih,nhjk->nkij", down, torch.einsum("jw,nhwk->nhjk", across, both))
            return (F.normalize(torch.log1p(means / level).flatten(1), dim=1).view_as(means),)

        numbers = height * width * 4 * sum(compared.shape)  # of one image, at the peak
        (maps,) = in_parts(pooled, split_rows(images, max(1, chunk_elements(x.device) // numbers)))
        return maps


def _level(patches: Patches) -> Patches:
    """Patches less their own mean: brightness does not count. (700 images of CIFAR-10 have 30 nats more so.)"""
    return patches - patches.mean(-1, keepdim=True)


def _principal(rows: Float[Tensor, "rows dim"]) -> tuple[Tensor, Tensor, Tensor]:
    """The mean, and the eigenvalues and eigenvectors of the covariance, from the largest on."""
    mean = rows.mean(0)
    values, vectors = torch.linalg.eigh((rows - mean).mT @ (rows - mean) / len(rows))
    return mean, values.clamp_min(0.0).flip(0), vectors.flip(1)


def _sample(images: Images, size: int, generator: torch.Generator) -> Float[Tensor, "some pixels"]:
    """Random different patches of this size, in the order of numbers that ``unfold`` has."""
    count, _, height, width = images.shape
    rows, columns = height - size + 1, width - size + 1
    chosen = torch.randperm(count * rows * columns, generator=generator)[:_SEEN].to(images.device)
    image, top, left = chosen // (rows * columns), chosen // columns % rows, chosen % columns
    offset = torch.arange(size, device=images.device)
    down, across = (top[:, None] + offset)[:, :, None], (left[:, None] + offset)[:, None, :]
    return images[image[:, None, None], :, down, across].movedim(-1, 1).flatten(1).double()
