"""Models of a comparison that are done, kept in a folder, so that a comparison that is stopped goes on where it was."""

from __future__ import annotations

import hashlib
import logging
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from orbitgp.comparison.parallel import Job, Trained
from orbitgp.saving.container import SavedFileError
from orbitgp.saving.modules import outline

logger = logging.getLogger("orbitgp")


class Kept:
    """A file for each model. Its name tells data, orbit and settings, so that no other job takes it for its own."""

    def __init__(self, folder: Path, X: np.ndarray, y: np.ndarray) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(f"{X.dtype} {X.shape} {y.dtype} {y.shape}".encode())
        for array in (X, y):
            digest.update(np.ascontiguousarray(array).tobytes())
        self.data = digest.hexdigest()

    def path(self, job: Job) -> Path:
        """Where the model of this job is kept."""
        orbit = [*outline(job.orbit), *(f"{name} {value.tolist()}" for name, value in job.orbit.state_dict().items())]
        words = [self.data, job.name, str(job.seed), job.kind.__name__, job.purpose, repr(sorted(job.settings.items())), *orbit]
        return self.folder / f"{hashlib.sha256(chr(10).join(words).encode()).hexdigest()[:24]}.safetensors"

    def save(self, trained: Trained) -> None:
        """Keep a model that is done. If that fails, the comparison goes on without."""
        try:
            trained.model.save(self.path(trained.job))
        except (OSError, TypeError, ValueError) as error:
            logger.warning("the model of %s is not kept: %s", trained.job.name, error)

    def load(self, job: Job) -> Trained | None:
        """The model of a job that was done before, if it was."""
        path = self.path(job)
        if not path.is_file():
            return None
        handed_in: dict[str, Any] = {"orbit": deepcopy(job.orbit), "feature_map": job.settings.get("feature_map")}
        try:
            model = job.kind.load(path, **handed_in)
        except SavedFileError as error:
            logger.warning("%s: it is trained again.", error)
            return None
        return Trained(job, model.evidence_.value, model.evidence_.stderr, model.history_[-1]["seconds"], model)
