"""``orbitgp doctor``: what is installed, which device computes, how much memory is free, and whether it is fast.

The speed is that of a product of matrices. Plans assume a nominal speed: a machine with half of it takes twice as long.
"""

from __future__ import annotations

import importlib.metadata as metadata
import re
import shutil
from collections.abc import Iterator
from platform import machine, python_version, system
from typing import TYPE_CHECKING, Annotated

import typer

from orbitgp.cli.results import print_line

if TYPE_CHECKING:
    import torch

_REQUIREMENT = re.compile(r"""([\w-]+)>=([\d.]+)(?:; extra == ["'](plot|cli|tables)["'])?$""")


def doctor(
    device: Annotated[str | None, typer.Option(metavar="NAME", help="cpu or cuda; cuda where there is one.")] = None,
) -> None:
    """Show what is installed, which device computes, and whether it is fast.

    Example:

        orbitgp doctor
    """
    import torch

    from orbitgp import __version__
    from orbitgp.estimators.validation import usable_device

    print_line("orbitgp", f"{__version__}, Python {python_version()}, {system()} {machine()}")
    where = usable_device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    problems = [*_packages(), *_device(where)]
    typer.echo("\n".join(f"warning: {problem}." for problem in problems) or "All is well.")


def _packages() -> Iterator[str]:
    """Print the packages that orbitgp needs or can use, and yield what is wrong with them."""
    try:
        needed = metadata.requires("orbitgp") or []
    except metadata.PackageNotFoundError:
        needed = []
        yield "orbitgp is not installed, so what it needs is not known: pip install orbitgp"
    found = {match[1]: match.groups() for match in map(_REQUIREMENT.match, needed) if match}
    for name, least, extra in found.values():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            print_line(name, f"not installed: pip install 'orbitgp[{extra}]'" if extra else "not installed")
            if not extra:
                yield f"{name} is missing: pip install {name}"
            continue
        print_line(name, version)
        have, need = (list(map(int, re.findall(r"\d+", text.partition("+")[0]))) for text in (version, least))
        if have < need:
            yield f"{name} {version} is older than {least}: pip install -U {name}"


def _device(device: torch.device) -> Iterator[str]:
    """Print what the device is and what it can do, and yield what is wrong with it."""
    import torch

    from orbitgp.machine import free_memory
    from orbitgp.planning.cost import nominal_speed

    gpu = device.type == "cuda"
    print_line("device", torch.cuda.get_device_name(device) if gpu else f"{device}, {torch.get_num_threads()} threads")
    if not gpu and shutil.which("nvidia-smi") and not torch.cuda.is_available():
        yield "there is an NVIDIA driver, but torch sees no GPU: install a build of torch for its version of CUDA"
    if (memory := free_memory(device)) < 1e9:
        yield f"{memory / 1e9:.1f} GB of memory are free, so large data go in small parts"
    nominal = nominal_speed(device)
    speeds = measured_speed(device, torch.float32), measured_speed(device, torch.float64)
    measured, planned = (" and ".join(f"{speed / 1e9:,.0f}" for speed in both) for both in (speeds, nominal))
    print_line("free memory", f"{memory / 1e9:.1f} GB")
    print_line("speed", f"{measured} billion operations a second, single and double precision; plans assume {planned}")
    times = max(plan / speed for plan, speed in zip(nominal, speeds, strict=True))
    if times > 2:
        yield f"fits take about {times:.0f} times as long as plans say: the device is slow, or other programs use it"


def measured_speed(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of a product of matrices, in the best of some trials."""
    import torch
    from torch.utils.benchmark import Timer

    size = 8192 if device.type == "cuda" else 1024
    a = torch.rand(size, size, dtype=dtype, device=device)
    timer = Timer("a @ a", globals={"a": a}, num_threads=torch.get_num_threads())
    return float(2 * size**3 / min(timer.timeit(1).median for _ in range(10)))
