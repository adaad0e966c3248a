"""Kernels between the mean over an orbit and alignment: positive definite, the mean at zero, and right in examples."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from torch import Tensor

from experiments import harness, sharpness
from experiments.sharpness import ABSENT, ARMS, LEARNED, NATURAL, Data, Theta
from orbitgp import InvariantKernel
from orbitgp.orbits.parse import make_orbit

pytestmark = pytest.mark.usefixtures("double")


def theta(lengthscale: float = 1.0, noise: float = 0.1, rho: float = 0.0, s: float = 0.0, q: float = 1.0) -> Theta:
    return Theta(*(torch.tensor(v) for v in (math.log(lengthscale), math.log(noise), rho, s, math.log(q))))


def signs(x: Tensor) -> Tensor:
    """The orbit {x, -x}, without absent elements."""
    return sharpness.present(torch.stack([x, -x], 1))


def data(x: Tensor, test: Tensor | None = None, profile: str = "rbf") -> Data:
    """Inputs with the orbit {x, -x}."""
    y, test = x.sum(1, keepdim=True).cos(), x if test is None else test
    return Data(signs(x), signs(x), y, signs(test), signs(test), lambda means: float(means.sum()), profile)


def average(x: Tensor, constants: Theta, profile: str = "rbf") -> Tensor:
    """A_q between all of these inputs."""
    return data(x, profile=profile).train_pairs().power_mean(constants, mean=False)


def matrix(arm: str, x: Tensor, constants: Theta) -> Tensor:
    """The kernel of the training inputs with its own variance."""
    found, scale = sharpness.gram(arm, data(x).train_pairs(), constants)
    return found * scale


@pytest.mark.parametrize("profile", ["rbf", "matern"])
def test_without_sharpness_all_are_the_plain_average(profile: str) -> None:
    x = torch.rand(7, 2)
    base = RBFKernel() if profile == "rbf" else MaternKernel(nu=2.5)
    base.lengthscale = 0.7
    expected = InvariantKernel(base, make_orbit("sign(0, 1)"))(x).to_dense().detach()
    for arm in ARMS:
        found, scale = sharpness.gram(arm, data(x, profile=profile).train_pairs(), theta(0.7))
        torch.testing.assert_close(found * scale, expected, rtol=1e-10, atol=1e-10)


def test_three_points_have_the_values_of_the_closed_form() -> None:
    x = torch.tensor([[0.0], [1.0], [2.0]])
    products, sizes = x @ x.mT, x.square() + x.square().mT
    for q in (1.0, 3.0):
        expected = (-sizes / 2).exp() * (q * products).cosh() ** (1 / q)
        torch.testing.assert_close(average(x, theta(q=q)), expected)
    torch.testing.assert_close(average(x, theta(q=1e6)), (-(x - x.mT).square() / 2).exp(), atol=1e-5, rtol=0)
    c = products.cosh() / (products.diagonal().cosh()[:, None] * products.diagonal().cosh()).sqrt()
    variance = ((-sizes / 2).exp() * products.cosh()).diagonal()
    torch.testing.assert_close(matrix("normalised", x, theta(rho=1.0)), c)
    expected = (variance[:, None] * variance) ** 0.3 * ((2.5 * c).exp() - 1) / (math.exp(2.5) - 1)
    torch.testing.assert_close(matrix("series", x, theta(rho=0.4, s=2.5)), expected)


def test_power_means_alone_are_not_positive_definite_and_the_families_are() -> None:
    x = torch.linspace(-0.8, 0.8, 9)[:, None]
    assert torch.linalg.eigvalsh(average(x, theta(q=3.0)))[0] < -1e-5  # the second point of the derivation
    x = torch.cat([x, torch.randn(21, 1)])
    for arm, further in {"normalised": {"rho": 0.7}, "series": {"rho": 0.5, "s": 9.0}, "aligned": {"q": 3.0}}.items():
        for lengthscale in (0.2, 1.0, 4.0):
            assert torch.linalg.eigvalsh(matrix(arm, x, theta(lengthscale, **further)))[0] > -1e-12


@pytest.mark.parametrize("s", [0.0, 5e-4, 1e-3, 0.3, 20.0])
def test_series_are_smooth_in_their_sharpness(s: float) -> None:
    c = torch.linspace(0, 1, 5)
    expected = c if s == 0 else torch.expm1(s * c) / math.expm1(s)
    torch.testing.assert_close(sharpness.series(c, torch.tensor(s)), expected, rtol=1e-9, atol=1e-9)
    above = torch.tensor(s + 1e-4, requires_grad=True)
    assert torch.autograd.gradcheck(lambda value: sharpness.series(c, value), above)


def eight_inputs() -> Tensor:
    """Inputs whose power mean with q = 5 has two negative eigenvalues, and none next to zero."""
    torch.manual_seed(1)
    x = torch.randn(8, 2)
    values = torch.linalg.eigvalsh(average(x, theta(q=5.0)))
    assert (values < 0).sum() == 2
    assert values.abs().min() > 1e-3
    return x


def everywhere(x: Tensor, landmarks: int, constants: Theta) -> Tensor:
    """The fifth family between all inputs, of which the first are Z, as the docstring writes it."""
    own = average(x, constants)
    own, mean = (sharpness.contrasted(k, k.diagonal(), k.diagonal(), constants.rho, constants.s)
                 for k in (own, average(x, constants._replace(log_power=torch.tensor(0.0)))))  # fmt: skip
    values, vectors = torch.linalg.eigh(own[:landmarks, :landmarks])
    kept = values > 1e-9
    features = own[:, :landmarks] @ vectors[:, kept] / values[kept].sqrt()
    through = mean[:, :landmarks] @ torch.linalg.pinv(mean[:landmarks, :landmarks], hermitian=True, rtol=1e-10)
    return features @ features.mT + mean - through @ mean[:landmarks]


@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_aligned_is_positive_definite_at_other_inputs_and_is_what_predicts(rho: float) -> None:
    z, test = eight_inputs(), torch.randn(20, 2)
    x = torch.cat([z, test])
    same = everywhere(x, 8, theta(q=1.0, rho=rho))
    plain = average(x, theta())
    own = plain.diagonal()
    torch.testing.assert_close(same, plain / (own[:, None] * own) ** (rho / 2))
    constants = theta(q=5.0, rho=rho)
    whole = everywhere(x, 8, constants)
    assert torch.linalg.eigvalsh(whole)[0] > -1e-10
    torch.testing.assert_close(whole[:8, :8], matrix("aligned", z, constants))
    found = data(z, test)
    noise = 0.1 * whole[:8, :8].diagonal().mean()  # relative to the variance
    expected = whole[8:, :8] @ torch.linalg.solve(whole[:8, :8] + noise * torch.eye(8), found.y)
    predict = sharpness.predictor("aligned", found.train_pairs(), found.y, constants)
    means = torch.cat([predict(*pairs) for pairs in found.test_pairs(rows=7)])
    torch.testing.assert_close(means, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("profile", ["rbf", "matern"])
def test_evidence_has_the_gradient_of_its_value(arm: str, profile: str) -> None:
    found = data(eight_inputs(), profile=profile)
    pairs, start = found.train_pairs(), theta(rho=0.4, s=1.5 if arm == "series" else 0.0, q=5.0)

    def value(*inputs: Tensor) -> Tensor:
        constants = start._replace(**dict(zip(LEARNED[arm], inputs, strict=True)))
        return sharpness.evidence(sharpness.gram(arm, pairs, constants)[0], constants.log_noise.exp(), found.y)[0]

    assert torch.autograd.gradcheck(value, [getattr(start, name).requires_grad_() for name in LEARNED[arm]])


def test_evidence_is_that_of_the_best_variance() -> None:
    x, y = torch.randn(6, 2), torch.randn(6, 3)
    k = average(x, theta())
    value, variance = sharpness.evidence(k, torch.tensor(0.2), y)

    def density(v: Tensor) -> Tensor:
        covariance = v * (k + (0.2 + 1e-9) * torch.eye(6))
        return torch.distributions.MultivariateNormal(torch.zeros(6), covariance).log_prob(y.mT).sum()

    torch.testing.assert_close(value, density(variance))
    assert value > max(density(0.9 * variance), density(1.1 * variance))


def test_absent_elements_do_not_count() -> None:
    whole = torch.randn(9, 4, 2)
    absent = torch.rand(9, 4) < 0.4
    absent[:, 0] = False
    points = sharpness.present(whole, absent)
    y = torch.randn(9, 1)
    pairs = Data(points, points, y, points, points, lambda _: 0.0, "matern").train_pairs()
    assert max(float(block.max()) for block in pairs.blocks) <= ABSENT**2
    kg = MaternKernel(nu=2.5)
    kg.lengthscale = 1.0
    values = kg(whole.flatten(0, 1)).to_dense().detach() * ~absent.flatten() * ~absent.flatten()[:, None]
    for q in (1.0, 2.0):
        expected = (values**q).unflatten(1, (9, 4)).unflatten(0, (9, 4)).mean((1, 3)) ** (1 / q)
        torch.testing.assert_close(pairs.power_mean(theta(q=q), mean=False), expected)


def test_a_planted_alignment_is_found_and_a_planted_mean_is_kept() -> None:
    x = torch.randn(70, 1)
    for q, found_above in ((1.0, False), (60.0, True)):
        cov = matrix("aligned", x, theta(0.5, q=q))
        y = torch.linalg.cholesky(cov + 1e-3 * torch.eye(70)) @ torch.randn(70, 12)
        pairs = data(x).train_pairs()
        bounds = sharpness.BOUNDS | {"log_lengthscale": (-4.0, 4.0)}
        mean, sharp = (sharpness.fit(arm, pairs, y, [theta(0.5, q=5.0)], bounds, 40) for arm in ("mean", "aligned"))
        assert (sharp.value - mean.value > 5) == found_above


@pytest.mark.slow
def test_every_data_set_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_digits: Any) -> None:
    rng = np.random.default_rng(0)
    numbers, positions = rng.choice([0, 1, 6], (40, 4)), 2 * rng.normal(size=(40, 4, 3))
    energy = numbers.sum(1) + 0.1 * rng.normal(size=40)
    np.savez(tmp_path / "qm7.npz", numbers=numbers, positions=positions, energy=energy)
    monkeypatch.setenv("ORBITGP_MOLECULES", str(tmp_path))
    monkeypatch.setattr(sharpness, "mnist", lambda: few_digits)
    runs = sharpness.plan(sharpness.EXPERIMENT.parser().parse_args(["--quick", "--seeds", "1"]))
    assert len({run.name() for run in runs}) == len(runs) == 11
    few = [replace(run, train=12, test=6, size=3, steps=2) for run in runs if run.task in ("", "as wide", *NATURAL)]
    records = harness.execute(few, tmp_path / "records.jsonl")
    for record in records:
        for arm in record["found"]:
            assert np.isfinite([record["found"][arm]["evidence"], record["found"][arm]["error"]]).all()
        if "aligned" in record["found"]:
            values = {arm: one["evidence"] for arm, one in record["found"].items()}
            assert values["aligned"] >= values["normalised"] >= values["mean"] - 1e-6
    assert "| 400 digits: as wide | copies |" in sharpness.table(records)
    assert len(sharpness.check(records)) == 5


def test_the_best_width_of_each_family_is_compared() -> None:
    def record(task: str, mean: float, aligned: float, error: float) -> dict[str, Any]:
        evidence = {"mean": mean, "normalised": mean, "series": mean, "aligned": aligned}
        learned = {"rho": 0.0, "s": 0.0, "log_power": 1.0}
        found = {arm: {"evidence": v, "error": error + v / 1e4, "learned": learned} for arm, v in evidence.items()}
        return {"settings": {"data": "400 digits", "task": task, "seed": 0, "copies": False}, "found": found}

    records = [record("as wide", 100.0, 170.0, 0.06), record("twice as wide", 165.0, 150.0, 0.05)]
    (best,) = sharpness.by_data(records)["400 digits"]
    assert (best["mean"]["evidence"], best["aligned"]["evidence"]) == (165.0, 170.0)
    over = sharpness.comparison([best], "aligned")
    assert over.gain[0] == 5.0
    assert not over.wins  # for it has more error
    assert sharpness.comparison(sharpness.by_data(records)["400 digits: as wide"], "aligned").gain[0] == 70.0
    assert "| 400 digits | aligned | +5 ± 0 | +5 ± 0 |" in sharpness.table(records)
    assert sharpness.check(records) == {}
