"""A program that kills fits at random moments and lets them go on: run by test_checkpoint.py, or by hand.

    python tests/fit_to_kill.py FOLDER KILLS [SEED]

Each fit is a process of its own, forked from one that has done it all once already, so that a fit takes a second.
Prints one line of JSON for each kill: when it came, what was there to go on from, and whether the fit that went on
ended where one that was never killed ends, to the last bit.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
warnings.filterwarnings("ignore", category=DeprecationWarning)

import numpy as np  # noqa: E402
import torch  # noqa: E402

from orbitgp import InvariantGPRegressor  # noqa: E402
from orbitgp.orbits import GaussianNoise  # noqa: E402
from orbitgp.training.checkpoint import read_checkpoint  # noqa: E402


def fit(checkpoint: Path | None) -> InvariantGPRegressor:
    """A small problem with everything a run can have: screening, samples, minibatches, local parameters."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (24, 2))
    y = np.sin(X[:, 0] + X[:, 1]) + 0.1 * rng.normal(size=24)
    settings: dict[str, Any] = {
        "max_steps": 40,
        "num_samples": 8,
        "num_inducing": 10,
        "batch_size": 10,
        "random_state": 0,
    }
    estimator = InvariantGPRegressor(GaussianNoise(0.5), likelihood="student-t", **settings)
    return estimator.fit(X, y, checkpoint=checkpoint, checkpoint_every=0.0, resume=checkpoint is not None)


def digest(estimator: Any) -> str:
    """All that was learned and noted, but for the time that it took."""
    result = hashlib.sha256()
    for module in (estimator.model_, estimator.likelihood_):
        for name, tensor in module.state_dict().items():
            result.update(name.encode() + tensor.numpy().tobytes())
    history = [{name: value for name, value in record.items() if name != "seconds"} for record in estimator.history_]
    result.update(repr((estimator.evidence_, history)).encode())
    return result.hexdigest()


def forked(work: Callable[[], object]) -> int:
    """Do this in a process of its own."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def finished(checkpoint: Path | None, folder: Path) -> str:
    """The digest of a fit in a process of its own."""
    result = folder / "digest"
    result.unlink(missing_ok=True)
    child = forked(lambda: result.write_text(digest(fit(checkpoint))))
    _, status = os.waitpid(child, 0)
    return result.read_text() if status == 0 else f"failed with status {status}"


def main(folder: Path, kills: int, seed: int) -> None:
    torch.set_num_threads(1)
    expected = digest(fit(None))
    start = time.perf_counter()
    whole = finished(folder / "whole.safetensors", folder)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "same": whole == expected}), flush=True)  # noqa: T201
    moments = random.Random(seed)
    for number in range(kills):
        checkpoint = folder / f"{number}.safetensors"
        after, status = moments.uniform(0.0, seconds), 0
        while status == 0:  # a fit that ended before it was killed is run again, and killed sooner
            checkpoint.unlink(missing_ok=True)
            child = forked(lambda path=checkpoint: fit(path))
            time.sleep(after)
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            after /= 2
        steps = read_checkpoint(checkpoint).steps if checkpoint.exists() else None
        same = finished(checkpoint, folder) == expected
        left = [path.name for path in folder.glob(".*")]
        line = {"after": 2 * after, "steps": steps, "same": same, "left": left}
        print(json.dumps(line), flush=True)  # noqa: T201


def said(to: Path, folder: Path, kills: int, seed: int) -> None:
    """What it prints, in a file."""
    with to.open("w") as lines, redirect_stdout(lines):
        main(folder, kills, seed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
