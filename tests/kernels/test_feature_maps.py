"""Feature maps: against loops over pixels, against the same model of mapped inputs, and inside the estimators."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch import Tensor, nn

import orbitgp.kernels.feature_maps
from orbitgp import InvariantGPClassifier, InvariantGPRegressor, InvariantKernel, TrainingOptions
from orbitgp.inference.model import InvariantGP
from orbitgp.kernels.covariance import Covariance
from orbitgp.kernels.dispatch import FeatureMapCovariance, covariance
from orbitgp.kernels.feature_maps import FeatureMapKernel, SideBySide
from orbitgp.kernels.frame import Frame
from orbitgp.kernels.oriented_gradients import OrientedGradients
from orbitgp.orbits import Flip, GaussianNoise, Identity, Orbit, Pairing, Permutation, Rotate90, Rotation, Samples
from orbitgp.saving import SavedFileError
from orbitgp.training.trainer import Trainer

NAMES = ("window", "smoothing", "sharpness", "power", "floor")
# Far from the defaults, and from each other.
OTHER: dict[str, Any] = {
    "orientations": 5,
    "cell": 2.5,
    "window": 0.9,
    "smoothing": 0.4,
    "sharpness": 4.0,
    "power": 0.6,
    "floor": 0.02,
}


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64)


def digits(count: int, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    images, labels = load_digits(n_class=classes, return_X_y=True)
    return images[:count].reshape(-1, 8, 8) / 16, labels[:count]


# OrientedGradients


def bells(size: int, centres: list[float], width: float) -> np.ndarray:
    """Gaussian weights of the pixels around each centre, which sum to one."""
    weights = np.empty((len(centres), size))
    for i, centre in enumerate(centres):
        for j in range(size):
            weights[i, j] = math.exp(-0.5 * ((j - centre) / width) ** 2)
        weights[i] /= weights[i].sum()
    return weights


def centres(size: int, cell: float) -> list[float]:
    """Windows of equal width side by side, at least one; a pixel's centre is a whole number."""
    number = max(1, round(size / cell))
    return [(i + 0.5) * size / number - 0.5 for i in range(number)]


def oriented_gradients_of_one(
    image: np.ndarray,
    orientations: int = 8,
    cell: float | None = None,
    window: float = 0.625,
    smoothing: float = 0.25,
    sharpness: float = 9.0,
    power: float = 0.4,
    floor: float = 1e-4,
) -> np.ndarray:
    """The docstring in loops, for one channel: (orientations, rows of windows, columns of windows), before unit length."""
    height, width = image.shape
    if cell is None:
        cell = max(2.0, min(height, width) / 7)
    blur_y, blur_x = (bells(n, [float(i) for i in range(n)], cell * smoothing) for n in image.shape)
    smooth = np.zeros((height + 2, width + 2))  # with zeros around
    for i, j, k, m in itertools.product(range(height), range(width), range(height), range(width)):
        smooth[i + 1, j + 1] += blur_y[i, k] * blur_x[j, m] * image[k, m]
    windows_y, windows_x = centres(height, cell), centres(width, cell)
    pool_y, pool_x = bells(height, windows_y, cell * window), bells(width, windows_x, cell * window)
    means = np.zeros((orientations, len(windows_y), len(windows_x)))
    for o, i, j in itertools.product(range(orientations), range(height), range(width)):
        dx = (smooth[i + 1, j + 2] - smooth[i + 1, j]) / 2
        dy = (smooth[i + 2, j + 1] - smooth[i, j + 1]) / 2
        strength = math.sqrt(dx**2 + dy**2 + 1e-6)
        angle = 2 * math.pi * o / orientations
        cosine = (dx * math.cos(angle) + dy * math.sin(angle)) / strength
        edge = strength * math.exp(sharpness * (cosine - 1))
        for a, b in itertools.product(range(len(windows_y)), range(len(windows_x))):
            means[o, a, b] += pool_y[a, i] * pool_x[b, j] * edge
    return (means + floor) ** power


def oriented_gradients(x: Tensor, **arguments: Any) -> Tensor:
    """All images, all channels; features are ordered by orientation, channel, row, column."""
    rows = []
    for image in x.numpy():
        channels = image if image.ndim == 3 else image[None]
        features = np.stack([oriented_gradients_of_one(c, **arguments) for c in channels], axis=1).ravel()
        rows.append(features / math.sqrt((features**2).sum()))
    return torch.tensor(np.stack(rows))


