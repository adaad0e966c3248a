"""The bare operations of a training step, each on operands that are there already, forward and backward.

The products and factorisations that a step is made of when it is written down plainly with torch, and nothing between
them: no orbit, no kernel map of the large matrix, no moments, no bound.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.problem import JITTER, LENGTHSCALE, Problem, Shape
from benchmarks.timing import Task
from orbitgp.orbits import Rotation

GEMM = ("GEMM forward", "GEMM into samples", "GEMM into inducing")
BARE = (*GEMM, "k_ff", "grid_sample", "Kuu", "Cholesky and solves", "covariance")


def bare(shape: Shape, data: Problem) -> dict[str, Task]:
    n, s, m, dim = shape.rows, shape.samples, shape.inducing, shape.dim
    generator = torch.Generator(data.x.device).manual_seed(0)

    def rand(*size: int, dtype: torch.dtype = data.x.dtype) -> Tensor:
        return torch.rand(*size, generator=generator, dtype=dtype, device=data.x.device)

    with torch.no_grad():
        xa = Rotation().to(data.x.device).transform(data.x, rand(n, s, 1)).reshape(n * s, dim)
    z = data.inducing.flatten(1)
    w = rand(n * s, m)

    # Half of the samples of a datum against the other half.
    left, right = (part.contiguous() for part in xa.view(n, s, dim).split([s // 2, s - s // 2], dim=1))
    right_t, pairs = right.mT.contiguous(), rand(n, s // 2, s - s // 2)
    pairs_t = pairs.mT.contiguous()

    def kff() -> tuple[Tensor, Tensor, Tensor]:
        return left @ right_t, pairs @ right, pairs_t @ left

    images = data.x[:, None]
    angle = rand(n * s, 1) * 2 - 1
    turns = torch.stack([angle.cos(), -angle.sin(), 0 * angle, angle.sin(), angle.cos(), 0 * angle], -1).view(-1, 2, 3)
    grid = F.affine_grid(turns, [n * s, 1, shape.size, shape.size], align_corners=False)
    grid = grid.view(n, s * shape.size, shape.size, 2).requires_grad_()
    tall = rand(n, 1, s * shape.size, shape.size)

    def grid_sample() -> None:
        grid.grad = None
        F.grid_sample(images, grid, align_corners=False).backward(tall)

    z64, weights = z.double(), rand(m, m, dtype=torch.float64)

    def kuu() -> Tensor:
        norms = z64.square().sum(1)
        k = torch.exp(torch.addmm(norms[:, None] + norms, z64, z64.mT, alpha=-2) * (-0.5 / LENGTHSCALE**2))
        upstream = weights * k
        upstream = upstream + upstream.mT
        return (z64 * upstream.sum(1, keepdim=True) - upstream @ z64) / -(LENGTHSCALE**2)

    gram = torch.exp(torch.cdist(z64, z64).square() * (-0.5 / LENGTHSCALE**2))
    gram = (gram + JITTER * torch.eye(m, dtype=torch.float64, device=z.device)).requires_grad_()
    columns = rand(2 * n, m, dtype=torch.float64).mT.requires_grad_()
    upstream = rand(2 * n, m, dtype=torch.float64).mT

    def cholesky_and_solves() -> None:
        gram.grad = columns.grad = None
        torch.linalg.solve_triangular(torch.linalg.cholesky(gram), columns, upper=False).backward(upstream)

    a, t, root = (rand(rows, m, dtype=torch.float64) for rows in (2 * n, 2 * n, m))

    def covariance() -> tuple[Tensor, Tensor, Tensor]:
        return a @ root, t @ root.mT, a.mT @ t

    tasks = (
        lambda: xa @ z.mT,
        lambda: w @ z,
        lambda: w.mT @ xa,
        kff,
        grid_sample,
        kuu,
        cholesky_and_solves,
        covariance,
    )
    return dict(zip(BARE, tasks, strict=True))
