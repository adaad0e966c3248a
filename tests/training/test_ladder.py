"""Learning by the exact evidence: to the optimum, from anywhere, to the same place after an interruption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.priors import NormalPrior
from scipy.optimize import minimize
from sklearn.datasets import load_iris
from torch import Tensor

from orbitgp.datasets import digits
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.fresh_evidence import FreshEvidence
from orbitgp.likelihoods import Bernoulli, Gaussian, GaussianIndicators, Likelihood
from orbitgp.orbits import GaussianNoise, Identity, Orbit, Permutation, Rotation, TimeShift, Translation
from orbitgp.planning.rungs import LEAST_DRAWS, MOST_DRAWS, Rung, rungs
from orbitgp.planning.time_limit import TimeLimit
from orbitgp.training.contenders import neighbours
from orbitgp.training.ladder import DRAWS_TOLERANCE, Ladder
from orbitgp.training.learned_vector import LearnedVector, Vector
from orbitgp.training.maximise import Optimum
from orbitgp.training.objective import Objective
from orbitgp.training.records import headline

N = 25


class Drawn(GaussianNoise):
    """Noise as any infinite orbit: k_f has no closed form."""


def kernel() -> ScaleKernel:
    return ScaleKernel(RBFKernel()).double()


def make(
    orbit: Orbit,
    x: Tensor,
    y: Tensor,
    likelihood: Likelihood | None = None,
    lengthscale: float | None = None,
    draws: int = MOST_DRAWS,
    fixed_draws: int | None = None,
    learn_rows: int | None = None,
    several: bool = True,
    after_step: Any = None,
    **further: object,
) -> Ladder:
    """A run with at most so many draws, or with a fixed number of them."""
    likelihood = likelihood or Gaussian(1, 0.3)
    model = ExactGP(kernel(), orbit, x, likelihood.num_latents)
    if lengthscale is not None:
        model.kernel.base_kernel.lengthscale = lengthscale
    most = None if model.is_enumerated else fixed_draws or draws
    steps = rungs(learn_rows or len(x), most, several, fixed_draws is not None)
    run = Ladder(model=model, likelihood=likelihood, x=x, y=y, rungs=steps, several=several, **further)
    run.after_step = after_step
    return run


def wave(rows: int = N) -> tuple[Tensor, Tensor]:
    x = torch.rand(rows, 2, dtype=torch.float64) * 4
    return x, (torch.sin(x[:, :1]) + torch.sin(x[:, 1:]) + 0.05 * torch.randn(rows, 1)).double()


@pytest.mark.parametrize(("orbit", "drawn"), [(Drawn(0.3), True), (GaussianNoise(0.3), False)])
def test_near_neighbours_are_tried_at_the_end_where_draws_make_the_evidence_rough(
    orbit: Orbit, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def recorded(best: Optimum, learned: LearnedVector, value_at: Any, narrow: Vector | None) -> list[Vector]:
        asked.append(narrow is not None)
        return neighbours(best, learned, value_at, narrow)

    monkeypatch.setattr("orbitgp.training.ladder.neighbours", recorded)
    run = make(orbit, *wave(12), draws=LEAST_DRAWS)
    run.run()
    assert not asked[0]
    assert asked[-1] == drawn
    assert drawn or run.draw_error == 0.0


def test_an_orbit_that_ends_below_the_model_without_it_goes_back_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few draws and rows may lose the narrow start. Here only a wide one is left, and stays where it begins."""

    def stays(evaluate: Any, start: Vector, *_: Any, **__: Any) -> Optimum:
        return Optimum(-evaluate(start)[0], start)

    candidates = Ladder._candidates

    def widest(run: Ladder) -> list[Optimum]:
        found = candidates(run)
        return [max(found, key=lambda one: float(np.abs(one.vector[run.learned.is_reach]).max()))]

    monkeypatch.setattr("orbitgp.training.ladder.maximise", stays)
    monkeypatch.setattr(Ladder, "_candidates", widest)
    orbit = Drawn(0.3)
    run = make(orbit, *wave())
    run.run()
    (reach,) = orbit.reaches()
    assert float(reach.detach().abs().max()) < 0.2


