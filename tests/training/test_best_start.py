"""The best of several starts, on evidences of one line that are known by heart."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from orbitgp.training.best_start import BestStart
from orbitgp.training.climb import Stopped, Top

from orbitgp.training.objective import ExactObjective


class Line(ExactObjective):
    """An objective with two parameters, a reach and a lengthscale, and a given function of these and of the draws."""

    def __init__(self, evidence, tops):
        self.evidence, self.tops = evidence, tops
        self.vector = np.array([1.0, 0.0])
        self.model = SimpleNamespace(num_samples=16, orbit=None)
        widest = np.array([9.0, np.inf])
        self.learned = SimpleNamespace(get=lambda: self.vector, set=self._set, is_reach=np.array([True, False]), widest=widest)
        self.rows = 100
        self.climbs = []  # numbers of draws

    def _set(self, vector):
        self.vector = np.array(vector)

    @contextmanager
    def subset(self, rows):
        self.rows = rows
        yield

    def log_evidence(self, other=0):
        return float(self.evidence(*self.vector, self.model.num_samples))

    def log_prior(self):
        return 0.0

    def climb(self, enough, curvature=None):
        """To the nearest top."""
        self.climbs.append(self.model.num_samples)
        first = self.log_evidence()
        self.vector = min((np.array(top) for top in self.tops), key=lambda top: np.abs(top - self.vector).sum())
        return Top(self.log_evidence(), self.vector, None, first)

    def top(self, *vector):
        return Top(float(self.evidence(*vector, self.model.num_samples)), np.array(vector), None, 0.0)

    def stopped_at(self, reach):
        """A stage that is stopped on its way, at this reach."""

        def stage(climb, *arguments):
            self._set([reach, 0.0])
            raise Stopped

        return stage

    def search(self, more_samples=(32, 64), is_late=lambda: False):
        return BestStart(self, [], 100, None, more_samples, self.climb, is_late)


def stage(climb, *arguments):
    return climb(*arguments)


def two_tops(reach, length, samples):
    """Tops at reaches of 1 and 5. The second is higher, but 16 draws do not show it."""
    second = {16: -0.5, 32: 0.2, 64: 2.0, 128: 2.5}[samples]
    return max(-((reach - 1) ** 2), second - (reach - 5) ** 2)


def test_more_draws_decide_between_tops_that_are_as_high():
    line = Line(two_tops, [(1.0, 0.0), (5.0, 0.0)])
    search = line.search()
    rivals = search._rivals([line.top(1.0, 0.0), line.top(5.0, 0.0)])
    assert [float(top.vector[0]) for top in rivals] == [1.0, 5.0]
    best = search._decided(rivals, stage)
    assert best.vector[0] == 5.0
    assert line.climbs == [32, 32, 64, 64]  # 0.2 nats were less than what twice the draws had moved, 0.7; 2.0 are more
    assert line.model.num_samples == 64  # from where the run goes on
    assert search.moved == best.value - 0.2


def test_a_late_search_goes_on_with_the_best_so_far():
    line = Line(two_tops, [(1.0, 0.0), (5.0, 0.0)])
    search = line.search(is_late=lambda: len(line.climbs) >= 1)
    climbs = [(lambda reach=reach: line.climb(line._set([reach, 0.0])),) for reach in (4.0, 0.0, 6.0)]
    assert [float(top.vector[0]) for top in search._tops(climbs, stage, 100)] == [5.0]  # there is always one
    assert search._decided([line.top(1.0, 0.0), line.top(5.0, 0.0)], stage).vector[0] == 1.0
    assert search.beside(line.top(5.0, 0.0), 100, stage)[0].vector[0] == 5.0
    assert line.climbs == [16]
    assert line.model.num_samples == 16


def test_draws_do_not_matter_where_one_top_is_far_ahead():
    line = Line(lambda reach, length, samples: max(-((reach - 1) ** 2), -3 - (reach - 5) ** 2), [(1.0, 0.0), (5.0, 0.0)])
    search = line.search()
    rivals = search._rivals([line.top(5.0, 0.0), line.top(1.0, 0.0)])
    assert search._decided(rivals, stage).vector[0] == 1.0
    assert line.climbs == []
    assert line.model.num_samples == 16


def test_points_of_one_flat_top_are_one():
    """The evidence does not depend on the reach: whichever end a climb has found, there is one top."""
    line = Line(lambda reach, length, samples: -(length**2), [])
    ends = [line.top(reach, 0.0) for reach in (0.1, 0.9, 3.0)]
    assert len(line.search()._rivals(ends)) == 1
    assert len(line.search()._finalists(ends)) == 1
    valley = Line(two_tops, [])
    apart = [valley.top(1.0, 0.0), valley.top(5.0, 0.0)]
    assert len(valley.search()._rivals(apart)) == len(valley.search()._finalists(apart)) == 2


def test_a_reach_and_its_negative_are_one_top():
    line = Line(lambda reach, length, samples: -((abs(reach) - 2) ** 2), [])
    assert len(line.search()._rivals([line.top(2.0, 0.0), line.top(-2.0, 0.0)])) == 1


def test_what_a_sketch_says_of_the_kernel_is_kept_where_it_is_better():
    line = Line(lambda reach, length, samples: -(length**2), [(1.0, 0.0), (1.0, 3.0), (5.0, 0.0), (5.0, 3.0)])
    search = line.search()
    in_a_corner = Top(-1.0, np.array([5.0, 3.0]), None, 0.0)
    assert search._from_sketch(in_a_corner).vector.tolist() == [5.0, 0.0]  # kernel and noise begin again
    line.evidence = lambda reach, length, samples: -((length - 3) ** 2)
    assert search._from_sketch(in_a_corner).vector.tolist() == [5.0, 3.0]


@pytest.mark.parametrize("reach", [8.0, -8.0, 10.0])
def test_everything_is_tried_where_the_best_is_close_to_it(reach):
    """A reach of 9 takes in everything: 8 and 10 are the same."""
    line = Line(lambda reach, length, samples: float(abs(reach) == 9), [(9.0, 0.0), (reach, 0.0), (2.0, 0.0)])
    (top,) = line.search()._beside_everything(line.top(reach, 0.0), stage)
    assert top.vector.tolist() == [9.0, 0.0]
    assert line.search()._beside_everything(line.top(2.0, 0.0), stage) == []
    assert line.search()._beside_everything(line.top(9.0, 0.0), stage) == []


def test_a_budget_that_ends_there_keeps_the_best():
    line = Line(lambda reach, length, samples: -abs(reach - 8.0), [(8.0, 0.0)])
    with pytest.raises(Stopped):
        line.search()._beside_everything(line.top(8.0, 0.0), line.stopped_at(9.0))
    assert line.vector[0] == 8.0


def test_other_tops_are_sought_beside_the_best():
    line = Line(lambda reach, length, samples: max(-4 * (reach - 4) ** 2, -1 - 4 * (reach - 6) ** 2), [(4.0, 0.0), (6.0, 0.0)])
    best = line.top(4.0, 0.0)
    found = line.search().beside(best, 40, stage)
    assert [float(top.vector[0]) for top in found] == [4.0, 6.0]
    assert line.rows == 40
    line.evidence = lambda reach, length, samples: max(-4 * (reach - 4) ** 2, -3 - 4 * (reach - 6) ** 2)
    assert line.search().beside(best, 40, stage) == [best]  # the other is too far below
    line.evidence = lambda reach, length, samples: max(-4 * (reach - 4) ** 2, 3 - 4 * (reach - 6) ** 2)
    (other,) = line.search().beside(best, 40, stage)  # and here the first is
    assert other.vector[0] == 6.0
    line.evidence = lambda reach, length, samples: -(length**2)
    assert len(line.search().beside(line.top(4.0, 0.0), 40, stage)) == 1  # one flat top


def test_a_budget_that_ends_beside_the_best_keeps_it():
    line = Line(lambda reach, length, samples: -abs(reach - 4.0), [(4.0, 0.0)])
    with pytest.raises(Stopped):
        line.search().beside(line.top(4.0, 0.0), 40, line.stopped_at(6.0))
    assert line.vector.tolist() == [4.0, 0.0]