class TestOrientedGradients:
    @pytest.mark.parametrize(
        "shape", [(6, 6), (7, 5), (4, 9), (16, 15), (1, 1), (2, 2), (2, 7), (6, 1), (2, 5, 7), (3, 1, 4)], ids=str
    )
    @pytest.mark.parametrize("arguments", [{}, OTHER], ids=["defaults", "others"])
    def test_equals_its_docstring_in_loops(self, shape: tuple[int, ...], arguments: dict[str, Any]) -> None:
        x = rand(2, *shape)
        features = OrientedGradients(**arguments)(x).detach()
        torch.testing.assert_close(features, oriented_gradients(x, **arguments), rtol=1e-11, atol=1e-13)
        torch.testing.assert_close(features.norm(dim=1), torch.ones(2).double())

    def test_single_precision(self) -> None:
        x = torch.tensor(digits(6)[0])
        features = OrientedGradients(cell=2.0)(x.float())
        assert features.dtype == torch.float32
        torch.testing.assert_close(features.detach().double(), oriented_gradients(x, cell=2.0), rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (1, 1), (2, 2)], ids=str)
    def test_gradcheck_in_the_image_and_all_parameters(self, shape: tuple[int, ...]) -> None:
        module = OrientedGradients(orientations=3, cell=2.0, window=1.1, sharpness=2.0)
        raw = {name: p.detach().clone().requires_grad_() for name, p in module.named_parameters()}
        assert set(raw) == {f"raw_{name}" for name in NAMES}

        def features(x: Tensor, *values: Tensor) -> Tensor:
            return torch.func.functional_call(module, dict(zip(raw, values, strict=True)), (x,))

        assert torch.autograd.gradcheck(features, (rand(2, *shape).requires_grad_(), *raw.values()))

    def test_a_row_does_not_depend_on_its_company(self) -> None:
        x = rand(5, 6, 7)
        module = OrientedGradients()
        torch.testing.assert_close(module(x)[2:3], module(x[2:3]), rtol=1e-12, atol=1e-14)

    def test_contrast_matters_little_and_not_at_all_for_strong_edges(self) -> None:
        x = torch.tensor(digits(40)[0])
        module = OrientedGradients()
        with torch.no_grad():
            features, doubled, strong, stronger = (module(c * x) for c in (1, 2, 1e5, 2e5))
        apart = torch.pdist(features).median()
        assert (doubled - features).norm(dim=1).max() < 0.1 * apart
        assert (stronger - strong).norm(dim=1).max() < 1e-5 * apart
        # Pixels, scaled as much, are further away than other digits are.
        assert x.flatten(1).norm(dim=1).median() > 0.7 * torch.pdist(x.flatten(1)).median()

    @pytest.mark.parametrize("orientations", [4, 8])
    def test_a_quarter_turn_turns_directions_and_windows(self, orientations: int) -> None:
        """Rows run down, so an angle counts clockwise: turned anticlockwise, direction o is what o + a quarter was."""
        x = rand(3, 9, 9)
        module = OrientedGradients(orientations, cell=2.0)
        with torch.no_grad():
            straight, turned = (module(v).reshape(3, orientations, 4, 4) for v in (x, x.rot90(1, (1, 2))))
        expected = straight.roll(-orientations // 4, 1).rot90(1, (2, 3))
        torch.testing.assert_close(turned, expected, rtol=1e-12, atol=1e-14)
        assert (turned - straight).abs().max() > 0.01

    def test_an_edge_is_seen_where_it_is_and_as_it_runs(self) -> None:
        image = torch.zeros(1, 16, 16).double()
        image[:, :, 4:] = 1.0  # brighter to the right, at column 4
        features = OrientedGradients(orientations=4, cell=4.0, window=0.375)(image).reshape(4, 4, 4)
        brightest = features.amax((1, 2)).argmax()
        assert brightest == 0
        assert (features[0, 1:3].argmax(1) <= 1).all()
        assert (features[0, 1:3, 0] > 2 * features[0, 1:3, 3]).all()

    @pytest.mark.parametrize("shape", [(6, 6), (1, 1), (2, 2), (2, 5), (2, 4, 3)], ids=str)
    @pytest.mark.parametrize("value", [0.0, 0.7])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_blank_images_have_finite_features_and_gradients(
        self, shape: tuple[int, ...], value: float, dtype: torch.dtype
    ) -> None:
        module = OrientedGradients()
        x = torch.full((2, *shape), value, dtype=dtype).requires_grad_()
        features = module(x)
        assert features.isfinite().all()
        weights = torch.randn(features.shape, dtype=dtype)
        gradients = torch.autograd.grad((features * weights).sum(), [x, *module.parameters()])
        assert all(g.isfinite().all() for g in gradients)

    def test_what_is_learned(self) -> None:
        module, fixed = OrientedGradients(**OTHER), OrientedGradients(**OTHER, learn=False)
        values = {n: c.transform(p).item() for n, p, c in module.named_parameters_and_constraints()}
        assert values == pytest.approx({f"raw_{name}": OTHER[name] for name in NAMES})
        assert not any(p.requires_grad for p in fixed.parameters())
        x = rand(2, 5, 5)
        assert torch.equal(fixed(x), module(x))
        assert not fixed(x).requires_grad
        assert all(f"{name}={value:.3g}" in repr(module) for name, value in OTHER.items())

    @pytest.mark.parametrize(("arguments", "sentence"), [
        ({"orientations": 0}, "orientations must be at least 1, got 0."),
        ({"orientations": -8}, "orientations must be at least 1, got -8."),
        *(({name: value}, f"{name} must be positive") for name in ("cell", *NAMES) for value in (0.0, -1.0, math.nan)),
        *(({name: math.inf}, f"{name} must be") for name in NAMES),
    ], ids=str)  # fmt: skip
    def test_bad_arguments(self, arguments: dict[str, Any], sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence) as caught:
            OrientedGradients(**arguments)
        assert str(caught.value).count("\n") == 0

    @pytest.mark.parametrize("shape", [(5,), (2, 3, 4, 5)], ids=str)
    def test_what_is_no_image(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"OrientedGradients takes images .* set image_shape"):
            OrientedGradients()(rand(3, *shape))


# FeatureMapKernel


class Curved(nn.Module):
    """A map of vectors with two parameters, which notes how many rows it saw at a time."""

    def __init__(self, dim: int = 4, features: int = 3) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.weight = nn.Parameter(torch.randn(dim, features, generator=generator, dtype=torch.float64))
        self.shift = nn.Parameter(torch.randn(features, generator=generator, dtype=torch.float64))
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        return torch.sin(x @ self.weight + self.shift)


def rbf(dims: int | None = None) -> Kernel:
    kernel = ScaleKernel(RBFKernel(ard_num_dims=dims))
    kernel.base_kernel.lengthscale = 0.9 if dims is None else torch.linspace(0.6, 1.4, dims)
    kernel.outputscale = 1.7
    return kernel.double()


def matern() -> Kernel:
    return ScaleKernel(MaternKernel(nu=2.5)).double()


def rq() -> Kernel:
    return ScaleKernel(RQKernel()).double()


def kernel_of(name: str) -> tuple[FeatureMapKernel, int]:
    """A kernel and the dimension of its inputs."""
    if name == "vectors":
        return FeatureMapKernel(rbf(), Curved()), 4
    shape = {"images": (4, 5), "channels": (2, 3, 4)}[name]
    return FeatureMapKernel(rbf(), OrientedGradients(3, cell=2.0), shape), math.prod(shape)


KINDS = pytest.mark.parametrize("kind", ["vectors", "images", "channels"])


class TestKernel:
    @KINDS
    def test_is_the_kernel_of_what_the_map_yields(self, kind: str) -> None:
        kernel, dim = kernel_of(kind)
        a, b = rand(5, dim), rand(3, dim)

        def phi(x: Tensor) -> Tensor:
            return kernel.feature_map(x.reshape(-1, *(kernel.image_shape or (dim,))))

        truth = kernel.base_kernel(phi(a), phi(b)).to_dense()
        assert truth.shape == (5, 3)
        torch.testing.assert_close(kernel(a, b).to_dense(), truth)
        square = kernel.base_kernel(phi(a)).to_dense()
        torch.testing.assert_close(kernel(a).to_dense(), square)
        torch.testing.assert_close(kernel(a, diag=True), square.diagonal())
        torch.testing.assert_close(kernel(a).diagonal(), square.diagonal())
        torch.testing.assert_close(kernel(a[:3], b, diag=True), truth[:3].diagonal())
        assert torch.linalg.eigvalsh(square.detach()).min() > -1e-12

    @KINDS
    def test_batches_of_inputs(self, kind: str) -> None:
        kernel, dim = kernel_of(kind)
        a, b = rand(2, 3, 5, dim), rand(3, 4, dim)
        out, diag = kernel(a, b).to_dense(), kernel(a, diag=True)
        assert out.shape == (2, 3, 5, 4)
        assert diag.shape == (2, 3, 5)
        for i, j in itertools.product(range(2), range(3)):
            torch.testing.assert_close(out[i, j], kernel(a[i, j], b[j]).to_dense())
            torch.testing.assert_close(diag[i, j], kernel(a[i, j], diag=True))

    def test_batches_of_kernels(self) -> None:
        scales = torch.tensor([0.3, 0.6, 1.2])
        base = RBFKernel(batch_shape=torch.Size([3]))
        base.lengthscale = scales[:, None, None]
        kernel = FeatureMapKernel(base.double(), Curved())
        assert kernel.batch_shape == (3,)
        x = rand(5, 4)
        out = kernel(x).to_dense()
        phi = kernel.feature_map(x)
        for one, scale in zip(out, scales, strict=True):
            torch.testing.assert_close(one, torch.exp(-0.5 * torch.cdist(phi, phi).square() / scale.double() ** 2))
        torch.testing.assert_close(kernel(x)[1].to_dense(), out[1])

    def test_linear_map_and_linear_kernel_are_a_quadratic_form(self) -> None:
        linear = nn.Linear(4, 3, bias=False).double()
        kernel = FeatureMapKernel(LinearKernel().double(), linear)
        a, b = rand(5, 4), rand(3, 4)
        form = kernel.base_kernel.variance.item() * a @ linear.weight.mT @ linear.weight @ b.mT
        torch.testing.assert_close(kernel(a, b).to_dense(), form)

    def test_inside_of_other_kernels(self) -> None:
        kernel, dim = kernel_of("vectors")
        x = rand(4, dim)
        outer = ScaleKernel(kernel).double() + RBFKernel().double()
        truth = outer.kernels[0].outputscale * kernel(x).to_dense() + RBFKernel().double()(x).to_dense()
        torch.testing.assert_close(outer(x).to_dense(), truth)
        assert type(covariance(ScaleKernel(kernel))) is Covariance

    @KINDS
    def test_log_marginal_likelihood_of_an_exact_gp(self, kind: str) -> None:
        kernel, dim = kernel_of(kind)
        x, y = rand(7, dim), torch.randn(7).double()

        class Model(gpytorch.models.ExactGP):
            def __init__(self, likelihood: Any) -> None:
                super().__init__(x, y, likelihood)
                self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel

            def forward(self, x: Tensor) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = 0.3
        model = Model(likelihood)
        found = 7 * gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)(model(x), y)
        phi = kernel.feature_map(x.reshape(-1, *(kernel.image_shape or (dim,))))
        scaled = (phi[:, None] - phi[None]) / kernel.base_kernel.base_kernel.lengthscale
        k = kernel.base_kernel.outputscale * torch.exp(-0.5 * scaled.square().sum(-1)) + likelihood.noise * torch.eye(7)
        truth = torch.distributions.MultivariateNormal(torch.zeros(7).double(), k).log_prob(y)
        torch.testing.assert_close(found, truth)
        parameters = [*kernel.parameters()]
        assert len(parameters) == 2 + (2 if kind == "vectors" else len(NAMES))
        gradients = [torch.autograd.grad(value, parameters) for value in (found, truth)]
        torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-6, atol=1e-9)
        assert all(g.abs().max() > 0 for g in gradients[0])
        model.eval()
        assert model(rand(2, dim)).variance.shape == (2,)

    @KINDS
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("path", ["kernel", "FeatureMapCovariance", "Covariance"])
    @pytest.mark.parametrize("again", [True, False])
    def test_in_parts_values_and_gradients_are_the_same(
        self, kind: str, dtype: torch.dtype, path: str, again: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kernel, dim = kernel_of(kind)
        x = rand(11, dim).to(dtype).requires_grad_()

        def evaluate() -> list[Tensor]:
            if path == "kernel":
                out = kernel(x).to_dense()
            else:
                out = {"FeatureMapCovariance": FeatureMapCovariance, "Covariance": Covariance}[path](kernel).gram(x)
            weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
            return [out, *torch.autograd.grad((weights * out).sum(), [x, *kernel.parameters()])]

        whole = evaluate()
        monkeypatch.setattr(orbitgp.kernels.feature_maps, "_PART", {False: 3 * dim + 1, True: 3 * dim + 1})
        monkeypatch.setattr(orbitgp.kernels.feature_maps, "_KEPT", {False: 3 if again else 4})
        if kind == "vectors":
            kernel.feature_map.seen.clear()
        parts = evaluate()
        if kind == "vectors":  # three rows at a time, the last two alone, and of more than are kept again for the gradient
            assert sorted(set(kernel.feature_map.seen)) == [2, 3]
            assert sum(kernel.feature_map.seen) == (22 if again else 11)
        tolerance = {"rtol": 1e-9, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 1e-3, "atol": 1e-4}
        torch.testing.assert_close(parts, whole, **tolerance)
        with torch.no_grad():
            truth = kernel.feature_map(x.double().reshape(-1, *(kernel.image_shape or (dim,))))
            torch.testing.assert_close(kernel.map(x), truth.to(dtype), rtol=1e-4, atol=1e-5)

    def test_a_row_larger_than_a_part_is_a_part(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kernel, dim = kernel_of("vectors")
        x = rand(3, dim)
        truth = kernel.feature_map(x)
        monkeypatch.setattr(orbitgp.kernels.feature_maps, "_PART", {False: 1, True: 1})
        torch.testing.assert_close(kernel.map(x), truth)

    @KINDS
    def test_single_inputs_stay_single_and_parameters_double(self, kind: str) -> None:
        kernel, dim = kernel_of(kind)
        x = rand(6, dim).float().requires_grad_()
        mapped = kernel.map(x)
        kfu, kff = covariance(kernel).expectations(x.reshape(2, 1, 3, dim), x[:2], Pairing.exact())
        gram = covariance(kernel).gram(x)
        assert {t.dtype for t in (mapped, kfu, kff, gram)} == {torch.float32}
        assert covariance(kernel).gram(x, torch.float64).dtype == torch.float64
        gradients = torch.autograd.grad(kfu.sum() + kff.sum() + gram.square().sum(), [x, *kernel.parameters()])
        assert gradients[0].dtype == torch.float32
        assert all(g.dtype == torch.float64 for g in gradients[1:])
        assert all(p.dtype == torch.float64 for p in kernel.parameters())
        double = covariance(kernel).gram(x.detach().double())
        torch.testing.assert_close(gram.double(), double, rtol=1e-4, atol=1e-5)

    def test_buffers_of_the_map_take_the_precision_of_the_input_too(self) -> None:
        norm = nn.BatchNorm1d(4).double().eval()
        norm.running_mean.copy_(torch.arange(4))
        x = rand(5, 4)
        mapped = FeatureMapKernel(rbf(), norm).map(x.float())
        assert mapped.dtype == torch.float32
        torch.testing.assert_close(mapped.double(), norm(x), rtol=1e-5, atol=1e-6)
        assert norm.running_mean.dtype == torch.float64

    def test_no_rows(self) -> None:
        kernel, dim = kernel_of("images")
        assert kernel(rand(0, dim), rand(3, dim)).to_dense().shape == (0, 3)

    def test_rows_that_hold_another_number_of_pixels_are_refused(self) -> None:
        """Two rows of 8 numbers are not one image of 16: as many numbers in all, but not those of one input."""
        kernel = FeatureMapKernel(rbf(), OrientedGradients(4), image_shape=(4, 4))
        with pytest.raises(ValueError, match="image_shape"):
            kernel(rand(4, 8)).to_dense()


# covariance(FeatureMapKernel)

PAIRINGS = {
    "all pairs": (Pairing.groups(4), 4, 1),
    "two groups": (Pairing.groups(2), 2, 3),
    "without replacement": (Pairing.without_replacement(3, 5), 3, 1),
    "exact": (Pairing.exact(), 1, 4),
}
BASES = {"rbf": rbf, "ard": lambda: rbf(3), "matern": matern, "rq": rq}


class TestCovariance:
    @pytest.mark.parametrize("base", BASES)
    @pytest.mark.parametrize("pairing", PAIRINGS)
    def test_equals_the_general_path_with_all_gradients(self, base: str, pairing: str) -> None:
        kernel = FeatureMapKernel(BASES[base](), Curved())
        rule, blocks, size = PAIRINGS[pairing]
        fast, general = covariance(kernel), Covariance(kernel)
        assert type(fast) is FeatureMapCovariance
        assert list(fast.state_dict()) == list(general.state_dict())
        xa = torch.randn(3, blocks, size, 4, dtype=torch.float64).requires_grad_()
        z = torch.randn(5, 4, dtype=torch.float64).requires_grad_()

        def through(module: Covariance) -> list[Tensor]:
            outputs = [*module.expectations(xa, z, rule), module.gram(z), module.gram(z[:4].reshape(2, 2, 4))]
            outputs += [module.gram(z, torch.float64), module.cross(xa[:2].flatten(1, 2), xa[2:].flatten(1, 2))]
            generator = torch.Generator().manual_seed(5)
            loss = sum((torch.randn(o.shape, generator=generator, dtype=torch.float64) * o).sum() for o in outputs)
            return [*outputs, *torch.autograd.grad(loss, [xa, z, *kernel.parameters()])]

        # GPyTorch takes the root of a rounding error at distance zero.
        tolerance = {"rtol": 1e-6, "atol": 1e-7} if base == "matern" else {"rtol": 1e-9, "atol": 1e-10}
        torch.testing.assert_close(through(fast), through(general), **tolerance)

    def test_images_by_the_definition(self) -> None:
        kernel, dim = kernel_of("images")
        xa, z = rand(3, 2, 2, dim), rand(4, 3, dim)

        def k(a: Tensor, b: Tensor) -> Tensor:
            pair = [oriented_gradients(v.reshape(-1, 4, 5), orientations=3, cell=2.0) for v in (a, b)]
            return 1.7 * torch.exp(-0.5 * torch.cdist(*pair, compute_mode="donot_use_mm_for_euclid_dist").square() / 0.81)

        with torch.no_grad():
            kfu, kff = covariance(kernel).expectations(xa, z[:, 0], Pairing.groups(2))
            sets = covariance(kernel).gram(z)
            cross = covariance(kernel).cross(xa[:2, 0], xa[2:, 1])
        for n, g in itertools.product(range(3), range(2)):
            torch.testing.assert_close(kfu[n, g], k(xa[n, g], z[:, 0]).mean(0))
            torch.testing.assert_close(kff[n], k(xa[n, 0], xa[n, 1]).mean())
        for i, j in itertools.product(range(4), repeat=2):
            torch.testing.assert_close(sets[i, j], k(z[i], z[j]).mean())
        for i in range(2):
            torch.testing.assert_close(cross[i, 0], k(xa[i, 0], xa[2, 1]).mean())

    @pytest.mark.parametrize(
        "orbit", [Identity(), Permutation.swap(0, 1, dim=4), GaussianNoise(0.3)], ids=lambda o: type(o).__name__
    )
    @pytest.mark.parametrize("latents", [1, 2])
    def test_the_model_is_the_one_of_mapped_inputs(self, orbit: Orbit, latents: int) -> None:
        """Samples of the orbit, mapped, in a model that knows of no map: the same posterior, to the last few digits."""
        phi, base = Curved(), rbf(3)
        x, z = torch.randn(6, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
        inner = InvariantGP(FeatureMapKernel(base, phi), orbit, z, latents, shared_covariance=False, jitter=1e-8)
        outer = InvariantGP(copy.deepcopy(base), Identity(), phi(z), latents, shared_covariance=False, jitter=1e-8)
        with torch.no_grad():
            for mine, other in ((inner.q_mean, outer.q_mean), (inner.q_sqrt, outer.q_sqrt)):
                mine.copy_(torch.randn_like(mine))
                mine.copy_(mine.tril() if mine.ndim == 3 else mine)
                other.copy_(mine)
        points, pairing = orbit.sample(x, None if hasattr(orbit, "size") else 4)
        seen = [inner.whitened_means(Samples(points, pairing)), outer.whitened_means(Samples(phi(points), pairing))]
        torch.testing.assert_close(*[[p.a, p.prior_mean, p.kff] for p in seen], rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(*[tuple(m.moments(p))[:2] for m, p in zip((inner, outer), seen, strict=True)])
        torch.testing.assert_close(inner.kl(), outer.kl())
        if isinstance(orbit, Identity):
            torch.testing.assert_close(inner.predict(x, None), outer.predict(phi(x).detach(), None))
            torch.testing.assert_close(inner.joint(x, None), outer.joint(phi(x).detach(), None))


class TestSideBySide:
    def test_weighted_vectors_side_by_side(self) -> None:
        x = rand(3, 8, 8)
        fine, coarse = OrientedGradients(cell=2.0), OrientedGradients(cell=4.0)
        both = SideBySide(fine, coarse)
        with torch.no_grad():
            both.log_weights.copy_(torch.tensor([0.3, -0.4]))
            squared = torch.tensor([0.3, -0.4]).double().mul(2).exp()
            weights = (squared / squared.sum()).sqrt()
            expected = torch.cat([weights[0] * fine(x), weights[1] * coarse(x)], 1)
        torch.testing.assert_close(both(x), expected)
        torch.testing.assert_close(both(x).norm(dim=1), torch.ones(3).double())

    def test_what_was_learned_is_saved(self, tmp_path: Path) -> None:
        X, y = digits(20, classes=2)
        own = SideBySide(OrientedGradients(4, cell=2.0), OrientedGradients(4, cell=4.0))
        estimator = InvariantGPRegressor(feature_map=own, max_steps=5).fit(X, y.astype(float))
        learned = estimator.kernel_.feature_map
        assert learned.log_weights.ne(0).all()
        assert learned.maps[0].raw_window != learned.maps[1].raw_window
        estimator.save(tmp_path / "model.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "model.safetensors")
        assert loaded.predict(X).tobytes() == estimator.predict(X).tobytes()

    def test_no_map(self) -> None:
        with pytest.raises(ValueError, match="at least one feature map"):
            SideBySide()


class TestFrame:
    def test_the_whole_image_stays_as_it_is(self) -> None:
        x = rand(3, 2, 5, 6)
        assert torch.equal(Frame(learn=False)(x), x.flatten(1))

    @pytest.mark.parametrize(("width", "height"), [(0.6, 0.85), (0.31, 1.0), (0.93, 0.47)])
    def test_a_quadratic_image_is_enlarged_exactly(self, width: float, height: float) -> None:
        """Cubic interpolation loses nothing of a parabola, as far as no place looks beyond the image."""

        def image(share_x: float, share_y: float) -> Tensor:
            rows, columns = (share * (torch.arange(n).double() - (n - 1) / 2) for n, share in ((9, share_y), (12, share_x)))
            y, x = torch.meshgrid(rows, columns, indexing="ij")
            return 0.3 * x**2 - 0.7 * x * y + 0.2 * y**2 + x - 2 * y + 1

        seen = Frame(width=width, height=height, learn=False)(image(1.0, 1.0)[None]).reshape(9, 12)
        inside = slice(None) if height < 0.8 else slice(1, -1), slice(None) if width < 0.8 else slice(1, -1)
        torch.testing.assert_close(seen[inside], image(width, height)[inside], rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("share", [0.55, 1.3])
    def test_weights_in_loops(self, share: float) -> None:
        """Keys' cubic weights, written out for every pixel and place."""
        size, x = 7, rand(2, 7, 1)
        expected = torch.zeros(2, size).double()
        for i, j in itertools.product(range(size), repeat=2):
            t = abs(share * (i - 3) - (j - 3))
            weight = 1.5 * t**3 - 2.5 * t**2 + 1 if t < 1 else (-0.5 * t**3 + 2.5 * t**2 - 4 * t + 2 if t < 2 else 0.0)
            expected[:, i] += weight * x[:, j, 0]
        torch.testing.assert_close(Frame(height=share, learn=False)(x), expected)

    @pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (1, 1)], ids=str)
    @pytest.mark.parametrize("share", [0.8, 1.0])
    def test_gradcheck_in_the_image_and_the_frame(self, shape: tuple[int, ...], share: float) -> None:
        """At the whole image, too, where it starts: linear interpolation would have no gradient there."""
        module = Frame(width=share, height=share)
        raw = {name: p.detach().clone().requires_grad_() for name, p in module.named_parameters()}

        def features(x: Tensor, *values: Tensor) -> Tensor:
            return torch.func.functional_call(module, dict(zip(raw, values, strict=True)), (x,))

        assert torch.autograd.gradcheck(features, (rand(2, *shape).requires_grad_(), *raw.values()))

    def test_another_map_sees_what_is_in_the_frame(self) -> None:
        x, own = rand(4, 8, 9), OrientedGradients(cell=2.0)
        module = Frame(own, width=0.7, height=0.9)
        seen = Frame(width=0.7, height=0.9)(x).reshape(x.shape)
        torch.testing.assert_close(module(x), own(seen))
        assert module.named_constants() == pytest.approx({"width": 0.7, "height": 0.9})
        assert "width=0.7, height=0.9" in repr(module)
        assert "window=0.625" in repr(module)

    def test_the_evidence_leaves_a_noisy_margin_out(self, tmp_path: Path) -> None:
        X, y = digits(50)
        wide = np.random.default_rng(0).uniform(0, 1, (50, 16, 16))
        wide[:, 4:12, 4:12] = X
        settings: dict[str, Any] = {"likelihood": "gaussian", "random_state": 0}
        plain, framed = (InvariantGPClassifier(feature_map=own, **settings).fit(wide, y) for own in (None, Frame()))
        assert all(share < 0.5 for share in framed.kernel_.feature_map.named_constants().values())
        assert framed.evidence_.value > plain.evidence_.value + 100
        shares = ", ".join(f"{name} {share:.3g}" for name, share in framed.kernel_.feature_map.named_constants().items())
        assert f"g sees: Frame ({shares})" in framed.summary()
        assert "g sees" not in plain.summary()
        framed.save(tmp_path / "model.safetensors")
        loaded = InvariantGPClassifier.load(tmp_path / "model.safetensors")
        assert loaded.predict_proba(wide).tobytes() == framed.predict_proba(wide).tobytes()

    def test_a_map_within_is_saved(self, tmp_path: Path) -> None:
        X, y = digits(20, classes=2)
        own = Frame(OrientedGradients(4, cell=2.0))
        estimator = InvariantGPRegressor(feature_map=own, max_steps=5).fit(X, y.astype(float))
        learned = estimator.kernel_.feature_map
        assert learned.raw_width != 0
        assert learned.feature_map.raw_window != own.feature_map.raw_window
        estimator.save(tmp_path / "model.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "model.safetensors")
        assert repr(loaded.kernel_.feature_map) == repr(learned)
        assert loaded.predict(X).tobytes() == estimator.predict(X).tobytes()

    def test_bad_arguments(self) -> None:
        with pytest.raises(ValueError, match="width must be positive and finite, got 0"):
            Frame(width=0.0)
        with pytest.raises(ValueError, match=r"Frame takes images .* shape \(5,\): set image_shape"):
            Frame()(rand(3, 5))


# The estimators

BRIEF = TrainingOptions(learning_rate=0.03, start_rows=0)
QUICK: dict[str, Any] = {"max_steps": 6, "num_samples": 4, "num_inducing": 20, "random_state": 0, "training": BRIEF}


@pytest.fixture(scope="module")
def fitted() -> tuple[InvariantGPClassifier, OrientedGradients]:
    """A classifier of sixty digits, and the map that it was given, which nobody else may change."""
    own = OrientedGradients(orientations=4, cell=2.0)
    X, y = digits(60, classes=3)
    return InvariantGPClassifier(Rotation(20.0), feature_map=own, **QUICK).fit(X, y), own


def table() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(20, 4))
    return X, np.sin(X.sum(1)) + 0.1 * X[:, 0]


class Fixed(nn.Module):
    """x A^T, which is not learned."""

    def __init__(self, matrix: np.ndarray) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.tensor(matrix))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.matrix.mT


class Returns(nn.Module):
    """A map that goes wrong in a way of one's choice."""

    def __init__(self, how: Any) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor) -> Any:
        if isinstance(self.how, Exception):
            raise self.how
        return self.how(x)


class TestEstimators:
    @pytest.mark.slow
    def test_fits_and_learns_the_map_too(self, fitted: Any) -> None:
        estimator, own = fitted
        X, y = digits(60, classes=3)
        assert type(estimator.kernel_) is FeatureMapKernel
        assert estimator.kernel_ is estimator.model_.kernel
        assert type(estimator.model_.covariance) is FeatureMapCovariance
        assert estimator.kernel_.image_shape == (8, 8)
        assert estimator.score(X, y) > 0.9
        learned = dict(estimator.kernel_.feature_map.named_parameters())
        for name, before in OrientedGradients(orientations=4, cell=2.0).named_parameters():
            assert torch.equal(getattr(own, name), before)
            assert getattr(own, name).grad is None
            assert abs(learned[name].item() - before.item()) > 1e-3
        assert estimator.feature_map is own
        assert estimator.kernel_.feature_map is not own
        assert estimator.orbit_.describe().to_dict() != estimator.orbit.describe().to_dict()

    def test_the_history_tells_of_the_map_by_name(self, fitted: Any) -> None:
        estimator, _ = fitted
        last = estimator.history_[-1]
        for name in NAMES:
            assert last[name] == pytest.approx(getattr(estimator.kernel_.feature_map, f"raw_{name}").exp().item())
        assert estimator.history_[0]["window"] != last["window"]
        assert last["lengthscale"] == pytest.approx(estimator.kernel_.base_kernel.base_kernel.lengthscale.item())

    def test_the_first_lengthscale_is_a_distance_of_features(self) -> None:
        """Distances of pixels are ten times as large here; no step is long enough to get from one to the other."""
        X, y = digits(30)
        own = OrientedGradients(cell=2.0)
        estimator = InvariantGPRegressor(feature_map=own, **{**QUICK, "max_steps": 1}).fit(10 * X, y.astype(float))
        with torch.no_grad():
            median = torch.pdist(own(torch.tensor(10 * X))).median().item()
        assert estimator.kernel_.base_kernel.base_kernel.lengthscale.item() == pytest.approx(median, rel=0.2)

    def test_what_is_not_learned_stays(self) -> None:
        X, y = digits(20)
        own = OrientedGradients(learn=False)
        estimator = InvariantGPRegressor(feature_map=own, **QUICK).fit(X, y.astype(float))
        for name, parameter in estimator.kernel_.feature_map.named_parameters():
            assert torch.equal(parameter, getattr(own, name))

    def test_a_kernel_of_ones_own_is_one_of_features(self) -> None:
        X, y = table()
        linear = nn.Linear(4, 2)
        before = copy.deepcopy(linear.state_dict())
        kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
        estimator = InvariantGPRegressor(None, kernel, feature_map=linear, **QUICK).fit(X, y)
        assert estimator.kernel_.base_kernel.base_kernel.lengthscale.shape == (1, 2)
        assert estimator.kernel_.image_shape is None
        assert not torch.equal(estimator.kernel_.feature_map.weight.float(), before["weight"])
        assert all(torch.equal(linear.state_dict()[n], v) for n, v in before.items())
        assert linear.weight.dtype == torch.float32
        with pytest.raises(ValueError, match="lengthscales for 4 features, but the inputs have 2"):
            InvariantGPRegressor(None, ScaleKernel(RBFKernel(ard_num_dims=4)), feature_map=linear, **QUICK).fit(X, y)

    def test_as_a_kernel_it_may_have_a_lengthscale_for_each_feature(self) -> None:
        X, y = table()
        kernel = FeatureMapKernel(RBFKernel(ard_num_dims=3), Curved())
        estimator = InvariantGPRegressor(None, kernel, **QUICK).fit(X, y)
        assert estimator.kernel_.base_kernel.lengthscale.shape == (1, 3)

    def test_a_fixed_linear_map_is_preprocessing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Trained from end to end: the inducing points are fixed, as one step of x is not one of A x."""
        monkeypatch.setattr("orbitgp.training.learning_rates._INDUCING_RATE", 0.0)
        X, y = table()
        matrix = np.random.default_rng(1).normal(size=(3, 4))
        settings = {**QUICK, "num_inducing": 12, "training": BRIEF}
        mapped = InvariantGPRegressor(feature_map=Fixed(matrix), **settings).fit(X, y)
        before = InvariantGPRegressor(**settings).fit(X @ matrix.T, y)
        assert mapped.evidence_.value == pytest.approx(before.evidence_.value, rel=1e-8)
        new = np.random.default_rng(2).normal(size=(5, 4))
        results = [mapped.predict(new, return_std=True), before.predict(new @ matrix.T, return_std=True)]
        np.testing.assert_allclose(*results, rtol=1e-6, atol=1e-8)
        for one in (mapped, before):
            assert one.history_[-1]["bound"] == pytest.approx(before.history_[-1]["bound"], rel=1e-8)
        assert mapped.model_.inducing.shape == (12, 4)

    def test_evidence_with_all_inducing_points_is_that_of_the_exact_gp(self) -> None:
        X, y = table()
        settings = {**QUICK, "num_inducing": len(X), "training": replace(BRIEF, jitter=1e-10)}
        estimator = InvariantGPRegressor(feature_map=Curved(), normalize_y=False, **settings).fit(X, y)
        kernel, noise = estimator.kernel_, estimator.likelihood_.noise.item()
        with torch.no_grad():
            phi = torch.sin(torch.tensor(X) @ kernel.feature_map.weight + kernel.feature_map.shift)
            distances = torch.cdist(phi, phi, compute_mode="donot_use_mm_for_euclid_dist")
            scale = kernel.base_kernel.base_kernel.lengthscale.item()
            k = kernel.base_kernel.outputscale * torch.exp(-0.5 * (distances / scale) ** 2) + noise * torch.eye(len(X))
            mean = estimator.model_.prior_mean.bias.expand(len(X))
            truth = torch.distributions.MultivariateNormal(mean, k).log_prob(torch.tensor(y)).item()
        assert estimator.evidence_.value == pytest.approx(truth, abs=1e-4)

    @pytest.mark.slow
    def test_is_cloned_and_pickled(self, fitted: Any) -> None:
        estimator, own = fitted
        X, y = digits(60, classes=3)
        twin = clone(estimator)
        assert type(twin.feature_map) is OrientedGradients
        assert twin.feature_map is not own
        assert not hasattr(twin, "kernel_")
        twin.fit(X, y)
        assert twin.predict_proba(X).tobytes() == estimator.predict_proba(X).tobytes()
        assert twin.evidence_ == estimator.evidence_
        back = pickle.loads(pickle.dumps(estimator))
        assert back.predict_proba(X).tobytes() == estimator.predict_proba(X).tobytes()

    @pytest.mark.parametrize(("value", "sentence"), [
        ("gradients", "feature_map must be a torch.nn.Module or None, got str"),
        (OrientedGradients, r"feature_map must be an instance, got the class OrientedGradients: write OrientedGradients\("),
        (3.0, "feature_map must be a torch.nn.Module or None"),
    ], ids=str)  # fmt: skip
    def test_what_is_no_map(self, value: Any, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Trainer, "run", lambda self: pytest.fail("training began"))
        with pytest.raises(TypeError, match=sentence):
            InvariantGPRegressor(feature_map=value).fit(*table())

    @pytest.mark.parametrize(("how", "sentence"), [
        (lambda x: x.sum(1), r"must take 2 inputs to vectors \(2, D\), but gives \(2,\)"),
        (lambda x: x[:1], r"but gives \(1, 4\)"),
        (lambda x: x[:, :0], r"but gives \(2, 0\)"),
        (lambda x: (x, x), "but gives tuple"),
        (lambda x: None, "but gives NoneType"),
        (lambda x: x * math.nan, "numbers that are not finite"),
        (lambda x: x / 0, "numbers that are not finite"),
        (lambda x: x @ torch.ones(5, 2).double(), r"cannot be evaluated on inputs of shape \(4,\): mat1 and mat2"),
        (lambda x: x[:, 9], "cannot be evaluated"),
        (RuntimeError("first\nsecond"), r"the feature map Returns cannot be evaluated on inputs of shape \(4,\): first$"),
        (ValueError("no such input"), "no such input"),
        (RuntimeError(), "the feature map Returns cannot be evaluated"),
        (NotImplementedError(), "the feature map Returns cannot be evaluated"),
        (KeyError("missing"), "the feature map Returns cannot be evaluated"),
        (AttributeError("missing"), "the feature map Returns cannot be evaluated"),
    ], ids=[
        "one number", "fewer rows", "no features", "a tuple", "nothing", "NaN", "infinity", "product", "index",
        "raises", "says what is wrong", "raises without a word", "not written", "KeyError", "AttributeError",
    ])  # fmt: skip
    def test_maps_that_go_wrong(self, how: Any, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Trainer, "run", lambda self: pytest.fail("training began"))
        estimator = InvariantGPRegressor(feature_map=Returns(how))
        before = set(vars(estimator))
        with pytest.raises(ValueError, match=sentence) as caught:
            estimator.fit(*table())
        assert "\n" not in str(caught.value)
        assert set(vars(estimator)) == before

    def test_images_that_came_as_rows(self) -> None:
        X, y = digits(20, classes=3)
        flat = X.reshape(20, 64)
        with pytest.raises(ValueError, match=r"OrientedGradients takes images .* shape \(64,\): set image_shape\.$"):
            InvariantGPClassifier(feature_map=OrientedGradients()).fit(flat, y)
        settings = {"feature_map": OrientedGradients(), **QUICK, "max_steps": 1}
        estimators = [
            InvariantGPClassifier(image_shape=(8, 8), **settings).fit(flat, y),
            InvariantGPClassifier(**settings).fit(X, y),
        ]
        assert estimators[0].predict_proba(flat).tobytes() == estimators[1].predict_proba(X).tobytes()


# Saving


class OwnKernel(RBFKernel):
    """A kernel that nobody registered."""


class TestSaving:
    @pytest.mark.slow
    def test_comes_back_to_the_last_bit(self, fitted: Any, tmp_path: Path) -> None:
        estimator, own = fitted
        X, y = digits(60, classes=3)
        estimator.save(tmp_path / "model.safetensors")
        loaded = InvariantGPClassifier.load(tmp_path / "model.safetensors")
        assert loaded.predict_proba(X).tobytes() == estimator.predict_proba(X).tobytes()
        assert type(loaded.kernel_) is FeatureMapKernel
        assert loaded.kernel_.image_shape == (8, 8)
        for name, parameter in own.named_parameters():
            assert torch.equal(getattr(loaded.feature_map, name), parameter)
            assert torch.equal(getattr(loaded.kernel_.feature_map, name), getattr(estimator.kernel_.feature_map, name))
            assert getattr(loaded.kernel_.feature_map, name).requires_grad
        assert (loaded.feature_map.orientations, loaded.feature_map.cell) == (4, 2.0)
        assert clone(loaded).fit(X, y).evidence_ == estimator.evidence_

    def test_a_map_that_is_not_learned(self, tmp_path: Path) -> None:
        X, y = digits(20)
        own = OrientedGradients(**OTHER, learn=False)
        estimator = InvariantGPRegressor(feature_map=own, **QUICK).fit(X, y.astype(float))
        estimator.save(tmp_path / "model.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "model.safetensors")
        assert loaded.predict(X).tobytes() == estimator.predict(X).tobytes()
        assert not any(p.requires_grad for p in loaded.kernel_.feature_map.parameters())
        assert not loaded.feature_map.learn

    @pytest.fixture
    def unregistered(self, tmp_path: Path) -> tuple[InvariantGPRegressor, Path]:
        estimator = InvariantGPRegressor(feature_map=Curved(), **QUICK).fit(*table())
        estimator.save(tmp_path / "model.safetensors")
        return estimator, tmp_path / "model.safetensors"

    def test_the_file_asks_for_a_map_of_ones_own(self, unregistered: Any) -> None:
        _, path = unregistered
        with pytest.raises(SavedFileError, match=r"feature_map \(.*Curved\).* load\(path, .*feature_map=…\)") as caught:
            InvariantGPRegressor.load(path)
        assert "\n" not in str(caught.value)

    def test_a_map_of_ones_own_is_handed_in(self, unregistered: Any) -> None:
        estimator, path = unregistered
        X, y = table()
        own = Curved()
        loaded = InvariantGPRegressor.load(path, feature_map=own)
        assert loaded.predict(X).tobytes() == estimator.predict(X).tobytes()
        assert torch.equal(loaded.kernel_.feature_map.weight, estimator.kernel_.feature_map.weight)
        assert torch.equal(loaded.feature_map.weight, Curved().weight)
        assert torch.equal(own.weight, Curved().weight)
        assert clone(loaded).fit(X, y).evidence_ == estimator.evidence_

    def test_another_map_is_noticed(self, unregistered: Any) -> None:
        class Other(Curved):
            def forward(self, x: Tensor) -> Tensor:
                return 2 * super().forward(x)

        with pytest.raises(SavedFileError, match="predicts something else"):
            InvariantGPRegressor.load(unregistered[1], feature_map=Other())

    def test_a_map_of_ones_own_with_a_given_kernel(self, tmp_path: Path) -> None:
        X, y = table()
        estimator = InvariantGPRegressor(None, RBFKernel(), feature_map=Curved(), **QUICK).fit(X, y)
        estimator.save(tmp_path / "model.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "model.safetensors", feature_map=Curved())
        assert loaded.predict(X).tobytes() == estimator.predict(X).tobytes()

    def test_our_map_with_a_kernel_of_ones_own(self, tmp_path: Path) -> None:
        X, y = digits(20)
        estimator = InvariantGPRegressor(None, OwnKernel(), feature_map=OrientedGradients(), **QUICK).fit(X, y.astype(float))
        estimator.save(tmp_path / "model.safetensors")
        loaded = InvariantGPRegressor.load(tmp_path / "model.safetensors", kernel=OwnKernel())
        assert loaded.predict(X).tobytes() == estimator.predict(X).tobytes()


# The orbit acts first


class TestOrbits:
    @pytest.mark.parametrize(
        ("orbit", "move"),
        [(Rotate90(), lambda x: np.rot90(x, 1, (1, 2))), (Flip(), lambda x: x[:, :, ::-1])],
        ids=["Rotate90", "Flip"],
    )
    def test_predictions_are_invariant(self, orbit: Orbit, move: Any) -> None:
        X, y = digits(30, classes=3)
        settings = {**QUICK, "num_samples": None, "training": replace(BRIEF, dtype="float64"), "max_steps": 3}
        estimator = InvariantGPClassifier(orbit, feature_map=OrientedGradients(), **settings).fit(X, y)
        moved = move(X).copy()
        np.testing.assert_allclose(estimator.predict_proba(moved), estimator.predict_proba(X), rtol=1e-9, atol=1e-11)
        # The map alone is not: a moved digit has other features.
        plain = InvariantGPClassifier(feature_map=OrientedGradients(), **settings).fit(X, y)
        assert np.abs(plain.predict_proba(moved) - plain.predict_proba(X)).max() > 0.05

    def test_invariant_kernel_is_the_double_mean_of_mapped_elements(self) -> None:
        base = FeatureMapKernel(rbf(), OrientedGradients(3, cell=2.0), (4, 5))
        kernel = InvariantKernel(base, Flip(True, True), image_shape=(4, 5))
        x, y = rand(3, 20), rand(2, 20)

        def elements(row: Tensor) -> Tensor:
            image = row.reshape(4, 5)
            flipped = torch.stack([image, image.flip(0), image.flip(1), image.flip(0, 1)])
            return oriented_gradients(flipped, orientations=3, cell=2.0)

        truth = torch.empty(3, 2).double()
        for i, j in itertools.product(range(3), range(2)):
            pairs = [1.7 * torch.exp(-0.5 * ((a - b) / 0.9).square().sum()) for a in elements(x[i]) for b in elements(y[j])]
            truth[i, j] = torch.stack(pairs).mean()
        torch.testing.assert_close(kernel(x, y).to_dense().detach(), truth)
        moved = x.reshape(3, 4, 5).flip(2).flatten(1)
        torch.testing.assert_close(kernel(moved, y).to_dense().detach(), truth)
        assert (base(moved, y).to_dense() - base(x, y).to_dense()).abs().max() > 1e-3

    def test_an_orbit_is_learned_through_the_map(self) -> None:
        """The gradient of kff in the angle, against a difference of two angles."""
        kernel, x = FeatureMapKernel(rbf(), OrientedGradients(cell=2.0), (8, 8)), torch.tensor(digits(3)[0])
        orbit = Rotation(20.0).double()
        (angle,) = orbit.parameters()

        def kff() -> Tensor:
            points, pairing = orbit.sample(x, 8, 2, "iid", torch.Generator().manual_seed(0))
            return covariance(kernel).expectations(points.flatten(3), x[:1].flatten(1), pairing)[1].sum()

        (gradient,) = torch.autograd.grad(kff(), angle)
        direction = torch.randn_like(angle)
        ends = []
        for step in (1e-6, -2e-6):  # forward, and back to the other side
            with torch.no_grad():
                angle.add_(step * direction)
                ends.append(kff().item())
        difference = (ends[0] - ends[1]) / 2e-6
        assert abs(difference) > 1e-4
        assert (gradient * direction).sum().item() == pytest.approx(difference, rel=1e-4)