@pytest.mark.slow
def test_it_reaches_the_optimum_that_another_optimiser_finds() -> None:
    """Nelder-Mead knows no gradients: the same optimum, from a grid of starts."""
    x, y = wave(25)
    climber = make(Permutation.swap(0, 1), x, y)
    found = climber.run().log_evidence
    model, likelihood = climber.model, climber.likelihood

    def objective(v: Any) -> float:
        with torch.no_grad():
            for parameter, value in zip(climber.learned.parameters, v, strict=True):
                parameter.fill_(value)
        return -model.condition(likelihood, y).log_evidence

    starts = [(0.0, 0.5, -2.0), (2.0, 0.5, -5.0)]
    best = max(-minimize(objective, s, method="Nelder-Mead", options={"maxiter": 100}).fun for s in starts)
    assert found == pytest.approx(best, abs=0.1)
    assert climber.converged


@pytest.mark.slow
def test_units_of_inputs_and_targets_do_not_matter() -> None:
    x, y = wave()
    ends = []
    for unit in (1e-6, 1.0, 1e6):
        ends.append(make(Identity(), x * unit, y, lengthscale=unit).run().log_evidence)
    assert ends == pytest.approx([ends[1]] * 3, abs=0.1)


@pytest.mark.slow
def test_small_and_large_starts_end_at_the_same_evidence() -> None:
    """Inputs that were moved by noise, from scales of 0.02, 0.3 and 3."""
    clean = torch.rand(30, 1, dtype=torch.float64) * 10
    x, y = clean + 0.4 * torch.randn(30, 1, dtype=torch.float64), torch.sin(clean)
    ends = [make(GaussianNoise(scale).double(), x, y).run().log_evidence for scale in (0.02, 0.3, 3.0)]
    assert max(ends) - min(ends) < 1.5


def seen_as_table(a: Tensor) -> Tensor:
    return torch.stack([a, 0 * a], 1)


def seen_as_signal(a: Tensor) -> Tensor:
    return a[:, None] * torch.exp(-0.5 * ((torch.arange(24) - 12) / 2).square())


def seen_as_image(a: Tensor) -> Tensor:
    x = torch.zeros(len(a), 6, 6, dtype=torch.float64)
    x[:, 3, 2:5], x[:, 2, 3] = a[:, None], 1.0
    return x


