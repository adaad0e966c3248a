"""docs/speed.md, from the results of every kind of hardware that there are."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.report import RESULTS, markdown

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
HEAD = """# Speed

The method's cost is one thing: k_g between N·S transformed inputs and M inducing points, forward and backward. What follows
says how far from that everything else is. All of it is written by `make bench` (`python -m benchmarks`) from
`benchmarks/results/*.json`.

*Bare GEMM* is that one product and its two backward products, on matrices that are there already. *The bare operations* are
those a step cannot do without, each alone: the three products, the pairs of k_ff, interpolation on a ready grid, Kuu, its
Cholesky factor and the solves, the product with the covariance of q(u). *Straightforward GPyTorch* is the same model with
GPyTorch's kernels: all pairs, a solve for every sample, a covariance for each output.
"""


def write_page() -> Path:
    pages = [markdown(json.loads(path.read_text())) for path in sorted(RESULTS.glob("*.json"))]
    PAGE.write_text("\n".join([HEAD, *pages]))
    return PAGE
