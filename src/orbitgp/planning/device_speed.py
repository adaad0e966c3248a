"""How fast a device is, known from what it is: costs become seconds without a measurement.

Defaults are chosen at a nominal speed: that of two cores, or of a GPU. A slower GPU is reckoned at its own speed; many have
next to no double precision. On a faster one a default fit is sooner done, rather than larger. A limit that the user has set is
in seconds of the device itself, and a faster one does more in them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Speed(NamedTuple):
    """Operations a second in single and in double precision."""

    single: float
    double: float


CPU = Speed(40e9, 16e9)  # two threads
GPU = Speed(30e12, 20e12)
_SUSTAINED = 0.6  # of the peak, by large products and factors; measured on an H200
_MOST = Speed(256, 4)  # operations a cycle of one multiprocessor, of most GPUs,
_PER_CYCLE = {  # and of those that are made for double precision, by compute capability
    (6, 0): Speed(128, 64),
    (7, 0): Speed(128, 64),
    (8, 0): Speed(128, 128),
    (9, 0): Speed(256, 256),
    (10, 0): Speed(256, 128),
}


def nominal_speed(device: torch.device) -> Speed:
    """The nominal speed, or that of the device where it is slower."""
    if device.type != "cuda":
        return CPU
    own = _own(device)
    return Speed(min(own.single, GPU.single), min(own.double, GPU.double))


def nominal_seconds(seconds: float, device: torch.device) -> float:
    """As many seconds at the reckoned speed as the device can make of these."""
    if device.type != "cuda":
        return seconds
    own, speed = _own(device), nominal_speed(device)
    return seconds * min(own.single / speed.single, own.double / speed.double)


def _own(device: torch.device) -> Speed:
    """That of a GPU; nominal where it is not known."""
    if not torch.cuda.is_available() or torch.version.cuda is None:
        return GPU
    properties = torch.cuda.get_device_properties(device)
    per_cycle = _PER_CYCLE.get((properties.major, properties.minor), _MOST)
    # The clock is in kHz; some drivers do not say.
    cycles = 1e3 * getattr(properties, "clock_rate", 1.5e6) * properties.multi_processor_count
    return Speed(*(_SUSTAINED * cycles * operations for operations in per_cycle))
