"""The toy of figure 2: its claims, its numbers against the textbook, and the sparse bound against the exact
evidence."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import harness, toy
from experiments.toy import (
    EXPERIMENT,
    Toy,
    base_kernel,
    chunk_predictions,
    fit_exact,
    make_data,
    maximise,
    posterior_mean,
    recorded_model,
    target,
)
from orbitgp.inference.elbo import elbo
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.natural_gradient import set_posterior, statistics
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import FiniteOrbit, Identity, Permutation
from orbitgp.planning.options import TrainerSettings
from orbitgp.saving import container

SMALL = Toy(num_train=24, half_width=2.0, grid=9, num_inducing=10)
ORBITS = [Permutation.swap(0, 1), Identity()]


def textbook(x: torch.Tensor, y: Any, orbit: FiniteOrbit, lengthscale: float, variance: Any, noise: Any) -> Any:
    """log N(y; 0, K + noise^2 I), with K written out: the mean of four RBFs where the inputs may be swapped."""

    def rbf(a: Any, b: Any) -> Any:
        return variance * torch.exp(-0.5 * (a[:, None] - b[None]).square().sum(-1) / lengthscale**2)

    swapped = x.flip(1)
    k = rbf(x, x)
    if isinstance(orbit, Permutation):
        k = (k + rbf(x, swapped) + rbf(swapped, x) + rbf(swapped, swapped)) / 4
    k = k + noise**2 * torch.eye(len(x), dtype=x.dtype)
    quadratic = y @ torch.linalg.solve(k, y)
    return -0.5 * (quadratic + torch.logdet(k) + len(y) * math.log(2 * math.pi)).item()


def test_data_are_symmetric_lopsided_and_reproducible() -> None:
    config = Toy()
    data = make_data(config)
    torch.testing.assert_close(target(data.x), target(data.x.flip(1)))
    assert (data.x[:, 0] > data.x[:, 1]).sum() == 90
    assert data.x.abs().max() <= 3
    assert ((data.y - target(data.x)).std() - 0.1).abs() < 0.03
    assert all(torch.equal(a, b) for a, b in zip(data, make_data(config), strict=True))
    assert not torch.equal(data.x, make_data(Toy(seed=1)).x)
    assert data.x_test.shape == (61 * 61, 2)
    torch.testing.assert_close(data.f_test.reshape(61, 61), data.f_test.reshape(61, 61).mT)


@pytest.mark.parametrize("orbit", ORBITS, ids=["swap", "identity"])
@pytest.mark.slow
def test_exact_evidence_is_the_textbook_one_at_its_maximum(orbit: FiniteOrbit) -> None:
    data = make_data(SMALL)
    fit = fit_exact(data, orbit)
    best, evidence = fit["learned"], fit["evidence"]["value"]
    assert evidence == pytest.approx(textbook(data.x, data.y, orbit, **best), rel=1e-8)
    for name in best:
        for factor in (0.97, 1.03):
            other = textbook(data.x, data.y, orbit, **best | {name: factor * best[name]})
            assert other < evidence


@pytest.mark.parametrize("orbit", ORBITS, ids=["swap", "identity"])
def test_bound_with_every_orbit_element_is_the_exact_evidence_and_with_fewer_lies_below(orbit: FiniteOrbit) -> None:
    data = make_data(SMALL)
    lengthscale, variance, noise = 0.7, 1.3, 0.3
    exact = textbook(data.x, data.y, orbit, lengthscale, variance, noise)
    samples = orbit.sample(data.x, None)
    elements = samples.points.flatten(0, 2)
    kernel = base_kernel(lengthscale)
    kernel.outputscale = variance
    bounds = []
    for count in (len(elements), len(elements) // 2, len(elements) // 4, 3):
        model = InvariantGP(kernel, orbit, elements[:: len(elements) // count], mean="zero", jitter=1e-10)
        likelihood = Gaussian(noise=noise**2)
        quadratic = likelihood.quadratic(data.y[:, None])
        set_posterior(model, statistics(model, model.whitened_means(samples), quadratic, len(data.x)))
        bound = elbo(model, likelihood, samples, data.y[:, None], len(data.x))
        bound.backward()
        # The optimum of q: no gradient is left in its mean, nor in the lower triangle of its factor.
        assert model.q_mean.grad.abs().max() < 1e-6
        assert model.q_sqrt.grad.tril().abs().max() < 1e-6
        bounds.append(bound.item())
    assert bounds[0] == pytest.approx(exact, abs=1e-5)
    # Each set of inducing points holds the next.
    assert all(more > fewer + 0.1 for more, fewer in itertools.pairwise(bounds))


def test_maximise_finds_a_known_maximum() -> None:
    p = torch.tensor([3.0, -2.0], dtype=torch.float64, requires_grad=True)
    assert maximise(lambda: 5 - (p - 1).pow(4).sum() - (p[0] - p[1]).square(), [p]) == pytest.approx(5, abs=1e-6)


@pytest.mark.slow
def test_figure_two(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the paper claims, for the exact models and for the sparse ones; and what the command leaves behind."""
    monkeypatch.setattr(toy, "STARTS", (1.0,))
    monkeypatch.setattr(toy, "TrainerSettings", partial(TrainerSettings, max_steps=100))
    runs = [replace(run, num_train=60, grid=15) for run in toy.all_runs(seeds=1)]
    monkeypatch.setattr(toy, "all_runs", lambda seeds: runs)
    out = tmp_path / "new" / "folder"
    EXPERIMENT.main(["--out", str(out), "--seeds", "1"])
    printed = capsys.readouterr().out
    records = harness.load(out / "toy.jsonl").values()
    assert (out / "toy.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in out.iterdir()) == ["toy.jsonl", "toy.png", "toy_chunks.png"]
    results = {(r["settings"]["model"], r["settings"]["inference"]): r for r in records}
    for r in records:
        assert set(r["versions"]) == {"torch", "orbitgp"}
        assert r["hardware"]["cpus"] >= 1
    for inference in ("exact", "sparse"):
        invariant, plain = results["invariant", inference], results["non-invariant", inference]
        assert plain["metrics"]["train_rmse"] <= invariant["metrics"]["train_rmse"]
        assert invariant["metrics"]["test_rmse"] < 0.5 * plain["metrics"]["test_rmse"]
        assert invariant["evidence"]["value"] > plain["evidence"]["value"] + 5
        assert f"{invariant['metrics']['test_rmse']:.3f}" in printed
    for model in ("invariant", "non-invariant"):
        exact, sparse = results[model, "exact"], results[model, "sparse"]
        assert sparse["evidence"]["value"] < exact["evidence"]["value"]
        assert sparse["evidence"]["value"] > exact["evidence"]["value"] - 5
        assert sparse["metrics"]["test_rmse"] == pytest.approx(exact["metrics"]["test_rmse"], rel=0.2)


def test_the_posterior_mean_comes_from_the_record() -> None:
    record = SMALL.run()
    f = make_data(SMALL).f_test
    rmse = (posterior_mean(record) - f).square().mean().sqrt()
    assert float(rmse) == pytest.approx(record["metrics"]["test_rmse"])


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path: Path) -> None:
    path = tmp_path / "toy.json"
    container.replace(path, lambda beside: beside.write_text("old"))

    def broken(beside: Any) -> None:
        beside.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        container.replace(path, broken)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with path.open() as reader:  # a reader that has the old file keeps it
        container.replace(path, lambda beside: beside.write_text("new"))
        assert reader.read() == "old"
    assert path.read_text() == "new"


def test_the_evidence_is_the_sum_of_predictions_of_chunks() -> None:
    learned = {"lengthscale": 1.3, "variance": 0.8, "noise": 0.2}
    record = {"settings": {"model": "invariant", "num_train": 24, "grid": 3}, "learned": learned}
    found = chunk_predictions(record, 4)
    data, model = recorded_model(record)
    with torch.no_grad():
        c = model.covar_module(data.x).to_dense() + model.likelihood.noise * torch.eye(24, dtype=torch.float64)
    for chunk in range(4):  # each by conditioning on those before it
        old, new = slice(0, 6 * chunk), slice(6 * chunk, 6 * chunk + 6)
        weights = torch.linalg.solve(c[old, old], c[old, new]).mT
        law = torch.distributions.MultivariateNormal(weights @ data.y[old], c[new, new] - weights @ c[old, new])
        assert found[chunk].item() == pytest.approx(law.log_prob(data.y[new]).item(), abs=1e-8)
    assert found.sum().item() == pytest.approx(textbook(data.x, data.y, ORBITS[0], 1.3, 0.8, 0.2), abs=1e-5)
