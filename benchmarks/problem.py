"""The problem: 28x28 images of digits, turned by random angles, and ten outputs. The same for every contestant."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from sklearn.datasets import load_digits
from torch import Tensor

from orbitgp.inference.elbo import elbo
from orbitgp.inference.model import InvariantGP
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import Rotation

OUTPUTS = 10
NUM_DATA = 60_000
LENGTHSCALE, VARIANCE, NOISE, DEGREES, JITTER = 8.0, 1.0, 0.05, 40.0, 1e-6


@dataclass(frozen=True)
class Shape:
    """Minibatch, orbit samples, inducing points; edge of an image; outputs."""

    rows: int
    samples: int
    inducing: int
    size: int = 28
    outputs: int = OUTPUTS

    def __str__(self) -> str:
        return f"({self.rows}, {self.samples}, {self.inducing})"

    @property
    def dim(self) -> int:
        return self.size**2


@dataclass
class Problem:
    """Images, targets, inducing points and a q(v), drawn from one seed."""

    x: Tensor  # (N, 28, 28)
    y: Tensor  # (N, outputs)
    inducing: Tensor  # (M, 28, 28)
    q_mean: Tensor  # (M, outputs), float64
    q_sqrt: Tensor  # (1, M, M), float64, lower triangular


def problem(shape: Shape, device: torch.device, dtype: torch.dtype = torch.float32, seed: int = 0) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    digits = torch.as_tensor(load_digits().images, dtype=torch.float32) / 16
    labels = torch.as_tensor(load_digits().target)

    def pictures(count: int) -> tuple[Tensor, Tensor]:
        index = torch.randint(len(digits), (count,), generator=generator)
        large = F.interpolate(digits[index, None], (shape.size, shape.size), mode="bilinear", align_corners=False)
        with torch.no_grad():
            turned = Rotation(180).transform(large[:, 0], torch.rand(count, 1, 1, generator=generator))
        return turned[:, 0], labels[index]

    x, classes = pictures(shape.rows)
    inducing, _ = pictures(shape.inducing)
    y = F.one_hot(classes % shape.outputs, shape.outputs).double() - 1 / shape.outputs
    q_mean = 0.3 * torch.randn(shape.inducing, shape.outputs, generator=generator, dtype=torch.float64)
    noise = torch.randn(shape.inducing, shape.inducing, generator=generator, dtype=torch.float64)
    q_sqrt = 0.5 * torch.eye(shape.inducing, dtype=torch.float64) + 0.3 * noise.tril(-1) / math.sqrt(shape.inducing)
    return Problem(
        x.to(device, dtype), y.to(device), inducing.to(device, dtype), q_mean.to(device), q_sqrt[None].to(device)
    )


def kernel() -> Kernel:
    k = ScaleKernel(RBFKernel())
    k.outputscale, k.base_kernel.lengthscale = VARIANCE, LENGTHSCALE
    return k


class Orbitgp:
    """A training step and a prediction with orbitgp."""

    def __init__(self, shape: Shape, data: Problem, k: Kernel | None = None) -> None:
        self.shape, self.data = shape, data
        self.model = InvariantGP(
            k or kernel(), Rotation(DEGREES), data.inducing, shape.outputs, mean="zero", jitter=JITTER
        )
        self.model.to(data.x.device)
        self.likelihood = Gaussian(shape.outputs, noise=NOISE).to(data.x.device)
        with torch.no_grad():
            self.model.q_mean.copy_(data.q_mean)
            self.model.q_sqrt.copy_(data.q_sqrt)
        self.generator = torch.Generator(data.x.device).manual_seed(0)
        self.parameters = [p for m in (self.model, self.likelihood) for p in m.parameters() if p.requires_grad]

    def step(self) -> Tensor:
        """Orbit samples, the bound, and the gradient of everything that is learned."""
        for parameter in self.parameters:
            parameter.grad = None
        samples = self.model.orbit.sample(self.data.x, self.shape.samples, 2, "qmc", self.generator)
        bound = elbo(self.model, self.likelihood, samples, self.data.y, NUM_DATA)
        (-bound).backward()
        return bound.detach()

    def predict(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.model.predict(x, self.shape.samples)
