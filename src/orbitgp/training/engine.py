"""The interface of everything that learns: :class:`~orbitgp.training.ladder.Ladder` and
:class:`~orbitgp.training.trainer.Trainer`.

Estimators, checkpoints and callbacks see a run as an :class:`Engine`. Its state is nested dictionaries and lists of tensors and
numbers. A state that was read from a file lies on the CPU: :func:`copied_to` moves every tensor of it at once, so that no part
of a run has to think of devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

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


@runtime_checkable
class Engine(Protocol):
    """A run that learns from where its model is, with its clock, its history, and the state from which it continues.

    ``callback`` is called with every record of the history, ``after_step`` when a step or a climb is done. ``planned``
    are the seconds that it takes at the nominal speed of the device, about. ``steps`` are
    stochastic steps or evaluations of the evidence, at most ``max_steps`` of them. ``learn_rows`` is None where all rows are
    seen in turn. ``screened``: the start is chosen, so that the run can be saved.
    """

    callback: Callback | None
    after_step: Callable[[Any], None] | None

    @property
    def model(self) -> InvariantGP | ExactGP | CollapsedGP: ...
    @property
    def likelihood(self) -> Likelihood: ...
    @property
    def x(self) -> Float[Tensor, "rows *features"] | RowSource: ...
    @property
    def y(self) -> Float[Tensor, "rows *outputs"]: ...
    @property
    def options(self) -> TrainerSettings: ...
    @property
    def planned(self) -> float: ...
    @property
    def max_steps(self) -> int | None: ...
    @property
    def learn_rows(self) -> int | None: ...
    @property
    def screened(self) -> bool: ...
    @property
    def steps(self) -> int: ...
    @property
    def history(self) -> list[Record]: ...
    @property
    def stopped(self) -> bool: ...
    @property
    def converged(self) -> bool: ...

    @property
    def interruptible(self) -> bool:
        """Whether :class:`Stopped` may be raised at this moment, to end a long computation that can be done without."""

    def stop(self) -> None:
        """End the run after the step that it is in."""

    def fraction(self) -> float:
        """How much of the run is over."""

    def progress(self) -> float:
        """How much of the time that the run takes is over, about."""

    def summary(self) -> str:
        """What happened, in words."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on. Its tensors are those of the run, not copies."""

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Continue from a state of the same run."""


class Interruptible:
    """A run that can be stopped between two steps and, while it computes what it can do without, at any moment."""

    stopped = False
    _open = False

    @property
    def interruptible(self) -> bool:
        return self._open

    def stop(self) -> None:
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


def copied_to(device: torch.device, state: Any) -> Any:
    """A copy of a state, with every tensor on this device."""
    if isinstance(state, Tensor):
        return state.detach().to(device, copy=True)
    if isinstance(state, dict):
        return {name: copied_to(device, value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(copied_to(device, value) for value in state)
    return state