@pytest.mark.slow
@pytest.mark.parametrize(
    ("orbit", "seen"),
    [(GaussianNoise(0.1), seen_as_table), (TimeShift(), seen_as_signal), (Rotation(10.0), seen_as_image)],
    ids=["noise", "shift of signals", "rotation"],
)
def test_an_orbit_is_not_behind_the_model_without_it(orbit: Orbit, seen: Callable[..., Any]) -> None:
    """A fast wave has two optima: a short lengthscale, or all noise. From the long one that is given, an orbit finds
    noise."""
    a = torch.rand(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x, y = seen(a), torch.sin(12 * a)[:, None] + 0.1 * torch.randn(20, 1, generator=torch.Generator().manual_seed(1))
    none = make(Identity(), x, y, lengthscale=2.0)
    some = make(orbit.double(), x, y, lengthscale=2.0, fixed_draws=4)
    assert some.run().log_evidence > none.run().log_evidence - 0.5
    assert {tuple(record["orbit"]) for record in some.history} == {tuple(orbit.describe().to_dict())}
    # Climbs without the orbit say so, and are no part of what the orbit went through.
    without = [record for record in some.history if record["without_orbit"]]
    climbs = {record["climb"] for record in some.history if not record["without_orbit"]}
    assert without
    assert all("without the orbit" in headline(record) for record in without)
    assert not climbs & {record["climb"] for record in without}
    assert len(climbs) > 1


@pytest.mark.slow
def test_draws_double_until_fresh_ones_agree() -> None:
    x, y = wave(16)
    climber = make(Drawn(0.2).double(), x, y)
    solution = climber.run()
    draws = climber.model.num_samples
    assert LEAST_DRAWS <= draws <= MOST_DRAWS
    assert climber.converged
    assert abs(climber.draw_shift) < DRAWS_TOLERANCE + climber.draw_error or draws == MOST_DRAWS
    seen = [record["num_samples"] for record in climber.history if not record["without_orbit"]]
    assert seen == sorted(seen)
    assert set(seen) == {climber.rungs[0].draws, *(rung.draws for rung in climber.rungs if rung.draws <= draws)}
    assert solution.log_evidence == climber.history[-1]["bound"]


@pytest.mark.parametrize(("change", "draws"), [(0.5, 16), (-0.5, 16), (2.0, 32), (-2.0, 32)])
def test_draws_double_until_a_doubling_changes_little(
    change: float, draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A doubling that loses evidence says as much as one that gains: the draws before it were too few."""
    climber = make(Drawn(0.2).double(), *wave(8), several=False)
    climber.rungs = [Rung(8, 8), Rung(8, 16), Rung(8, 32)]

    def climb(start: Optimum, rung: Rung, last: Rung) -> Optimum:
        value = change if rung.draws > 8 else 0.0
        return Optimum(value, start.vector, None, value)

    monkeypatch.setattr(climber, "_climb", climb)
    climber.run()
    assert climber.model.num_samples == draws


def test_at_the_end_draws_stand_for_the_infinite_orbit() -> None:
    """Its evidence is a closed form. With the fewest draws that a run may end with, evidences are two nats apart
    here."""
    x, scale = 4 * torch.rand(14, 2, dtype=torch.float64), 1.5
    y = torch.sin(2 * x[:, :1]) + torch.sin(x[:, 1:])
    climber = make(Drawn(scale, learn=False).double(), x, y)
    value = climber.run().log_evidence
    infinite = ExactGP(climber.model.kernel, GaussianNoise(scale).double(), x)
    assert value == pytest.approx(infinite.log_evidence(climber.likelihood, y), abs=1.0)


def test_draws_that_are_fixed_stay_and_fresh_ones_tell_their_error() -> None:
    x, _ = wave(16)
    y = torch.sin(2 * x[:, :1]) + torch.sin(x[:, 1:])
    fixed = make(Drawn(0.5, learn=False).double(), x, y, fixed_draws=4)
    value = fixed.run().log_evidence
    assert {record["num_samples"] for record in fixed.history if not record["without_orbit"]} == {4}
    assert abs(fixed.draw_shift) > 0.01
    others = fixed.model.fresh_evidence(fixed.likelihood, y, sets=range(10, 20))
    assert fixed.draw_shift == pytest.approx(others.value - value, abs=2 * (fixed.draw_error + others.error))


def test_what_the_last_doubling_gained_is_not_yet_certain() -> None:
    """Odd or even digits need more than 16 draws of shifts, so the best parameters of the infinite orbit are not known
    yet."""
    data = digits()
    x, y = torch.from_numpy(data.x_train[:30]).double(), torch.from_numpy(data.y_train[:30, None] % 2 - 0.5).double()
    climber = make(Translation(2.0).double(), x, y, draws=16, several=False)
    climber.rungs = [Rung(30, 8), Rung(30, 16)]
    climber.run()
    before, after = climber.optima
    assert after.fresh > before.fresh + DRAWS_TOLERANCE
    assert climber.draw_error >= 0.5 * (after.fresh - before.fresh)


def test_what_fresh_draws_take_away_at_the_end_is_not_certain_either() -> None:
    """Noise on iris feeds on 16 draws: half of what other draws take away is an error, whatever their own spread."""
    data = load_iris()
    x = torch.from_numpy((data.data - data.data.mean(0)) / data.data.std(0))[::5]
    likelihood = GaussianIndicators(3)
    y = likelihood.encode(torch.from_numpy(data.target)[::5])
    climber = make(Drawn(0.3).double(), x, y, likelihood, draws=16, several=False)
    climber.run()
    taken = climber.optima[-1].value - climber.optima[-1].fresh
    assert taken > 3.0
    assert climber.draw_gain == taken
    assert climber.draw_error >= 0.5 * taken


@pytest.mark.slow
def test_an_orbit_does_not_feed_on_the_draws_that_it_learns_from() -> None:
    """Noise on iris. The infinite orbit's evidence is a closed form: there, what was learned is not behind no orbit at
    all."""
    data = load_iris()
    x = torch.from_numpy((data.data - data.data.mean(0)) / data.data.std(0))[::5]
    likelihood = GaussianIndicators(3)
    y = likelihood.encode(torch.from_numpy(data.target)[::5])
    none = make(Identity(), x, y, GaussianIndicators(3)).run().log_evidence
    some = make(Drawn(0.3).double(), x, y, likelihood, draws=LEAST_DRAWS)
    some.run()
    infinite = ExactGP(some.model.kernel, GaussianNoise(some.model.orbit.scale.item()).double(), x, 3)
    assert infinite.is_enumerated
    assert infinite.log_evidence(likelihood, y) > none - 2.0


@pytest.mark.slow
def test_draws_double_on_the_rows_that_are_learned_from() -> None:
    """The posterior is that of all rows, with the last number of draws."""
    x, y = wave(20)
    climber = make(Drawn(0.2).double(), x, y, learn_rows=14)
    solution = climber.run()
    assert climber.converged
    assert climber.model.num_samples >= LEAST_DRAWS
    assert {14, 20} <= {record["rows"] for record in climber.history}
    model = climber.model
    covariance = model.gram().detach() + climber.likelihood.noise.detach() * torch.eye(20)
    exact = torch.distributions.MultivariateNormal(model.prior_mean.bias.detach().expand(20), covariance)
    assert solution.log_evidence == pytest.approx(exact.log_prob(y[:, 0]).item(), abs=1e-6)


def test_a_budget_ends_a_run_and_the_best_is_kept() -> None:
    x, y = wave()
    climber = make(Permutation.swap(0, 1), x, y, max_steps=4)
    first = climber.model.condition(climber.likelihood, y).log_evidence
    last = climber.run().log_evidence
    assert climber.steps == 4
    assert not climber.converged
    assert last > first
    assert climber.fraction() == 1.0


def test_a_budget_that_ends_before_the_orbit_is_tried_keeps_the_best() -> None:
    """Evaluations without the orbit come first, from several lengthscales. Their line searches go to where evidence is
    low."""
    x, y = wave()
    runs = (make(Drawn(0.2).double(), x, y, fixed_draws=4, max_steps=steps) for steps in range(1, 30, 6))
    ends = [run.run().log_evidence for run in runs]
    assert all(later > earlier - 0.5 for earlier, later in pairwise(ends))


def test_starts_are_not_scored_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, let_pass: Callable[[float], None]
) -> None:
    """Each score takes longer than the limit, so no second one begins; one more measures the end."""
    calls: list[Vector] = []
    value_at = Objective.value_at

    def slow(objective: Objective, vector: Vector) -> float:
        calls.append(vector)
        let_pass(1.2)
        return value_at(objective, vector)

    monkeypatch.setattr(Objective, "value_at", slow)
    climber = make(Drawn(0.2).double(), *wave(), fixed_draws=4, limit=TimeLimit(1.0))
    climber.run()
    assert not climber.converged
    assert len(calls) <= 3


def test_fresh_draws_score_no_climb_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, let_pass: Callable[[float], None]
) -> None:
    """The first score takes longer than the limit, so no second one begins but that of the end; what was climbed is
    kept."""
    found: list[tuple[Vector, int]] = []
    fresh_at = Objective.fresh_at

    def slow(objective: Objective, vector: Vector, sets: Sequence[int] = (1, 2)) -> FreshEvidence:
        found.append((vector, len(sets)))
        let_pass(2.0 if len(found) == 1 else 0.0)
        return fresh_at(objective, vector, sets)._replace(
            value=-1e9
        )  # no climb is supported, and all are scored on the way

    monkeypatch.setattr(Objective, "fresh_at", slow)
    climber = make(Drawn(0.2).double(), *wave(), fixed_draws=4, limit=TimeLimit(2.0))
    climber.run()
    assert not climber.converged
    assert [sets for _, sets in found] == [2, 3]
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)


def test_who_stops_a_run_waits_for_no_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped while the kernel alone is learned."""
    scored: list[Vector] = []
    climber = make(Drawn(0.2).double(), *wave(), fixed_draws=4)
    climber.callback = lambda record: climber.stop()
    monkeypatch.setattr(Objective, "value_at", lambda *arguments: scored.append(arguments[1]) or 0.0)
    begun = climber.learned.get()
    climber.run()
    assert not scored
    assert climber.steps > 0
    assert (climber.learned.get() != begun)[~climber.learned.is_reach].any()


def test_a_budget_that_ends_while_starts_are_tried_keeps_the_best_of_them() -> None:
    """The second start has hardly begun: the first has come further."""
    x, y = wave()
    whole = make(Permutation.swap(0, 1), x, y)
    whole.run()
    first = [record for record in whole.history if record["climb"] == 0][-1]
    climber = make(Permutation.swap(0, 1), x, y, max_steps=first["step"] + 2)
    assert climber.run().log_evidence == pytest.approx(first["bound"], abs=1e-6)


def test_a_budget_that_ends_as_more_rows_are_seen_keeps_what_few_rows_told() -> None:
    """Ten steps later, too. As given, kernel, noise and orbit have much less evidence."""
    x, y = wave(100)
    whole = make(Drawn(0.2).double(), x, y, fixed_draws=4)
    given = whole.objective(whole.rungs[-1]).value_at(whole.learned.get())
    best = whole.run().log_evidence
    sketch = [record for record in whole.history if record["rows"] == 50][-1]
    for steps in (sketch["step"] + 1, sketch["step"] + 10):
        found = make(Drawn(0.2).double(), x, y, fixed_draws=4, max_steps=steps).run().log_evidence
        assert found > best - 0.2 * (best - given)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [None, Bernoulli()], ids=["gaussian", "bernoulli"])
def test_a_run_that_continues_ends_bit_for_bit_the_same(likelihood: Bernoulli | None) -> None:
    x, y = wave(10)
    x = x[:, None, :]  # images of one row
    y = y if likelihood is None else torch.sign(y)
    states = []

    def build(after: Callable[..., Any] | None = None) -> Ladder:
        torch.manual_seed(0)
        fresh = None if likelihood is None else Bernoulli()
        return make(Translation(0.3).double(), x, y, fresh, after_step=after, fixed_draws=4)

    whole = build(lambda run: states.append((run.state_dict(), run.steps)))
    end = whole.run()
    for state, _ in states[1 : -1 : len(states) // 2]:
        again = build()
        again.load_state_dict(state)
        solution = again.run()
        assert solution.log_evidence == end.log_evidence
        assert np.array_equal(again.learned.get(), whole.learned.get())
        assert [r["bound"] for r in again.history] == [r["bound"] for r in whole.history]


@pytest.mark.slow
def test_a_run_that_continues_has_the_draws_that_it_had() -> None:
    """From the beginning of the last climbs, and from the end."""
    x, y = wave(16)
    states = []
    whole = make(Drawn(0.2).double(), x, y, after_step=lambda run: states.append(run.state_dict()))
    end = whole.run()
    assert whole.model.num_samples >= LEAST_DRAWS
    for state in states[-3:]:
        again = make(Drawn(0.2).double(), x, y)
        again.load_state_dict(state)
        assert again.run().log_evidence == end.log_evidence
        assert again.model.num_samples == whole.model.num_samples
        assert again.draw_shift == whole.draw_shift
        assert again.converged


@pytest.mark.slow
def test_stopping_in_the_middle_keeps_the_beginning_of_the_climb() -> None:
    x, y = wave(10)
    seen: list[Any] = []
    given: dict[str, Any] = {"fixed_draws": 4, "several": False}
    climber = make(Drawn(0.2).double(), x, y, after_step=lambda run: seen.append(run.state_dict()), **given)
    climber.callback = lambda record: climber.stop() if record["step"] > 3 else None
    climber.run()
    assert climber.stopped
    assert not climber.converged
    again = make(Drawn(0.2).double(), x, y, **given)
    again.load_state_dict(seen[-1])
    whole = make(Drawn(0.2).double(), x, y, **given)
    assert again.run().log_evidence == whole.run().log_evidence
    assert again.steps == whole.steps  # what the climb that was stopped had taken is not counted twice


@pytest.mark.slow
def test_priors_of_the_user_count() -> None:
    x, y = wave(25)
    ends = []
    for prior in (None, NormalPrior(0.1, 0.001)):
        climber = make(Identity(), x, y)
        if prior is not None:
            climber.model.kernel.base_kernel.register_prior("p", prior, "lengthscale")
        climber.run()
        ends.append(climber.model.kernel.base_kernel.lengthscale.item())
    assert ends[1] == pytest.approx(0.1, abs=0.02)
    assert ends[0] > 0.5


def test_nothing_to_learn_is_no_error() -> None:
    x, y = wave(10)
    likelihood = Gaussian(1, 0.3).requires_grad_(False)
    model = ExactGP(kernel().requires_grad_(False), Identity(), x)
    climber = Ladder(model=model, likelihood=likelihood, x=x, y=y, rungs=rungs(10, None, several=True))
    assert np.isfinite(climber.run().log_evidence)
    assert climber.converged


def test_an_evidence_that_is_not_finite_is_one_sentence() -> None:
    x, y = wave(10)
    climber = make(Identity(), x, y * torch.nan)
    with pytest.raises(FloatingPointError, match="not finite at the start"):
        climber.run()
