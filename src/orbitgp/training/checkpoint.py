"""Checkpoints: a run that is killed continues where it was, and ends where it would have ended.

A checkpoint is the whole state of a :class:`~orbitgp.training.run.Engine` between two steps, with the state of its
random generator, in one safetensors file that is replaced as a whole. On the same machine, with the same versions and
number of threads, a run that continues from a checkpoint takes exactly the steps that it would have taken. A run that
climbs, by the exact evidence or by the collapsed bound, goes on from the beginning of the climb that it was in.

The first checkpoint is written when the start is chosen, then one at equal intervals of time, one when the run is
stopped by Ctrl-C, and one after the last step. It holds a fingerprint of the data and the settings, because it
continues its own run and no other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from orbitgp.inference import processes
from orbitgp.inference.model import InvariantGP
from orbitgp.inference.rows import checksum
from orbitgp.saving.container import SavedFileError, Tensors, digest, read, versions, write
from orbitgp.saving.objects import decode, encode, outline
from orbitgp.training.run import Engine

KIND = "checkpoint"

logger = logging.getLogger("orbitgp")


class Saved(NamedTuple):
    """What a checkpoint holds."""

    run: dict[str, Any]  # the fingerprint of data and settings
    seeds: list[int]
    steps: int
    state: Any  # of the engine, encoded
    tensors: Tensors


class Checkpoint:
    """The checkpoint file of one fit: the state to continue from, and where to write the next.

    Args:
        path: where checkpoints are written.
        every: seconds between them.
        resume: whether to continue from the checkpoint that exists, if there is one. Without ``resume``, an existing
            checkpoint is an error, so that nobody overwrites hours of training by mistake.
    """

    def __init__(self, path: Path, every: float = 60.0, resume: bool = False) -> None:
        if not every >= 0:
            raise ValueError(f"checkpoint_every must be a number of seconds, got {every}.")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {path.parent} to write the checkpoint {path.name} into.")
        self.path, self.every = path, every
        self.saved = read_checkpoint(path) if path.exists() else None
        if self.saved is not None and not resume:
            raise FileExistsError(
                f"{path} holds a run of {self.saved.steps} steps: "
                "pass resume=True to go on with it, or delete it to start over."
            )
        self.seeds: list[int] = []
        self.written = -1
        self._run: dict[str, Any] = {}
        self._due = 0.0

    def restore(self, engine: Engine, seeds: list[int]) -> None:
        """Bring a new engine to the saved state, if there is one, and check that it belongs to the same run."""
        self.seeds, self._run = seeds, fingerprint(engine)
        stem, suffix = self.path.stem, self.path.suffix
        for remains in self.path.parent.glob(f".{escape(stem)}.*{escape(suffix)}"):  # of a run killed as it wrote
            if remains.name.removeprefix(f".{stem}.").removesuffix(suffix).isdigit():
                remains.unlink(missing_ok=True)
        if self.saved is None:
            return
        _check_same_run(self.path, self.saved.run, self._run)
        try:
            engine.load_state_dict(decode(self.saved.state, self.saved.tensors))
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise SavedFileError(
                f"{self.path} was written by another version of orbitgp, and this one cannot go on from it: delete it "
                "to start over."
            ) from error
        self.written = engine.steps
        self._due = time.monotonic() + self.every
        logger.info("%s: going on after %d steps.", self.path, engine.steps)
        self.saved = None  # the tensors are no longer needed

    def after_step(self, engine: Engine) -> None:
        """Called between steps: write if a checkpoint is due, or if this was the last step."""
        due = engine.screened and (time.monotonic() >= self._due or engine.stopped or engine.fraction() >= 1.0)
        if processes.broadcast(due):  # the clock of the first process decides
            self.write(engine)

    def write(self, engine: Engine) -> None:
        """Write a checkpoint. If that fails, the last one stays and the run continues."""
        if self.written == engine.steps:
            return
        state = engine.state_dict()  # of all processes together
        if processes.rank() > 0:
            self.written = engine.steps
            return
        tensors: Tensors = {}
        config = {
            "run": self._run,
            "seeds": self.seeds,
            "steps": engine.steps,
            "state": encode(state, tensors, "state"),
        }
        try:
            write(self.path, KIND, config, tensors)
        except OSError as error:
            last = "there is none yet" if self.written < 0 else f"the last one is of step {self.written}"
            logger.warning("the checkpoint %s could not be written (%s); %s. Training goes on.", self.path, error, last)
        else:
            self.written = engine.steps
        self._due = time.monotonic() + self.every


def read_checkpoint(path: Path) -> Saved:
    """The checkpoint in this file."""
    kind, config, tensors = read(path)
    if kind != KIND:
        raise SavedFileError(f"{path} holds a {kind}, not a checkpoint.")
    try:
        seeds = [int(seed) for seed in config["seeds"]]
        return Saved(config["run"], seeds, int(config["steps"]), config["state"], tensors)
    except (KeyError, TypeError, ValueError) as error:
        raise SavedFileError(f"{path} is damaged: its header is not that of a checkpoint.") from error


def fingerprint(engine: Engine) -> dict[str, Any]:
    """Everything that a run depends on, by name, before its first step: data as digests, settings as they are."""
    model = engine.model
    if isinstance(model, InvariantGP):
        own = {"inference": "sparse", "num_inducing": len(model.inducing), "jitter": model.jitter}
        own["inducing_samples"] = model.inducing_samples
    else:
        own = {"inference": "exact", "num_samples": model.num_samples, "learn_rows": engine.learn_rows}
    settings = asdict(engine.options)
    settings["random_state"] = settings.pop("seed")
    for name in ("num_predict_samples", "dtype"):  # predictions come later, and the digest of X tells its precision
        del settings[name]
    return {
        **settings,
        "X": checksum(engine.x),
        "y": digest({"y": engine.y}),
        "orbit": digest_module(model.orbit),
        "kernel": digest_module(model.kernel),
        "likelihood": digest_module(engine.likelihood),
        "mean": digest_module(model.prior_mean, with_values=False),
        **own,
        "device": engine.x.device.type,
        "versions": versions("torch", "gpytorch"),
        "threads": torch.get_num_threads(),
        "card": torch.cuda.get_device_name(engine.x.device) if engine.x.is_cuda else None,
    }


def _check_same_run(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    differ = [name for name in now if before.get(name) != now[name]]
    # With other versions, threads or another card the run still continues, though the last bits may differ.
    for name in ("versions", "threads", "card"):
        if name in differ:
            differ.remove(name)
            logger.warning("%s was written with other %s: the run goes on, but not bit for bit.", path, name)
    data = [name for name in ("X", "y") if name in differ]
    if data:
        raise SavedFileError(f"{path} belongs to a run with other data: {' and '.join(data)} differ.")
    if differ:
        digests = ("orbit", "kernel", "likelihood", "mean")
        words = [name if name in digests else f"{name} was {before.get(name)} and is {now[name]}" for name in differ]
        raise SavedFileError(f"{path} belongs to a run with other settings: {', '.join(words)}.")


def digest_module(module: nn.Module, with_values: bool = True) -> str:
    """Tells a module from any other: its parts, their plain attributes, what is learned, and its numbers."""
    learned = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    return digest(module.state_dict() if with_values else {}, *outline(module), *learned)
