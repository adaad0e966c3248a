"""The benchmarks find the parts of a step that they measure."""

from __future__ import annotations

import argparse
import time

import torch

from benchmarks import profiling
from benchmarks.problem import Shape


def test_every_stage_of_a_step_takes_time():
    args = argparse.Namespace(device=torch.device("cpu"), clock=time.perf_counter)
    parts = profiling.profiled(Shape(8, 4, 10), args)["parts"]
    assert all(parts[f"{stage}, {way}"] > 0 for stage in profiling.STAGES for way in ("forward", "backward"))
