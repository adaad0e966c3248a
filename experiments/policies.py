"""RandAugment and TrivialAugment as torchvision has them by default, for batches of images between 0 and 1.

Fourteen operations: none, shears and shifts along both axes, rotation, brightness, colour, contrast, sharpness,
posterize, solarize, autocontrast, equalize. RandAugment does two of them to each image, all of magnitude 9 of 30, where
30 stands for shears of 0.3, shifts of 150/331 of the side, 30°, factors of 1 ± 0.9, 4 bits less, and all pixels
inverted. TrivialAugment (wide) does one, of a random magnitude of 31, where the last stands for shears of 0.99, shifts
of 32 pixels, 135°, factors of 1 ± 0.99, 6 bits less, and all pixels inverted. Those 32 pixels are the side of the
images for which it was published: here they are the side of any image. Signs are random, warps take the nearest pixel,
and black is outside. Colour leaves grey images as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from math import radians

import torch
import torch.nn.functional as F
from torch import Tensor

Operation = Callable[[Tensor, Tensor], Tensor]  # of images, and a value with a sign for each


def warp(inverse: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]], corner: bool = False) -> Operation:
    """Each pixel looks at A (p - c) + c + b: rows of (A, b) from value, one and zero, b in shares of the side."""

    def warped(images: Tensor, value: Tensor) -> Tensor:
        matrix = torch.stack(inverse(value, torch.ones_like(value), torch.zeros_like(value)), 1).reshape(-1, 2, 3)
        shift = 2 * matrix[:, :, 2]  # the side is two long, from -1 to 1, and its corner is at -1
        shift = shift + matrix[:, :, :2].sum(2) - 1 if corner else shift
        grid = F.affine_grid(torch.cat([matrix[:, :, :2], shift[:, :, None]], 2), list(images.shape), False)
        return F.grid_sample(images, grid, mode="nearest", padding_mode="zeros", align_corners=False)

    return warped


def blend(other: Callable[[Tensor], Tensor]) -> Operation:
    """One plus the value times as far from another image."""
    return lambda images, value: (images + each(value) * (images - other(images))).clamp(0, 1)


def each(value: Tensor) -> Tensor:
    return value[:, None, None, None]


def grey(images: Tensor) -> Tensor:
    luma = torch.tensor([0.2989, 0.587, 0.114]).to(images) if images.shape[1] == 3 else torch.ones(1).to(images)
    return torch.einsum("nchw,c->nhw", images, luma)[:, None]


def smooth(images: Tensor) -> Tensor:
    """Every pixel but those of the border is the mean of nine, in which it counts five times."""
    kernel = torch.tensor([[1.0, 1, 1], [1, 5, 1], [1, 1, 1]]).to(images)[None, None] / 13
    inside = F.conv2d(images.flatten(0, 1)[:, None], kernel).unflatten(0, images.shape[:2])[:, :, 0]
    return F.pad(inside - images[..., 1:-1, 1:-1], (1, 1, 1, 1)) + images


def posterize(images: Tensor, value: Tensor) -> Tensor:
    step = 2 ** each(value.abs().round())
    return ((images * 255).round() / step).floor() * step / 255


def autocontrast(images: Tensor, value: Tensor) -> Tensor:
    low, high = images.amin((-2, -1), keepdim=True), images.amax((-2, -1), keepdim=True)
    return torch.where(high > low, (images - low) / (high - low).clamp_min(1e-6), images)


def equalize(images: Tensor, value: Tensor) -> Tensor:
    levels = (images * 255).round().long().flatten(2)
    counts = torch.zeros(*levels.shape[:2], 256, dtype=torch.long).scatter_add_(2, levels, torch.ones_like(levels))
    step = (levels.shape[-1] - counts.gather(2, levels.amax(2, keepdim=True))) // 255
    table = ((counts.cumsum(2) - counts + step // 2) // step.clamp_min(1)).clamp(0, 255)
    return (torch.where(step > 0, table.gather(2, levels), levels) / 255).to(images).reshape(images.shape)


OPERATIONS: tuple[
    tuple[Operation, float, float], ...
] = (  # each with its largest value in RandAugment and in Trivial's
    (lambda images, value: images, 0, 0),
    (warp(lambda v, one, zero: (one, v, zero, zero, one, zero), corner=True), 0.3, 0.99),
    (warp(lambda v, one, zero: (one, zero, zero, v, one, zero), corner=True), 0.3, 0.99),
    (warp(lambda v, one, zero: (one, zero, v, zero, one, zero)), 150 / 331, 1),
    (warp(lambda v, one, zero: (one, zero, zero, zero, one, v)), 150 / 331, 1),
    (warp(lambda v, one, zero: (v.cos(), -v.sin(), zero, v.sin(), v.cos(), zero)), radians(30), radians(135)),
    (blend(torch.zeros_like), 0.9, 0.99),
    (blend(grey), 0.9, 0.99),
    (blend(lambda images: grey(images).mean((1, 2, 3), keepdim=True)), 0.9, 0.99),
    (blend(smooth), 0.9, 0.99),
    (posterize, 4, 6),
    (lambda images, value: torch.where(images >= 1 - each(value.abs()), 1 - images, images), 1, 1),
    (autocontrast, 0, 0),
    (equalize, 0, 0),
)


def rand_augment(images: Tensor, magnitudes: Tensor | None = None, kind: int = 1, times: int = 2) -> Tensor:
    """So many random operations on each image, of these magnitudes up to one, with random signs."""
    magnitudes = torch.full((len(images),), 9 / 30) if magnitudes is None else magnitudes
    for _ in range(times):
        chosen, signs = torch.randint(len(OPERATIONS), (len(images),)), 2 * torch.randint(2, (len(images),)) - 1
        images = images.clone()
        for number in chosen.unique().tolist():
            rows, largest = chosen == number, float(OPERATIONS[number][kind])
            images[rows] = OPERATIONS[number][0](images[rows], (largest * signs * magnitudes)[rows].to(images))
    return images


def trivial_augment(images: Tensor) -> Tensor:
    """One random operation on each image, of a magnitude of its own."""
    return rand_augment(images, torch.randint(31, (len(images),)) / 30, kind=2, times=1)
