"""The concentration of the Dirichlet likelihood: leave-one-out by refitting, and choices that fit the labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_wine

from orbitgp import InvariantGPClassifier, metrics
from orbitgp.likelihoods import Dirichlet, dirichlet
from orbitgp.likelihoods.dirichlet import _kernels, _left_out


def test_leaving_one_out_is_refitting_without_it() -> None:
    x = torch.randn(8, 2, dtype=torch.float64)
    likelihood = Dirichlet(3, 0.05)
    t, noise = likelihood.observations(likelihood.encode(torch.arange(8) % 3))
    kernel = list(_kernels(x))[1]
    mean, variance = _left_out([kernel], t, noise)
    centre, scale = t.mean(0), t.var(0, correction=0).mean()
    fits = []
    for factor in (0.3, 1.0, 3.0):  # one of them has the best evidence
        k = factor * scale * kernel
        rest = [0, 1, 2, 4, 5, 6, 7]
        columns = []
        for c in range(3):
            gain = torch.linalg.solve(k[rest][:, rest] + torch.diag(noise[rest, c]), k[rest, 3])
            columns.append((centre[c] + gain @ (t[rest, c] - centre[c]), k[3, 3] - gain @ k[rest, 3]))
        fits.append(torch.tensor(columns))
    found = torch.stack([mean[3], variance[3]], 1)
    assert min(float((found - fit).abs().max()) for fit in fits) < 1e-9


def test_noisy_labels_are_believed_less() -> None:
    wine, diabetes = load_wine(), load_diabetes()
    thirds = np.searchsorted(np.quantile(diabetes.target, [1 / 3, 2 / 3]), diabetes.target)
    chosen = {}
    for name, inputs, labels in (("wine", wine.data, wine.target), ("diabetes", diabetes.data, thirds)):
        likelihood = Dirichlet(3)
        likelihood.prepare(torch.tensor((inputs - inputs.mean(0)) / inputs.std(0)), torch.tensor(labels))
        chosen[name] = likelihood.concentration
    assert chosen["diabetes"] == 0.1
    assert chosen["wine"] <= 1e-3


def test_data_that_were_seen_before_are_not_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither plans nor models with other orbits, in copies of the likelihood; other labels are other data."""
    seen = []
    monkeypatch.setattr(dirichlet, "_left_out", lambda *given: seen.append(given) or _left_out(*given))
    x, labels = torch.rand(12, 2, dtype=torch.float64), torch.arange(12) % 3
    chosen = []
    for y in (labels, labels, labels.flip(0)):
        likelihood = Dirichlet(3)
        likelihood.prepare(x.clone(), y)
        chosen.append((likelihood.concentration, len(seen)))
    assert chosen[0] == chosen[1]
    assert chosen[2][1] == 2 * chosen[0][1] > 0


def test_what_is_given_stays() -> None:
    likelihood = Dirichlet(2, 0.02)
    likelihood.prepare(torch.randn(6, 2), torch.arange(6) % 2)
    assert likelihood.concentration == 0.02


def test_rows_that_are_all_alike() -> None:
    likelihood = Dirichlet(2)
    likelihood.prepare(torch.ones(6, 2), torch.arange(6) % 2)
    assert likelihood.concentration == 0.1


@pytest.mark.slow
def test_noisy_labels_are_not_predicted_with_certainty() -> None:
    """Thirds of diabetes patients. With labels believed outright, predictions are worse than not knowing (log 3)."""
    data = load_diabetes()
    x = data.data / data.data.std(0)
    labels = np.searchsorted(np.quantile(data.target, [1 / 3, 2 / 3]), data.target)
    likelihoods: dict[str, str | Dirichlet] = {"auto": "auto", "believing": Dirichlet(3, 1e-4)}
    scores = {}
    for name, likelihood in likelihoods.items():
        model = InvariantGPClassifier(likelihood=likelihood, num_inducing=30, max_steps=10, random_state=0)
        scores[name] = metrics.nll(model.fit(x[:300], labels[:300]).predict_proba(x[300:]), labels[300:])
    assert scores["auto"] < 0.8 * np.log(3)
    assert scores["believing"] > scores["auto"] + 0.1


@pytest.mark.parametrize("rows", [2, 3])
def test_few_rows(rows: int) -> None:
    likelihood = Dirichlet(2)
    likelihood.prepare(torch.randn(rows, 1), torch.arange(rows) % 2)
    assert likelihood.concentration > 0
