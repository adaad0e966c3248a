"""Which rows exact inference learns from, what it can afford, and that it conditions on all of them."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from scipy.special import expit
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from torch import nn

from orbitgp import InvariantGPClassifier, InvariantGPRegressor, TrainingOptions
from orbitgp.inference.exact import ExactGP
from orbitgp.kernels.feature_maps import FeatureMapKernel
from orbitgp.likelihoods import Bernoulli, Dirichlet, Gaussian, GaussianIndicators
from orbitgp.orbits import GaussianNoise, Identity
from orbitgp.planning import plan
from orbitgp.planning.cost import workload
from orbitgp.planning.options import TrainerSettings
from orbitgp.planning.plan import NUM_INDUCING, Plan, make_plan
from orbitgp.planning.rungs import LEAST_ROWS
from orbitgp.training.objective import representative_order


def kernel() -> ScaleKernel:
    return ScaleKernel(RBFKernel()).double()


class Drawn(GaussianNoise):
    """Noise as any infinite orbit: k_f has no closed form."""


def choice(rows: int, gigabytes: float, seconds: float, monkeypatch: pytest.MonkeyPatch, **further: Any) -> Plan:
    monkeypatch.setattr(plan, "free_memory", lambda device: gigabytes * 1e9)
    model = ExactGP(kernel(), Identity(), torch.zeros(rows, 1))
    settings = TrainerSettings(exact_seconds=seconds)
    likelihood = further.get("likelihood", Gaussian(1))
    return make_plan(further.get("inference", "auto"), likelihood, model, settings, None, False)


class TestWhatCanBeAfforded:
    # By hand: learning takes 28 bytes for each pair of rows and conditioning 20, of 70 % of the free memory. Blocks of
    # the kernel take 0.3 GB, and copies of the only column 40 bytes a row. Up to 12,900 rows, half of the pairs are
    # kept, too.
    @pytest.mark.parametrize(
        ("gigabytes", "rows", "learned"),
        [
            (2, 5_800, 5_800),
            (2, 7_500, 5_900),
            (2, 9_000, 0),
            (8, 13_500, 13_500),
            (8, 16_000, 13_700),
            (8, 20_000, 0),
            (24, 24_000, 24_000),
            (24, 28_000, 24_200),
            (24, 60_000, 0),
            (80, 44_000, 44_000),
            (80, 50_000, 44_500),
            (80, 60_000, 0),
        ],
    )
    def test_memory(self, gigabytes: float, rows: int, learned: int, monkeypatch: pytest.MonkeyPatch) -> None:
        found = choice(rows, gigabytes, 1e9, monkeypatch)
        if learned == 0:
            assert found.inference == "sparse"
            assert f"{gigabytes:.1f} GB are free" in found.reason
        else:
            assert found.learn_rows == learned
        if 0 < learned < rows:
            assert found.reason == f"learned on {learned:,} of {rows:,} rows, conditioned on all"

    def test_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """More rows: first all of them are learned from, then some, then inference is sparse."""
        found = [choice(rows, 1000, 150.0, monkeypatch) for rows in (1_000, 4_000, 12_000, 30_000)]
        assert [c.inference for c in found] == ["exact", "exact", "exact", "sparse"]
        assert found[0].learn_rows == 1_000
        assert LEAST_ROWS <= found[2].learn_rows < found[1].learn_rows < 4_000
        assert "conditioning on all rows: it would take about" in found[3].reason
        forced = choice(30_000, 1000, 150.0, monkeypatch, inference="exact")
        assert LEAST_ROWS <= forced.learn_rows < 30_000

    def test_where_time_is_short_it_is_not_memory_that_is_blamed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """20,000 rows take 8 GB to condition on, and 11 GB to learn from; there are 10."""
        assert choice(20_000, 10 / 0.7, 1e9, monkeypatch).inference == "exact"
        hurried = choice(20_000, 10 / 0.7, 60.0, monkeypatch)
        assert hurried.inference == "sparse"
        assert "conditioning on all rows: it would take about" in hurried.reason
        assert "GB are free" in choice(20_000, 6 / 0.7, 60.0, monkeypatch).reason

    def test_less_time_leaves_fewer_draws(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By hand: 4,000 rows of 784 numbers with S draws take 792 (4,000 S)^2 operations at 40e9 a second, and 2 s for
        N^3.

        That is 83 s for 16 draws, 22 s for 8, and 327 s for 32, of three fifths of the time.
        """
        monkeypatch.setattr(plan, "free_memory", lambda device: 1e12)
        model = ExactGP(kernel(), Drawn(0.1), torch.zeros(4_000, 784))

        def found(seconds: float) -> tuple[str, int | None]:
            chosen = make_plan("auto", Gaussian(1), model, TrainerSettings(exact_seconds=seconds), None, False)
            return chosen.inference, chosen.draws

        assert found(600.0) == ("exact", 32)
        assert found(150.0) == ("exact", 16)
        assert found(100.0) == ("exact", 8)
        assert found(3.0)[0] == "sparse"

    def test_where_sparse_inference_would_be_slow_it_may_take_four_times_as_long(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By hand: a bound of 10,000 such rows takes 6 * 792 * 10,000 * 32 * 2,048 operations, 78 s, and a hundred of
        them more than 600 s. Conditioning with 8 draws takes 127 s for the kernel and 31 s for N^3."""
        monkeypatch.setattr(plan, "free_memory", lambda device: 1e12)

        def found(rows: int, dim: int, **options: Any) -> tuple[str, int | None]:
            model = ExactGP(kernel(), Drawn(0.1), torch.zeros(rows, dim))
            chosen = make_plan("auto", Gaussian(1), model, TrainerSettings(**options), None, False)
            return chosen.inference, chosen.draws

        assert found(10_000, 784) == ("exact", 8)
        assert found(10_000, 784, exact_seconds=60.0)[0] == "sparse"
        assert found(10_000, 784, max_seconds=250.0)[0] == "sparse"
        assert found(20_000, 784)[0] == "sparse"
        assert found(16_000, 2)[0] == "sparse"  # where conditioning takes 128 s for N^3, and a bound 1.5 s

    def test_noises_that_differ_between_latent_functions_take_time(self) -> None:
        """By hand: N^3 / 2 operations at 16e9 a second for one factor; a class with a noise of its own takes solves,
        too."""
        model = ExactGP(kernel(), Identity(), torch.zeros(8_000, 1))
        algebra = 8_000**3 / 16e9
        kernels = 9 * 8_000**2 / 40e9
        for likelihood, factor in ((Gaussian(3), 0.5), (GaussianIndicators(10), 0.5), (Dirichlet(10), 2.0)):
            found = workload(model, likelihood, None).conditioning(8_000).seconds
            assert found == pytest.approx(factor * algebra + kernels)

    def test_turns_of_local_parameters_take_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By hand: with local parameters conditioning takes 2 N^3 operations at 16e9 a second, and 5 turns more of 2/3
        N^3."""
        two, one = (choice(6_000, 1000, 150.0, monkeypatch, likelihood=found) for found in (Bernoulli(), Gaussian(1)))
        assert two.inference == one.inference == "exact"
        assert LEAST_ROWS <= two.learn_rows < one.learn_rows
        for rows in (6_300, 7_000):  # 83 s and 114 s with turns, 8 s and 11 s without, of 90 s
            assert choice(rows, 1000, 150.0, monkeypatch).inference == "exact"
            found = choice(rows, 1000, 150.0, monkeypatch, likelihood=Bernoulli()).inference
            assert found == ("exact" if rows < 6_400 else "sparse")

    def test_sparse_inference_is_for_more_data_than_inducing_points(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of so few large images it would take longer, and have as many inducing points as data."""
        monkeypatch.setattr(plan, "free_memory", lambda device: 8e9)

        def found(rows: int, **options: Any) -> str:
            model = ExactGP(kernel(), Drawn(0.1), torch.zeros(rows, 3000))
            return make_plan("auto", Gaussian(1), model, TrainerSettings(**options), None, False).inference

        assert found(NUM_INDUCING, exact_seconds=0.01) == "exact"
        assert found(NUM_INDUCING + 1, exact_seconds=0.01) == "sparse"
        monkeypatch.setattr(plan, "free_memory", lambda device: 1e6)
        assert found(NUM_INDUCING) == "sparse"

    @pytest.mark.parametrize("rows", [60, 300, 1000])
    @pytest.mark.parametrize("limit", [40.0, 200.0])
    def test_a_limit_leaves_fewer_rows_of_large_images(
        self, rows: int, limit: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By hand: twenty evaluations with S draws, each of 4 * 12,296 (N S)^2 operations at 40e9 a second, and a
        posterior of all rows in a quarter of that fit into the limit. Without one, sparse inference of 300 rows would
        take 1,500 s."""
        monkeypatch.setattr(plan, "free_memory", lambda device: 1e12)
        model = ExactGP(kernel(), Drawn(0.1), torch.zeros(1).expand(rows, 12_288))
        found = make_plan("auto", Gaussian(1), model, TrainerSettings(max_seconds=limit), None, False)
        assert found.inference == "exact"
        assert 50 <= found.learn_rows < rows or rows == 60
        assert found.draws is not None
        evaluations = 20 * 4 * 12_296 * (found.learn_rows * min(found.draws, 16)) ** 2 / 40e9
        posterior = 12_296 * (rows * found.draws) ** 2 / 40e9
        assert posterior < 0.61 * limit
        assert evaluations + posterior < 1.2 * limit
        assert found.seconds is not None
        assert found.seconds <= limit
        free = make_plan("auto", Gaussian(1), model, TrainerSettings(), None, False)
        assert free.learn_rows > found.learn_rows or rows == 60

    def test_threads_do_not_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = torch.get_num_threads()
        try:
            found = []
            for threads in (1, 4):
                torch.set_num_threads(threads)
                found.append(choice(4_000, 8, 150.0, monkeypatch))
        finally:
            torch.set_num_threads(before)
        assert found[0] == found[1]

    def test_the_kernel_compares_features(self) -> None:
        mapped = FeatureMapKernel(kernel(), nn.Linear(3, 50), None).double()
        assert workload(ExactGP(mapped, GaussianNoise(0.1), torch.zeros(4, 3)), Gaussian(1), None).dim == 50


class TestTheOrderOfRows:
    def test_every_beginning_has_the_labels_in_their_proportions(self) -> None:
        shares = (0.6, 0.3, 0.1)
        y = torch.eye(3).repeat_interleave(torch.tensor([600, 300, 100]), 0)
        order = representative_order(y, seed=3)
        assert sorted(order.tolist()) == list(range(1000))
        for count in (10, 50, 333, 900):
            counts = y[order[:count]].sum(0)
            assert all(abs(float(n) - share * count) <= 1 for n, share in zip(counts, shares, strict=True))

    def test_it_is_seeded_and_random(self) -> None:
        y = torch.rand(100, 1)
        one, again, other = (representative_order(y, seed) for seed in (0, 0, 1))
        assert torch.equal(one, again)
        assert not torch.equal(one, other)
        assert sorted(one.tolist()) == list(range(100))


class TestLearningFromSomeRows:
    @pytest.mark.slow
    def test_all_rows_are_conditioned_on(self, caplog: pytest.LogCaptureFixture) -> None:
        """An exact GP of scikit-learn with the learned parameters and all rows has the same evidence and
        predictions."""
        rng = np.random.default_rng(0)
        X = rng.uniform(-3, 3, (700, 1))
        y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=700)
        some = TrainingOptions(exact_seconds=0.6)
        with caplog.at_level(logging.INFO, "orbitgp"):
            ours = InvariantGPRegressor(mean="zero", normalize_y=False, training=some, random_state=0).fit(X, y)
        learned = ours.evidence_.num_learned
        assert ours.inference_ == "exact"
        assert LEAST_ROWS <= learned < 700
        assert f"learned on {learned:,} of 700 data" in str(ours.evidence_)
        assert f"exact inference: learned on {learned:,} of 700 rows" in caplog.text
        assert {r["rows"] for r in ours.history_} == {*(rung.rows for rung in ours.plan_.ladder), 700}

        k, noise = ours.kernel_, ours.likelihood_.noise.item()
        theirs = k.outputscale.item() * RBF(k.base_kernel.lengthscale.item()) + WhiteKernel(noise)
        oracle = GaussianProcessRegressor(theirs, alpha=0.0, optimizer=None).fit(X, y)
        assert ours.evidence_.value == pytest.approx(oracle.log_marginal_likelihood_value_, abs=1e-3)
        new = np.linspace(-3, 3, 20)[:, None]
        np.testing.assert_allclose(ours.predict(new), oracle.predict(new), atol=1e-5)
        # What was learned from some rows is near the best that all rows know.
        best = InvariantGPRegressor(mean="zero", normalize_y=False, random_state=0).fit(X, y)
        assert best.evidence_.num_learned == 700
        assert best.evidence_.value - 10 < ours.evidence_.value <= best.evidence_.value + 0.1

    @pytest.mark.slow
    def test_two_classes_are_conditioned_on_all_rows(self) -> None:
        """Expectation propagation by plain turns and quadrature, with the learned kernel, has the same evidence and
        mean."""
        rng = np.random.default_rng(0)
        X = rng.uniform(-3, 3, (500, 1))
        labels = (np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=500) > 0).astype(int)
        some = TrainingOptions(exact_seconds=0.3)
        ours = InvariantGPClassifier(mean="zero", training=some, random_state=0).fit(X, labels)
        assert ours.inference_ == "exact"
        assert LEAST_ROWS <= ours.evidence_.num_learned < 500

        kernel = ours.kernel_.outputscale.item() * RBF(ours.kernel_.base_kernel.lengthscale.item())
        y, k, nu, tau = 2.0 * labels - 1, kernel(X), np.zeros(500), np.full(500, 1e-3)
        nodes, weights = np.polynomial.hermite_e.hermegauss(100)
        for _ in range(40):
            factor = np.linalg.cholesky(np.eye(500) + np.sqrt(tau)[:, None] * k * np.sqrt(tau))
            half = np.linalg.solve(factor, np.sqrt(tau)[:, None] * k)
            covariance = k - half.T @ half
            mean, variance = covariance @ nu, np.diag(covariance)
            cavity = 1 / (1 / variance - tau)
            centre = cavity * (mean / variance - nu)
            f = centre[:, None] + np.sqrt(cavity)[:, None] * nodes
            tilted = weights / weights.sum() / (1 + np.exp(-y[:, None] * f))
            z = tilted.sum(1)
            first, second = (tilted * f).sum(1) / z, (tilted * f**2).sum(1) / z
            precision, shift = 1 / cavity + tau, centre / cavity + nu
            sites = np.log(z) + 0.5 * (np.log(cavity * precision) + centre**2 / cavity - shift**2 / precision)
            evidence = sites.sum() - np.log(np.diag(factor)).sum() + 0.5 * nu @ mean
            alpha, spread = nu - tau * mean, second - first**2
            tau, nu = 0.4 * tau + 0.6 * (1 / spread - 1 / cavity), 0.4 * nu + 0.6 * (first / spread - centre / cavity)
        assert ours.evidence_.value == pytest.approx(evidence, abs=0.01)
        new = np.linspace(-3, 3, 20)[:, None]
        found, _ = ours.model_.predict(torch.from_numpy(new))
        # Turns end where the evidence is known to 0.01 nats: where f is far from 0, its probability is known as well.
        np.testing.assert_allclose(expit(found[:, 0].numpy()), expit(kernel(new, X) @ alpha), atol=3e-3)

    @pytest.mark.slow
    def test_a_classifier_that_was_saved_predicts_the_same(self, tmp_path: Any) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(500, 2))
        y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
        ours = InvariantGPClassifier(training=TrainingOptions(exact_seconds=0.3), random_state=0).fit(X, y)
        assert ours.evidence_.num_learned < 500
        ours.save(tmp_path / "model.safetensors")
        # The file holds the rows, and a noise and a weight for each of three classes: no covariance of 500 x 500.
        most = 500 * (2 + 3 + 3) * 8 + 60_000
        assert (tmp_path / "model.safetensors").stat().st_size < most < 500 * 500 * 8
        again = InvariantGPClassifier.load(tmp_path / "model.safetensors")
        assert again.evidence_ == ours.evidence_
        np.testing.assert_allclose(again.predict_proba(X[:20]), ours.predict_proba(X[:20]), atol=1e-9)
