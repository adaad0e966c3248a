"""Kernels behind feature maps: against the same kernel of mapped inputs."""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from sklearn.datasets import load_digits
from torch import Tensor, nn

import orbitgp.kernels.feature_maps
from orbitgp import InvariantGPClassifier, InvariantGPRegressor, InvariantKernel, TrainingOptions
from orbitgp.inference.model import InvariantGP
from orbitgp.kernels.covariance import Covariance, FeatureMapCovariance, covariance
from orbitgp.kernels.feature_maps import FeatureMapKernel, SideBySide
from orbitgp.kernels.image_maps import OrientedGradients
from orbitgp.orbits import Flip, GaussianNoise, Identity, Orbit, Pairing, Permutation, Rotate90, Rotation, Samples
from tests.kernels.kuu import kuu
from tests.kernels.maps import NAMES, Curved, oriented_gradients

BRIEF = TrainingOptions(learning_rate=0.03, start_rows=0)
QUICK: dict[str, Any] = {"max_steps": 6, "num_samples": 4, "num_inducing": 20, "random_state": 0, "training": BRIEF}


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64)


def digits(count: int, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    images, labels = load_digits(n_class=classes, return_X_y=True)
    return images[:count].reshape(-1, 8, 8) / 16, labels[:count]


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
    @pytest.mark.parametrize(("dtype", "again"), [(torch.float32, True), (torch.float64, False)])
    @pytest.mark.parametrize("path", ["kernel", "FeatureMapCovariance", "Covariance"])
    def test_in_parts_values_and_gradients_are_the_same(
        self, kind: str, dtype: torch.dtype, path: str, again: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kernel, dim = kernel_of(kind)
        x = rand(11, dim).to(dtype).requires_grad_()

        def evaluate() -> list[Tensor]:
            if path == "kernel":
                out = kernel(x).to_dense()
            else:
                out = kuu({"FeatureMapCovariance": FeatureMapCovariance, "Covariance": Covariance}[path](kernel), x)
            weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
            return [out, *torch.autograd.grad((weights * out).sum(), [x, *kernel.parameters()])]

        whole = evaluate()
        monkeypatch.setattr(orbitgp.kernels.feature_maps, "_PART", {False: 3 * dim + 1, True: 3 * dim + 1})
        monkeypatch.setattr(orbitgp.kernels.feature_maps, "_KEPT", {False: 3 if again else 4})
        if kind == "vectors":
            kernel.feature_map.seen.clear()
        parts = evaluate()
        if (
            kind == "vectors"
        ):  # three rows at a time, the last two alone, and of more than are kept again for the gradient
            assert sorted(set(kernel.feature_map.seen)) == [2, 3]
            times = 3 if path == "Covariance" else 1  # blind to the map: rows, columns and the diagonal are mapped
            assert sum(kernel.feature_map.seen) == times * (22 if again else 11)
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
        gram = kuu(covariance(kernel), x)
        assert {t.dtype for t in (mapped, kfu, kff, gram)} == {torch.float32}
        gradients = torch.autograd.grad(kfu.sum() + kff.sum() + gram.square().sum(), [x, *kernel.parameters()])
        assert gradients[0].dtype == torch.float32
        assert all(g.dtype == torch.float64 for g in gradients[1:])
        assert all(p.dtype == torch.float64 for p in kernel.parameters())
        double = kuu(covariance(kernel), x.detach().double())
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
            outputs = [*module.expectations(xa, z, rule), kuu(module, z), kuu(module, z[:4].reshape(2, 2, 4))]
            outputs += [kuu(module, z.double()), module.cross(xa[:2].flatten(1, 2), xa[2:].flatten(1, 2))]
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
            return 1.7 * torch.exp(
                -0.5 * torch.cdist(*pair, compute_mode="donot_use_mm_for_euclid_dist").square() / 0.81
            )

        with torch.no_grad():
            kfu, kff = covariance(kernel).expectations(xa, z[:, 0], Pairing.groups(2))
            sets = kuu(covariance(kernel), z)
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
            pairs = [
                1.7 * torch.exp(-0.5 * ((a - b) / 0.9).square().sum()) for a in elements(x[i]) for b in elements(y[j])
            ]
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
