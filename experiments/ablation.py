"""What each rule of the learner gains: every rule is left out in turn, and the same fits are made again.

    python -m experiments ablation                    # ten minutes on one core
    python -m experiments ablation --cases "digits 100 affine"

A line has the nats that the fits lose without the rule (evidence of the infinite orbit), and their CPU seconds over
those of the learner as it is. Cases are those of ``benchmarks.answers``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.answers import data_of
from orbitgp import InvariantGPClassifier
from orbitgp.inference.exact import ExactGP
from orbitgp.planning import plan, rungs
from orbitgp.training import contenders, ladder, starts

CASES = ("digits 100 rotation", "digits 100 translation", "digits 100 deformation", "signals 100 timeshift")
LEFT_OUT: dict[str, Callable[[], Any]] = {
    "nothing": lambda: patch.object(ladder, "_ROUNDS", ladder._ROUNDS),
    "neighbours": lambda: patch.object(ladder, "_ROUNDS", 0),
    "kernels that follow": lambda: patch.object(contenders, "_followed", lambda vector, *_: vector),
    "shapes as given": lambda: patch.object(
        ladder.Ladder, "_beside_neighbours", _without_shapes(ladder.Ladder._beside_neighbours)
    ),
    "rows of the sketch": lambda: patch.object(plan, "rungs", _without_sketch(rungs.rungs)),
    "the narrow start": lambda: patch.object(ladder.Ladder, "_candidates", _without_last(ladder.Ladder._candidates)),
    "other lengthscales": lambda: patch.object(
        ladder, "kernel_starts", lambda kernel: starts.kernel_starts(kernel)[:1]
    ),
    "the whole turn": lambda: patch.object(
        starts._Ruler, "start", lambda ruler, share, multiple: _alike(ruler, multiple)
    ),
    "corrected draws": lambda: patch.object(ExactGP, "gains_by_correction", False),
    "cutting back": lambda: patch.object(ladder.Ladder, "_supported", _scored),
    "ends of lost climbs": lambda: patch.object(ladder, "least_to_win", lambda *_: -np.inf),
}


def _alike(ruler: Any, multiple: float) -> tuple[float, ...]:
    return (multiple,) * len(ruler.orbit.reaches())


def _scored(run: Any, objective: Any, start: Any, found: Any, rung: Any) -> Any:
    shift = run._fresh_shift(found, rung, corrected=objective.model.corrected).value
    return found._replace(fresh=found.value + shift)


def _without_shapes(beside: Callable[..., Any]) -> Callable[..., Any]:
    def found(run: Any, *arguments: Any, at_end: bool = False) -> Any:
        with patch.object(run.learned, "is_shape", np.zeros_like(run.learned.is_shape)):
            return beside(run, *arguments, at_end=at_end)

    return found


def _without_sketch(make: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    return lambda rows, *more, **named: [rung for rung in make(rows, *more, **named) if rung.rows == rows]


def _without_last(candidates: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    return lambda run: candidates(run)[:-1] if run.learned.is_reach.any() else candidates(run)


def fitted(case: str) -> tuple[float, float]:
    """The evidence of a default fit, and its CPU seconds."""
    x, y, *_ = data_of(case)
    start = time.process_time()
    evidence = InvariantGPClassifier(case.split()[2], random_state=0).fit(x, y).evidence_
    return evidence.value, time.process_time() - start


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m experiments ablation", description=__doc__)
    parser.add_argument("--cases", nargs="+", default=CASES)
    cases = parser.parse_args(arguments).cases
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"| left out | {' | '.join(cases)} |\n|{'---|' * (1 + len(cases))}")
    whole: list[tuple[float, float]] = []
    for name, leave_out in LEFT_OUT.items():
        with leave_out():
            found = [fitted(case) for case in cases]
        whole = whole or found
        cells = [f"{w[0] - f[0]:+.1f} nats, × {f[1] / w[1]:.2f}" for w, f in zip(whole, found, strict=True)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
