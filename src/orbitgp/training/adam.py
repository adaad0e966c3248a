"""Adam, by PyTorch's own arithmetic (``torch.optim.adam.adam``) but without its class.

The first use of ``torch.optim.Adam`` imports the compiler of PyTorch, which takes more than a second of every new process.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim.adam import adam


@dataclass
class Adam:
    """Each parameter moves by its rate times the running mean of its gradient over the root of that of its square.

    ``param_groups`` are dictionaries with lists of ``params`` and their rate ``lr``. ``state`` holds the running means.
    """

    param_groups: list[dict[str, Any]]
    betas: tuple[float, float]
    eps: float
    fused: bool  # one launch of a GPU moves all parameters of a group
    state: dict[Parameter, dict[str, Tensor]] = field(default_factory=dict)

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters."""
        for parameter in self._parameters():
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            states = [self.state.get(p) or self._begin(p) for p in moved]
            adam(
                moved,
                [p.grad for p in moved],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                [state["step"] for state in states],
                fused=self.fused,
                amsgrad=False,
                beta1=self.betas[0],
                beta2=self.betas[1],
                lr=group["lr"],
                weight_decay=0.0,
                eps=self.eps,
                maximize=False,
            )

    def _begin(self, parameter: Parameter) -> dict[str, Tensor]:
        # The count stays on the CPU where Python reads it at every step.
        step = torch.zeros((), dtype=torch.float32, device=parameter.device if self.fused else "cpu")
        mean, square = torch.zeros_like(parameter), torch.zeros_like(parameter)
        self.state[parameter] = {"step": step, "exp_avg": mean, "exp_avg_sq": square}
        return self.state[parameter]

    def _parameters(self) -> list[Parameter]:
        return [p for group in self.param_groups for p in group["params"]]

    def state_dict(self) -> dict[str, Any]:
        """The running means of the parameters that have moved, by their number."""
        return {"state": {number: self.state[p] for number, p in enumerate(self._parameters()) if p in self.state}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of the same parameters."""
        parameters = self._parameters()
        self.state = {parameters[number]: dict(moments) for number, moments in state["state"].items()}
