"""Models as a user gets them: :class:`orbitgp.InvariantGPClassifier` without any option about training."""

from __future__ import annotations

import gc
import time
from dataclasses import asdict, dataclass

import numpy as np
import torch

from experiments import harness
from experiments.harness import Record
from experiments.infinimnist import TangentDeformation
from experiments.views import VIEWS, View
from orbitgp.datasets import Dataset
from orbitgp.estimators import InvariantGPClassifier
from orbitgp.kernels import PatchDictionary
from orbitgp.orbits.parse import make_orbit
from orbitgp.training.records import hyperparameters

SEEN: dict[str, View] = VIEWS | {"patches": PatchDictionary}  # what the kernel may see


@dataclass(frozen=True)
class DefaultFit(harness.Run):
    """One classifier; subclasses say which data. ``max_seconds`` is for small versions of an experiment."""

    model: str  # what the tables call it
    orbit: str
    view: str = "pixels"  # one of SEEN
    likelihood: str = "auto"
    max_seconds: float | None = None
    seed: int = 0

    def data(self) -> Dataset:
        """Training and test data of this run."""
        raise NotImplementedError

    def estimator(self, device: str) -> InvariantGPClassifier:
        """The classifier before it is fitted."""
        return InvariantGPClassifier(
            TangentDeformation() if self.orbit == "tangent" else make_orbit(self.orbit),
            likelihood=self.likelihood,
            feature_map=SEEN[self.view](),
            max_seconds=self.max_seconds,
            device=device,
            random_state=self.seed,
        )

    def measure(self, device: str) -> Record:
        """Fit the model, predict the test data, and print a line: seconds, evidence, what was learned, and scores."""
        model, data = self.estimator(device), self.data()
        begin = time.perf_counter()
        model.fit(data.x_train, data.y_train)
        between = time.perf_counter()
        probs, labels = model.predict_proba(data.x_test), np.searchsorted(model.classes_, data.y_test)
        seconds = {"fit": between - begin, "predict": time.perf_counter() - between}
        scores = self.scores(probs, labels)
        print(
            f"{self.name()}: {model.evidence_}; {100 * scores['error_rate']:.2f} %, {seconds['fit']:.0f} s", flush=True
        )
        record = {
            "data": {"name": data.name, "train": len(data.y_train), "test": len(labels)},
            "seconds": seconds,
            "inference": model.inference_,
            "evaluations": model.history_[-1]["step"],
            "converged": model.converged_,
            "evidence": asdict(model.evidence_),
            "orbit": model.orbit_.describe().to_dict(),
            "learned": hyperparameters(model.model_.kernel, model.likelihood_),
            "metrics": scores,
        }
        del model
        free_memory()
        return record


def free_memory() -> None:
    """Give back what the GPU holds for tensors that are gone."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
