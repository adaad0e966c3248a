"""Gram matrices over the symmetric groups S_3 to S_6: one sum, the double sum, and the package ``invariantkernels``.

    python -m benchmarks.groups [--points 300] [--largest 6]

Each entry of K_f of an isotropic kernel is a mean over n! elements. Times are CPU seconds, for the matrix alone and
with its gradient in the lengthscale. Each is measured in a process of its own. Memory is the peak of that process, less
the memory of its modules. ``exact inference`` is the matrix that ``InvariantGPRegressor`` computes. The package is
compared if it is installed (``pip install invariantkernels``). Ten coordinates have 3,628,800 orders, too many to
enumerate: 64 of them are drawn.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from importlib.util import find_spec

import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor

from orbitgp import InvariantKernel
from orbitgp.inference.exact import ExactGP
from orbitgp.orbits import Permutation


def one_sum(kernel: Kernel, x: Tensor) -> Tensor:
    return InvariantKernel(kernel, Permutation.all(x.shape[1]), single_sum=True)(x).to_dense()


def double_sum(kernel: Kernel, x: Tensor) -> Tensor:
    return InvariantKernel(kernel, Permutation.all(x.shape[1]), single_sum=False)(x).to_dense()


def exact_inference(kernel: Kernel, x: Tensor) -> Tensor:
    from orbitgp.inference.orbit_gram import gram

    model = ExactGP(kernel, Permutation.all(x.shape[1]), x, num_samples=64 if x.shape[1] > 7 else None)
    return gram(model.vectors, model.seen_and_means(x)[0])


def other_package(kernel: Kernel, x: Tensor) -> Tensor:
    from invariantkernels import InvariantKernel as Other
    from invariantkernels import permutation_group

    return Other(kernel, permutation_group, is_isotropic=True)(x).to_dense()


def measure(method: str, points: int, size: int, gradient: bool) -> tuple[float, float, float]:
    """CPU seconds, MiB above those of the loaded modules, and the mean of the matrix."""
    torch.manual_seed(0)
    x, kernel = torch.rand(points, size, dtype=torch.float64), RBFKernel().double()
    compute: Callable[[Kernel, Tensor], Tensor] = globals()[method]
    compute(kernel, x[:5])
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with torch.set_grad_enabled(gradient):
        gram = compute(kernel, x)
        if gradient:
            gram.square().sum().backward()
    seconds = time.process_time() - start
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, float(gram.detach().mean())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.groups", description="Gram matrices over S_3 to S_6.")
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--largest", type=int, default=6)
    args = parser.parse_args()
    methods = ["one_sum", "exact_inference", *(["other_package"] if find_spec("invariantkernels") else [])]
    spawn = multiprocessing.get_context("spawn")
    print(
        "| group | method | seconds | MiB | with gradient, seconds | MiB | mean of K_f |\n|---|---|---|---|---|---|---|"
    )
    for size in (*range(3, args.largest + 1), 10):
        small = ["double_sum"] if size <= 4 else []
        for method in ["exact_inference"] if size > 7 else [*methods, *small]:
            found = []
            for gradient in (False, True):
                with spawn.Pool(1) as pool:
                    found.append(pool.apply(measure, (method, args.points, size, gradient)))
            (seconds, memory, mean), (slower, more, _) = found
            name = method.replace("_", " ")
            print(
                f"| S_{size} | {name} | {seconds:.2f} | {memory:.0f} | {slower:.2f} | {more:.0f} | {mean:.12f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
