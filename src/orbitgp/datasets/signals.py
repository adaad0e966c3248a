"""Generated signals to try things on, with a fixed seed: spectra to regress on, and sensors to classify.

Both have something that does not matter, of known size: scatter and drift of the spectra, and when and how fast a
movement happens.
"""

from __future__ import annotations

import numpy as np

from orbitgp.datasets.base import Dataset


def spectra(train: int = 100, test: int = 100, seed: int = 0) -> Dataset:
    """Absorption spectra of a mixture, 850 to 1,048 nm in steps of 2 nm; the target is the per cent of one part.

    Each spectrum has its own path length (a gain within ×0.7 to ×1.4) and its own drift (a straight line), which say
    nothing about the mixture.

        >>> spectra().x_train.shape
        (100, 100)
    """
    rng = np.random.default_rng(seed)
    count = train + test
    wavelength = 850 + 2.0 * np.arange(100)
    bands = (((930, 14.0), (990, 30.0)), ((970, 24.0), (1040, 30.0)), ((910, 30.0), (1015, 18.0)))
    pure = np.stack([sum(np.exp(-0.5 * ((wavelength - at) / wide) ** 2) for at, wide in part) for part in bands])
    parts = rng.dirichlet((1.5, 4.0, 2.0), count)
    gain, drift = np.exp(rng.uniform(np.log(0.7), np.log(1.4), (count, 1))), rng.normal(0, 0.3, (count, 2))
    line = drift[:, :1] + drift[:, 1:] * np.linspace(-1, 1, 100)
    x = gain * (2 + parts @ pure) + line + rng.normal(0, 0.001, (count, 100))
    y = 100 * parts[:, 0]
    return _dataset(x, y, train, "spectra (generated)", seed)


def movements(train: int = 60, test: int = 200, seed: int = 0) -> Dataset:
    """Two channels of a sensor, 100 samples at 50 Hz, of three movements: a push, a shake and a circle.

    A movement begins up to 0.3 s before or after the middle, and is up to 1.3 times slower or faster.

        >>> movements(train=20).x_train.shape
        (20, 2, 100)
    """
    rng = np.random.default_rng(seed)
    count = train + test
    label = rng.integers(0, 3, count)
    begins, slower = rng.uniform(-0.3, 0.3, (count, 1)), np.exp(rng.uniform(-1, 1, (count, 1)) * np.log(1.3))
    t = ((np.arange(100) - 49.5) / 50 - begins) / slower
    bell = np.exp(-0.5 * (t / 0.25) ** 2)
    kinds = [
        (bell, -0.3 * bell),
        (bell * np.sin(2 * np.pi * 4 * t), 0.3 * bell * np.cos(2 * np.pi * 4 * t)),
        (bell * np.cos(2 * np.pi * 1.2 * t), bell * np.sin(2 * np.pi * 1.2 * t)),
    ]
    channels = np.stack([np.stack(kind, 1) for kind in kinds])[label, np.arange(count)]
    x = channels + rng.normal(0, 0.5, channels.shape)
    return _dataset(x, label, train, "movements (generated)", seed)


def _dataset(x: np.ndarray, y: np.ndarray, train: int, name: str, seed: int) -> Dataset:
    x = x.astype(np.float32)
    return Dataset(x[:train], y[:train], x[train:], y[train:], name=name, source=f"orbitgp, seed {seed}")
