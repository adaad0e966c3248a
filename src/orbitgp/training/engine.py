"""What everything that learns has in common: :class:`~orbitgp.training.ladder.Ladder`,
:class:`~orbitgp.training.stochastic_steps.StochasticSteps`, and :class:`~orbitgp.training.trainer.Trainer`, which runs both.

Estimators, checkpoints and callbacks see a run as an :class:`Engine`. Its state is nested dictionaries and lists of tensors and
numbers. A state that was read from a file lies on the CPU: :func:`copied_to` moves every tensor of it at once, so that no part
of a run has to think of devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from orbitgp.inference.collapsed import CollapsedGP
from orbitgp.inference.exact import ExactGP
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import RowSource
from orbitgp.likelihoods import Likelihood
from orbitgp.planning.options import TrainerSettings
from orbitgp.training.maximise import Stopped
from orbitgp.training.records import Callback, Record


class Engine:
    """A run that learns from where its model is, with its clock, its history, and the state from which it continues.

    ``callback`` is called with every record of the history, ``after_step`` when a step or a climb is done. ``planned``
    are the seconds that it takes at the nominal speed of the device, about. ``steps`` are
    stochastic steps or evaluations of the evidence, at most ``max_steps`` of them. ``learn_rows`` is None where all rows are
    seen in turn.
    """

    model: InvariantGP | ExactGP | CollapsedGP
    likelihood: Likelihood
    x: Float[Tensor, "rows *features"] | RowSource
    y: Float[Tensor, "rows *outputs"]
    options: TrainerSettings
    history: list[Record]
    callback: Callback | None
    after_step: Callable[[Any], None] | None
    planned: float
    max_steps: int | None
    learn_rows: int | None
    steps: int
    seconds: float
    converged = False
    stopped = False
    _open = False

    @property
    def screened(self) -> bool:
        """Whether the start is chosen, so that the run can be saved."""
        return True

    @property
    def interruptible(self) -> bool:
        """Whether :class:`Stopped` may be raised at this moment, to end a long computation that can be done without."""
        return self._open

    def stop(self) -> None:
        """End the run after the step that it is in."""
        self.stopped = True

    @contextmanager
    def interruptibly(self) -> Iterator[None]:
        """Whoever stops the run while it is in this context may raise :class:`Stopped`."""
        if self.stopped:
            raise Stopped
        self._open = True
        try:
            yield
        finally:
            self._open = False

    def fraction(self) -> float:
        """How much of the budget is spent; 1 when the run is over."""
        raise NotImplementedError

    def progress(self) -> float:
        """How much of the time that the run takes is over, about."""
        return self.fraction()

    def summary(self) -> str:
        """What happened, in words."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on. Its tensors are those of the run, not copies."""
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Continue from a state of the same run."""
        raise NotImplementedError


def copied_to(device: torch.device, state: Any) -> Any:
    """A copy of a state, with every tensor on this device."""
    if isinstance(state, Tensor):
        return state.detach().to(device, copy=True)
    if isinstance(state, dict):
        return {name: copied_to(device, value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(copied_to(device, value) for value in state)
    return state
