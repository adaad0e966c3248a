"""docs/notes/speed.md, from the results of every kind of hardware that there are."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.report import RESULTS, markdown
from experiments import harness, tables

PAGE = Path(__file__).parents[1] / "docs" / "notes" / "speed.md"
HEAD = """# Speed

One step of *sparse* training, which is not what a default fit of few data does. Its cost is one thing: k_g between N·S
transformed inputs and M inducing points, forward and backward. What follows says how far from that everything else is.
All tables are written by `make bench` (`python -m benchmarks`) from `benchmarks/results/*.json`.

**The tables are of commit `2f74fc4`, which had compiled loops and TF32.** Both are gone. *torch alone* is a step
without the loops, and is what the package does now.

*Bare GEMM* is that one product and its two backward products, on matrices that are there already. *The bare operations*
are those a step cannot do without, each alone and plainly written: the three products, the pairs of k_ff, interpolation
on a ready grid, Kuu, its Cholesky factor and the solves, the product with the covariance of q(u). A step may take less
than their sum where it does better than the plain way. *Straightforward GPyTorch* is the same model with GPyTorch's
kernels: all pairs, a solve for every sample, a covariance for each output.

On a machine that others use, too, `python -m benchmarks --clock cpu --threads 1` measures the CPU time of one thread.
"""
TAIL = """## What was weighed

Each with the code of its time.

- **No compiled code**: earlier versions had loops in C for interpolation, 2^h with its means, the pairs of k_ff and the
  scaling of slopes. *torch alone* in the tables is a step without them, which is what the package does now. Steps of
  sparse training on a CPU took 7 to 39 % less with them. Default fits are exact, and gained nothing: 200 digits with
  rotations took 8.4 s of one x86 core with the loops and 5.6 s without, 60 signals with `ShapeHistograms()` 10.6 s and
  9.1 s.
- **No subnormal numbers**: Gaussian windows end in weights below 10⁻³⁸, with which products on an x86 CPU take many
  times as long. Feature maps now have zeros there. Evaluations of the exact evidence with its gradient, 16 draws of
  affine maps and oriented gradients of 16 × 16 pixels on one core (Intel Xeon, 2.5 GHz): 138 → 66 ms with 50 digits,
  3.2 → 2.0 s with 500; shapes of 100 signals: 1.4 → 0.7 s. Kernels and orbits have none that cost time.
- **Moments and KL by hand**, as functions with a backward pass of their own and products that leave out the zeros of
  the triangular factor, take as long as what autograd makes of them at the two smaller shapes, and 15 ms of 2,450 less
  at the largest: not worth it.
- **Parts of k_fu** on a CPU have 2^22 values. Larger ones take longer, because fresh memory costs as much as a pass
  over it.
- **Precision**: Kuu, its factor and the whitened a are in float64. The gradient of the whitening is in the precision of
  the data. Measured, errors of the gradients stay what they were; only where Kuu is close to singular, that of the
  kernel's variance loses a digit or more (1.6e-5 became 4.5e-4 with a lengthscale of 20).
- **No TF32**: earlier versions ran the large products of sparse training on a GPU in TF32, as the tables of the H200
  still show. At (1500, 64, 3000) they took 6 ms of a step of 31 ms; in single precision they take 29. Default fits are
  exact or climb the collapsed bound, in single precision always, and gained nothing.
- **Fewer pairs for k_ff**: S/2 of the S²/4 pairs would do without bias, but not without noise. With quasi-Monte-Carlo
  groups the mean over all pairs is nearly exact. At (100, 32, 300), four cyclic shifts instead of all raise the
  standard deviation of the bound eightfold and one shift more than a hundredfold, to save 2 to 3 % of a step. All pairs
  stay.
- **No captured graphs**: as one CUDA graph, the gradient at (200, 64, 1000) took 3.4 ms of an H200 in place of 9.7, and
  at (1500, 64, 3000) 30.2 in place of 30.9. The refit of q(u) before it takes several times as long (62 ms with
  averaged inducing variables, below), so that a whole step gains a tenth by estimate. Nothing in a step makes the host
  wait: a failed Cholesky factorisation becomes NaN, and training finds it in the bound.
- **Passes over k_fu** on a GPU cost as much as the products. The squared norms of samples ride along in the product as
  a column, and a column of ones makes the sums that the gradient needs: four passes of twelve less. The rest of what a
  fused kernel for distance, exponential and mean could save is by estimate a twentieth of a large step: not worth a
  second implementation so far.
- **Averaged inducing variables** (`inducing_samples` = P) have (MP)² pairs in Kuu. They are made by tiles of the lower
  triangle, in float64. Where they are many, they are made again for the gradient. When strips were made instead of the
  whole, at M = 2,000, P = 8 on an H200, a step of 54 ms became one of 35, and a refit of q(u) of 116 ms one of 62.
- **Two classes, exactly, on many data**: local parameters and the posterior take turns, each with a factor of the
  covariance and the diagonal of its inverse. With 60,000 digits on an H200 these take 1.7 s and 2.3 s in double
  precision: N³/3 operations each, 43 and 32 of the card's 67 · 10¹² a second. The whole inverse would take twice as
  many operations, and 29 GB more. Anderson mixing settles the turns after 14 to 20 of them there, if all local
  parameters are one to begin with. Every fourth row now predicts those of all, and turns end where one more would
  gain less than 10⁻⁵ nats a row: 10 turns in place of 20 with 2,500 digits within ±180°, 13 in place of 23 with 5,000
  (no orbit, a lengthscale of 6.66 and a variance of 330, as learned with rotations; a CPU). With 60,000 a fit takes
  45 to 71 s instead of 61 to 91 (no orbit), 90 to 103 instead of 128 to 148 (rotations learned; other digits, one
  H200). With 800 and 2,000 digits on a CPU it took 8 turns, where plain ones take 20 and 24, and a fit of 350 rows of
  *breast cancer* 1.0 CPU seconds instead of 1.9.
"""


ACCURACY = """## Time to accuracy

MNIST, 60,000 digits, learned affine maps, by `InvariantGPClassifier` without options but `max_seconds`; the paper ends
at 1.35 %. Seconds are those of `fit`; the first row of a process has some five for the start of CUDA. Today's learner
takes [longer](results.md#mnist-figure-4). `python -m experiments exact-evidence --device cuda`

<!-- table: times -->

{table}

<!-- end -->
"""


def page() -> str:
    """All of it."""
    pages = [markdown(json.loads(path.read_text())) for path in sorted(RESULTS.glob("*.json"))]
    accuracy = ACCURACY.format(table=tables.table("times", harness.RESULTS))
    return "\n".join([HEAD, *pages, accuracy, TAIL])


def write_page() -> Path:
    PAGE.write_text(page(), encoding="utf-8")
    return PAGE
