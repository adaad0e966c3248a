"""The toy of figure 2: its claims, its numbers against the textbook, and the sparse bound against the exact evidence."""

from __future__ import annotations

import itertools
import json
import math

import pytest
import torch

from experiments.toy import Config, Fit, base_kernel, fit_exact, main, make_data, maximise, table, target
from orbitgp.inference.elbo import elbo
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.natural_gradient import set_posterior, statistics
from orbitgp.likelihoods import Gaussian
from orbitgp.orbits import Identity, Permutation
from orbitgp.saving.atomic import replace

SMALL = Config(num_train=24, half_width=2.0, grid=9, num_inducing=10)
ORBITS = [Permutation.swap(0, 1), Identity()]


def textbook(x, y, orbit, lengthscale, variance, noise):
    """log N(y; 0, K + noise^2 I), with K written out: the mean of four RBFs where the inputs may be swapped."""

    def rbf(a, b):
        return variance * torch.exp(-0.5 * (a[:, None] - b[None]).square().sum(-1) / lengthscale**2)

    swapped = x.flip(1)
    k = rbf(x, x)
    if isinstance(orbit, Permutation):
        k = (k + rbf(x, swapped) + rbf(swapped, x) + rbf(swapped, swapped)) / 4
    k = k + noise**2 * torch.eye(len(x), dtype=x.dtype)
    quadratic = y @ torch.linalg.solve(k, y)
    return -0.5 * (quadratic + torch.logdet(k) + len(y) * math.log(2 * math.pi)).item()


def test_data_are_symmetric_lopsided_and_reproducible():
    config = Config()
    data = make_data(config)
    torch.testing.assert_close(target(data.x), target(data.x.flip(1)))
    assert (data.x[:, 0] > data.x[:, 1]).sum() == 90
    assert data.x.abs().max() <= 3
    assert ((data.y - target(data.x)).std() - 0.1).abs() < 0.03
    assert all(torch.equal(a, b) for a, b in zip(data, make_data(config), strict=True))
    assert not torch.equal(data.x, make_data(Config(seed=1)).x)
    assert data.x_test.shape == (61 * 61, 2)
    torch.testing.assert_close(data.f_test.reshape(61, 61), data.f_test.reshape(61, 61).mT)


@pytest.mark.parametrize("orbit", ORBITS, ids=["swap", "identity"])
def test_exact_evidence_is_the_textbook_one_at_its_maximum(orbit):
    data = make_data(SMALL)
    fit = fit_exact(data, orbit, "model")
    best = {"lengthscale": fit.lengthscale, "variance": fit.variance, "noise": fit.noise}
    assert fit.log_marginal_likelihood == pytest.approx(textbook(data.x, data.y, orbit, **best), rel=1e-8)
    for name in best:
        for factor in (0.97, 1.03):
            other = textbook(data.x, data.y, orbit, **best | {name: factor * best[name]})
            assert other < fit.log_marginal_likelihood


@pytest.mark.parametrize("orbit", ORBITS, ids=["swap", "identity"])
def test_bound_with_every_orbit_element_is_the_exact_evidence_and_with_fewer_lies_below(orbit):
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


def test_maximise_finds_a_known_maximum():
    p = torch.tensor([3.0, -2.0], dtype=torch.float64, requires_grad=True)
    assert maximise(lambda: 5 - (p - 1).pow(4).sum() - (p[0] - p[1]).square(), [p]) == pytest.approx(5, abs=1e-6)


@pytest.mark.slow
def test_figure_two(tmp_path, capsys):
    """What the paper claims, for the exact models and for the sparse ones; and what the command leaves behind."""
    out = tmp_path / "new" / "folder"
    main(["--out", str(out)])
    printed = capsys.readouterr().out
    record = json.loads((out / "toy.json").read_text())
    assert record["config"] == vars(Config())
    assert {"torch", "gpytorch", "orbitgp"} <= set(record["versions"])
    assert record["hardware"]["cpus"] >= 1
    assert (out / "toy.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in out.iterdir()) == ["toy.json", "toy.png"]
    results = {(r["model"], r["inference"]): r for r in record["results"]}
    for inference in ("exact", "sparse"):
        invariant, plain = results["invariant", inference], results["non-invariant", inference]
        assert plain["train_rmse"] <= invariant["train_rmse"]
        assert invariant["test_rmse"] < 0.5 * plain["test_rmse"]
        assert invariant["log_marginal_likelihood"] > plain["log_marginal_likelihood"] + 5
        assert f"{invariant['test_rmse']:.3f}" in printed
    for model in ("invariant", "non-invariant"):
        exact, sparse = results[model, "exact"], results[model, "sparse"]
        assert sparse["log_marginal_likelihood"] < exact["log_marginal_likelihood"]
        assert sparse["log_marginal_likelihood"] > exact["log_marginal_likelihood"] - 5
        assert sparse["test_rmse"] == pytest.approx(exact["test_rmse"], rel=0.2)


def test_table_reads_well():
    fit = Fit("invariant", "sparse", 0.1, 0.2, -3.0, 1.0, 1.0, 0.1, 2.0, torch.zeros(4))
    lines = table([fit]).splitlines()
    assert lines[1] == "invariant, sparse            0.100      0.200                    -3.00 (bound)"
    assert lines[0].index("log marginal likelihood") + len("log marginal likelihood") == lines[1].index(" (bound)")


def test_a_failed_write_leaves_the_old_file_and_no_debris(tmp_path):
    path = tmp_path / "toy.json"
    replace(path, lambda beside: beside.write_text("old"))

    def broken(beside):
        beside.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        replace(path, broken)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with path.open() as reader:  # a reader that has the old file keeps it
        replace(path, lambda beside: beside.write_text("new"))
        assert reader.read() == "old"
    assert path.read_text() == "new"
