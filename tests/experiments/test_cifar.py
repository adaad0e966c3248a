"""Photographs: products of features are the library's covariance, and the evidence decides each step of the search."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from scipy.stats import multivariate_normal
from torch import nn

from experiments import cifar
from experiments.cifar import EXPERIMENT, FINE, ONE, SECOND, Photographs, Search, check, read, table
from orbitgp.inference.exact import ExactGP
from orbitgp.kernels import SideBySide
from orbitgp.kernels.feature_maps import FeatureMapKernel
from orbitgp.orbits import Flip, Weighted

SHARE = 0.004  # of the patches: six in one layer


def test_parts_are_joined_in_the_order_of_their_names(tmp_path: Path) -> None:
    images = np.arange(5 * 8 * 8 * 3, dtype=np.uint8).reshape(5, 8, 8, 3)
    np.savez(tmp_path / "train2.npz", x_train=images[2:], y_train=np.arange(2, 5))
    np.savez(tmp_path / "train1.npz", x_train=images[:2], y_train=np.arange(2))
    x, y = read(tmp_path, "train", 4)
    np.testing.assert_array_equal(y, [0, 1, 2, 3])
    np.testing.assert_allclose(x[3, 1], images[3, :, :, 1] / 255, rtol=1e-6)
    with pytest.raises(FileNotFoundError, match="x_test"):
        read(tmp_path, "test", 4)


def test_products_of_features_give_the_covariance_of_the_library() -> None:
    torch.manual_seed(0)
    x, new = torch.rand(5, 3, 32, 32), torch.rand(4, 3, 32, 32)
    stacks, weights, length, p = (ONE, (FINE, SECOND)), (0.3, 0.7), 0.6, 0.2
    inner, cross, own = cifar.sums(stacks, weights, SHARE, x, new)
    found = [cifar.kernel(products, length, (1 - p, p)) for products in (inner, cross, own)]

    maps = SideBySide(*(cifar.made(stack, SHARE, x) for stack in stacks))
    maps.log_weights = nn.Parameter(0.5 * torch.tensor(weights).double().log())
    base = RBFKernel().double()
    base.lengthscale = length
    both = torch.cat([x, new])
    gp = ExactGP(FeatureMapKernel(base, maps, (3, 32, 32)), Weighted(Flip(), p), both)
    gram = gp.gram()
    torch.testing.assert_close(found[0], gram[:5, :5].float(), atol=2e-3, rtol=0)
    torch.testing.assert_close(found[1], gram[5:, :5].float(), atol=2e-3, rtol=0)
    torch.testing.assert_close(found[2][:, 0], gram[5:, 5:].diagonal().float(), atol=2e-3, rtol=0)


def test_the_evidence_is_that_of_a_normal_density_at_its_best_variance() -> None:
    rng = np.random.default_rng(0)
    root, targets = rng.normal(size=(6, 6)), rng.normal(size=(6, 3))
    k, ratio = root @ root.T, 0.3
    found = cifar.posterior(torch.from_numpy(k), ratio, torch.from_numpy(targets))

    def nats(variance: float) -> float:
        density = multivariate_normal(np.zeros(6), variance * (k + ratio * np.eye(6)))
        return float(density.logpdf(targets.T).sum())

    best = float(found.variance)
    assert float(found.nats) == pytest.approx(nats(best), rel=1e-10)
    assert nats(best) > max(nats(0.99 * best), nats(1.01 * best))


@pytest.mark.parametrize("mirrored", [True, False])
def test_a_fit_ends_where_the_evidence_is_best(mirrored: bool) -> None:
    torch.manual_seed(1)
    rows = nn.functional.normalize(torch.randn(40, 4), dim=1)
    inners = [part @ part.mT for part in (rows, nn.functional.normalize(rows[:, :2], dim=1))]
    targets = (rows[:20, :1] * rows[:20, 1:2] + 0.1 * torch.randn(20, 1)).double()
    found = cifar.fit(inners, targets, cifar.first(torch.device("cpu"), mirrored), 60)
    assert found.mirrored > 0 if mirrored else found.mirrored == 0

    def nats(length: float, ratio: float, share: float) -> float:
        inner = share * inners[0] + (1 - share) * inners[1]
        k = cifar.kernel(inner, length, (1 - found.mirrored, found.mirrored))
        return float(cifar.posterior(k, ratio, targets).nats)

    best = float(found.length.exp()), found.noise, float(found.weights.softmax(0)[0])
    assert nats(*best) == pytest.approx(found.nats, abs=1e-3)
    for place, by in ((0, 0.7), (0, 1.4), (1, 0.4), (1, 2.5), (2, 0.7), (2, 1.2)):
        changed = list(best)
        changed[place] = min(by * changed[place], 1.0)
        assert nats(*changed) < found.nats + 0.05


def test_a_step_is_taken_where_the_evidence_is_higher(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([5.0, 4.0, 9.0, 9.5])
    monkeypatch.setattr(cifar, "fit", lambda inners, targets, start, steps: start._replace(nats=next(values)))
    monkeypatch.setattr(Search, "inner", lambda self, stack: torch.zeros(2, 2))
    search = Search(torch.zeros(1, 3, 8, 8), torch.zeros(1, 2), 1.0, 9.0)
    taken = [search.attempt("a step", ({"size": size},), place) for size, place in enumerate((0, 1, 0, 1))]
    assert taken == [True, False, True, False]  # the last gains less than a nat
    assert search.stacks == [({"size": 2},)]
    assert [step["taken"] for step in search.steps] == taken


@pytest.mark.slow
def test_a_small_run_tells_smooth_images_from_rough_ones(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    images = rng.integers(0, 256, (60, 32, 32, 3))
    images[labels == 1] = images[labels == 1, ::8, ::8].repeat(8, 1).repeat(8, 2)
    np.savez(tmp_path / "all.npz", x_train=images[:40], y_train=labels[:40], x_test=images[40:], y_test=labels[40:])
    sizes = {"choice_rows": 20, "share": SHARE, "last_share": SHARE, "search_seconds": 2.0, "evaluations": 4}
    record = Photographs(str(tmp_path), **sizes).run()
    assert record["metrics"]["error_rate"] == 0.0
    assert record["data"] == {"name": "CIFAR-10", "train": 40, "test": 20}
    taken = [step["nats"] for step in record["choice"] if step["taken"] and step["step"] != "all patches"]
    assert taken == sorted(taken)
    assert "| **all images** | 40 |" in table([record])
    held_out = Photographs(str(tmp_path), held_out=10, **sizes).run()
    assert held_out["data"] == {"name": "CIFAR-10", "train": 30, "test": 10}


def test_goals_are_asked_of_all_images() -> None:
    choice = [{"step": f"one layer, {name}", "nats": nats} for name, nats in (("reflections", 3.0), ("none", 1.0))]
    record = {
        "choice": choice,
        "settings": {"seed": 0},
        "data": {"train": 50_000},
        "metrics": {"error_rate": 0.115},
        "seconds": {"all": 700.0},
    }
    assert list(check([record]).values()) == [True, True, True, False, False]
    assert list(check([{**record, "data": {"train": 100}}]).values()) == [True]
    assert EXPERIMENT.parser().parse_args(["--folder", "x"]).folder == Path("x")
    assert (
        len(EXPERIMENT.plan(SimpleNamespace(**vars(EXPERIMENT.parser().parse_args(["--quick", "--seeds", "1"]))))) == 1
    )
