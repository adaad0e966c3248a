"""The same model, written down with GPyTorch's kernels: all pairs, a solve for every sample, a covariance for each
output."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from gpytorch.utils.cholesky import psd_safe_cholesky
from torch import Tensor, nn

from benchmarks.problem import DEGREES, JITTER, NOISE, NUM_DATA, Problem, Shape, kernel


class Straightforward(nn.Module):
    """Interface of :class:`benchmarks.problem.Orbitgp`. Factorisations and solves in float64, the rest in float32."""

    def __init__(self, shape: Shape, data: Problem) -> None:
        super().__init__()
        self.shape, self.data = shape, data
        self.kernel = kernel()
        self.angle = nn.Parameter(torch.tensor(math.radians(DEGREES)))
        self.log_noise = nn.Parameter(torch.tensor(math.log(NOISE)))
        self.inducing = nn.Parameter(data.inducing.flatten(1).clone())
        self.q_mean = nn.Parameter(data.q_mean.float())
        self.q_sqrt = nn.Parameter(data.q_sqrt.float().repeat(shape.outputs, 1, 1))
        self.to(data.x.device)

    def sample(self, x: Tensor) -> Tensor:
        """(N, H, W) -> (N, S, H*W)."""
        n, s = len(x), self.shape.samples
        angle = self.angle * (2 * torch.rand(n * s, device=x.device) - 1)
        cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
        theta = torch.stack([torch.stack([cos, -sin, zero], -1), torch.stack([sin, cos, zero], -1)], 1)
        images = x[:, None].repeat_interleave(s, 0)
        grid = F.affine_grid(theta, list(images.shape), align_corners=False)
        return F.grid_sample(images, grid, align_corners=False).reshape(n, s, -1)

    def project(self, xa: Tensor) -> tuple[Tensor, Tensor]:
        """L^-1 k_u of every sample (N, S, M), and k_g between all samples of a datum (N, S, S)."""
        n, s, dim = xa.shape
        kuu = self.kernel(self.inducing).to_dense().double() + JITTER * torch.eye(len(self.inducing), device=xa.device)
        kuf = self.kernel(self.inducing, xa.reshape(n * s, dim)).to_dense()
        a = torch.linalg.solve_triangular(psd_safe_cholesky(kuu), kuf.double(), upper=False).float()
        return a.mT.reshape(n, s, -1), self.kernel(xa).to_dense()

    def step(self) -> Tensor:
        self.zero_grad(set_to_none=True)
        shape, y = self.shape, self.data.y.float()
        n, s = shape.rows, shape.samples
        a, kff = self.project(self.sample(self.data.x))
        pairs = (1 - torch.eye(s, device=a.device)) / (s * (s - 1))
        mean = a @ self.q_mean  # (N, S, L)
        t = a.reshape(n * s, -1) @ self.q_sqrt  # (L, N*S, M)
        t = t.reshape(shape.outputs, n, s, -1)
        covariance = kff - a @ a.mT + t @ t.mT  # (L, N, S, S)
        second = ((mean[:, :, None] * mean[:, None]).permute(3, 0, 1, 2) + covariance).mul(pairs).sum((-2, -1)).mT
        noise = self.log_noise.exp()
        fit = -0.5 * (math.log(2 * math.pi) + self.log_noise + (y**2 - 2 * y * mean.mean(1) + second) / noise)
        diagonal = self.q_sqrt.diagonal(dim1=-2, dim2=-1)
        kl = 0.5 * (
            self.q_mean.square().sum()
            + self.q_sqrt.square().sum()
            - diagonal.square().log().sum()
            - self.q_mean.numel()
        )
        bound = fit.sum() * (NUM_DATA / n) - kl
        (-bound).backward()
        return bound.detach()

    @torch.no_grad()
    def predict(self, x: Tensor) -> tuple[Tensor, Tensor]:
        means, variances = [], []
        for part in x.split(50):
            a, kff = self.project(self.sample(part))
            t = (a.reshape(-1, a.shape[-1]) @ self.q_sqrt).reshape(self.shape.outputs, *a.shape)
            means.append((a @ self.q_mean).mean(1))
            variances.append((kff - a @ a.mT + t @ t.mT).mean((-2, -1)).mT)
        return torch.cat(means), torch.cat(variances)
