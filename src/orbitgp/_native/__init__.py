"""The loops of ``loops.c``, for float32 tensors on a CPU; those of shapes of signals for float64.

Interpolation and the kernel between samples take many small steps for each number. Torch needs a pass over memory for each
step; the compiled loops need one pass for all. They are compiled when the package is installed, and they are optional. Torch
does the same work without a compiler, for other tensors, or with ``ORBITGP_NATIVE=0`` in the environment. Callers ask
:func:`serves` first. Results agree to rounding.
"""

from __future__ import annotations

import os
from types import ModuleType

import torch
from jaxtyping import Float
from torch import Tensor

_VERSION = 4  # of the arguments, as in loops.c: a library that was compiled for another version is not used


def _load() -> ModuleType | None:
    if os.environ.get("ORBITGP_NATIVE", "1") == "0":
        return None
    try:
        from orbitgp._native import _loops
    except ImportError:
        return None
    return _loops if _loops.VERSION == _VERSION else None


_library = _load()


def serves(*tensors: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Whether the compiled loops are there and can take these tensors."""
    return _library is not None and all(t.device.type == "cpu" and t.dtype == dtype for t in tensors)


def _call(name: str, *arguments: Tensor | int | None, dtype: torch.dtype = torch.float32) -> None:
    """Call a loop. Tensors are passed as addresses, and None as zero."""
    tensors = [a for a in arguments if isinstance(a, Tensor)]
    assert serves(*tensors, dtype=dtype), f"{name} needs {dtype} on a CPU"
    assert all(t.is_contiguous() for t in tensors), f"{name} needs contiguous tensors"
    plain = (a.data_ptr() if isinstance(a, Tensor) else a or 0 for a in arguments)
    getattr(_library, name)(*plain, torch.get_num_threads())


def interpolate(
    images: Float[Tensor, "rows channels height width"],
    cx: Float[Tensor, "pointrows samples terms"],
    cy: Float[Tensor, "pointrows samples terms"],
    basis: Float[Tensor, "terms pixels"],
) -> Float[Tensor, "rows samples channels height width"]:
    """Images at the points ``c @ basis``, in cells from the corner of a border of two; one row of points serves all images."""
    sizes = _sizes(images, cx, cy, basis)
    assert len(cx) in (1, len(images))
    images, cx, cy, basis = (t.contiguous() for t in (images, cx, cy, basis))
    out = images.new_empty(sizes[:5])
    _call("interpolate", images, cx, cy, basis, _cells(images, 1), out, *sizes, len(cx) == 1)
    return out


def interpolate_back(
    grad: Float[Tensor, "rows samples channels height width"],
    images: Float[Tensor, "rows channels height width"],
    cx: Float[Tensor, "rows samples terms"],
    cy: Float[Tensor, "rows samples terms"],
    basis: Float[Tensor, "terms pixels"],
    into_images: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients of cx, of cy and, if asked for, of the images."""
    sizes = _sizes(images, cx, cy, basis)
    assert len(cx) == len(images)
    assert grad.shape == sizes[:5]
    grad, images, cx, cy, basis = (t.contiguous() for t in (grad, images, cx, cy, basis))
    to_x, to_y = torch.empty_like(cx), torch.empty_like(cy)
    to_images = torch.empty_like(images) if into_images else None
    _call("interpolate_back", images, cx, cy, basis, _cells(images, 2), grad, to_x, to_y, to_images, *sizes)
    return to_x, to_y, to_images


def _sizes(images: Tensor, cx: Tensor, cy: Tensor, basis: Tensor) -> tuple[int, int, int, int, int, int]:
    """Rows, samples, channels, height, width and terms, after a check that the tensors agree on them."""
    (rows, channels, height, width), (_, samples, terms) = images.shape, cx.shape
    assert cx.shape == cy.shape
    assert basis.shape == (terms, height * width)
    assert terms >= 3
    return rows, samples, channels, height, width, terms


def _cells(images: Float[Tensor, "rows channels height width"], copies: int) -> Tensor:
    """A buffer of four numbers for each cell of one image, for every thread."""
    _, channels, height, width = images.shape
    return images.new_empty(torch.get_num_threads() * copies * channels * (height + 3) * (width + 3) * 4)


def exp2_means(h: Float[Tensor, "blocks size columns"], out: Float[Tensor, "blocks columns"]) -> None:
    """Turn h into 2^h, and write its means over the middle axis."""
    assert out.shape == (h.shape[0], h.shape[2])
    _call("exp2_means", h, out, *h.shape)


def augment(x: Float[Tensor, "rows dim"], centre: Float[Tensor, " dim"], wide: Float[Tensor, "rows wide"]) -> None:
    """Write [x - centre, |x - centre|^2] into all columns of ``wide`` but the last."""
    assert wide.shape == (len(x), x.shape[1] + 2)
    assert len(centre) == x.shape[1]
    _call("augment", x.contiguous(), centre.contiguous(), wide, *x.shape)


def pair_distances(wide: Float[Tensor, "rows blocks size wide"], two_groups: bool) -> Float[Tensor, "rows left right"]:
    """|x_i - x_j|^2 between the samples of a row, given as [x, |x|^2, 1]: all of them, or one block with the other."""
    rows, blocks, size, columns = wide.shape
    assert blocks == 2 or not two_groups
    if not two_groups:
        blocks, size = 1, blocks * size
    out = wide.new_empty(rows, size, size)
    _call("pair_distances", wide, out, rows, blocks, size, columns - 2)
    return out


def pair_gradients(
    wide: Float[Tensor, "rows blocks size wide"],
    own: Float[Tensor, "rows blocks size"],
    between: Float[Tensor, "rows ..."],
    out: Float[Tensor, "rows blocks size dim"],
) -> None:
    """Add own x + between @ others. The others are all samples of a row or, where ``between`` has blocks, the other block."""
    rows, blocks, size, dim = out.shape
    two_groups = between.ndim == 4
    if not two_groups:
        blocks, size = 1, blocks * size
    assert wide.numel() == rows * blocks * size * (dim + 2)
    assert own.numel() == rows * blocks * size
    assert between.numel() == rows * blocks * size**2
    assert blocks == 2 or not two_groups
    _call("pair_gradients", wide, own.contiguous(), between.contiguous(), out, rows * blocks, size, dim, two_groups)


def scale(
    slopes: Float[Tensor, "blocks size columns"],
    grad: Float[Tensor, "blocks columns"],
    out: Float[Tensor, "blocks size columns"],
) -> Float[Tensor, "blocks size"]:
    """Write slopes * grad, and return the sums of its rows."""
    assert out.shape == slopes.shape
    assert grad.shape == (slopes.shape[0], slopes.shape[2])
    sums = slopes.new_empty(slopes.shape[:2])
    _call("scale", slopes, grad.contiguous(), out, sums, *slopes.shape)
    return sums


def mirror(matrix: Float[Tensor, "size size"]) -> None:
    """Copy the lower triangle to the upper."""
    assert matrix.shape == (len(matrix), len(matrix))
    _call("mirror", matrix, len(matrix))


MOST_DIRECTIONS = 8  # of shapes


def pair_means(
    terms: Float[Tensor, "3 scales rows length"],
    tuning: Float[Tensor, "directions 3"],
    weights: Float[Tensor, "windows length"],
) -> Float[Tensor, "rows pairs windows directions directions"]:
    """Products of exp(tuning terms) at neighbouring scales, averaged with weights."""
    sizes = _shape_sizes(terms, tuning, weights)
    scales, rows, length, directions, windows = sizes
    each = scales * length * MOST_DIRECTIONS + MOST_DIRECTIONS
    room = terms.new_empty(torch.get_num_threads(), each)
    out = terms.new_empty(rows, scales - 1, windows, directions, directions)
    _call("pair_means", *_contiguous(terms, tuning, weights), room, out, *sizes, each, dtype=torch.float64)
    return out


def pair_means_back(
    grad: Float[Tensor, "rows pairs windows directions directions"],
    terms: Float[Tensor, "3 scales rows length"],
    tuning: Float[Tensor, "directions 3"],
    weights: Float[Tensor, "windows length"],
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of terms, of tuning and of weights."""
    sizes = _shape_sizes(terms, tuning, weights)
    scales, rows, length, directions, windows = sizes
    assert grad.shape == (rows, scales - 1, windows, directions, directions)
    threads = torch.get_num_threads()
    each = 2 * scales * length * MOST_DIRECTIONS + MOST_DIRECTIONS + 2 * windows * MOST_DIRECTIONS**2
    room = terms.new_empty(threads, each)
    to_terms = torch.empty_like(terms, memory_format=torch.contiguous_format)
    to_tuning, to_weights = terms.new_zeros(threads, 3, MOST_DIRECTIONS), terms.new_zeros(threads, *weights.shape)
    given = _contiguous(terms, tuning, weights, grad)
    _call("pair_means_back", *given, room, to_terms, to_tuning, to_weights, *sizes, each, dtype=torch.float64)
    return to_terms, to_tuning.sum(0)[:, :directions].mT, to_weights.sum(0)


def _shape_sizes(terms: Tensor, tuning: Tensor, weights: Tensor) -> tuple[int, int, int, int, int]:
    """Scales, rows, length, directions and windows, after a check that the tensors agree on them."""
    _, scales, rows, length = terms.shape
    directions, windows = len(tuning), len(weights)
    assert terms.shape[0] == tuning.shape[1] == 3
    assert weights.shape[1] == length
    assert scales >= 2
    assert 1 <= directions <= MOST_DIRECTIONS
    return scales, rows, length, directions, windows


def _contiguous(*tensors: Tensor) -> list[Tensor]:
    return [tensor.contiguous() for tensor in tensors]
