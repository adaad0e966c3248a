"""``orbitgp doctor``: versions, the device, its speed, and what is wrong."""

from __future__ import annotations

import importlib.metadata as metadata
import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("typer")

from orbitgp.cli import doctor
from tests.cli.calling import call

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a plan's speed and much memory, whatever else runs on this one."""
    monkeypatch.setattr(doctor, "measured_speed", lambda device, dtype: 50e9)
    monkeypatch.setattr("orbitgp.machine.free_memory", lambda device: 8e9)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What the packages say of themselves: requirements, and versions."""

    def install(requirements: list[str], **versions: str) -> None:
        def version(name: str) -> str:
            if name not in versions:
                raise metadata.PackageNotFoundError(name)
            return versions[name]

        made = SimpleNamespace(
            requires=lambda _: requirements, version=version, PackageNotFoundError=metadata.PackageNotFoundError
        )
        monkeypatch.setattr(doctor, "metadata", made)

    return install


def test_a_healthy_machine(installed: Callable[..., Any]) -> None:
    installed(["torch>=2.6"], torch="2.10.1+cpu")
    result = call("doctor")
    assert result.exit_code == 0, result.output
    assert re.search(r"torch +2\.10\.1\+cpu\n", result.stdout)
    assert "8.0 GB" in result.stdout
    assert "50 and 50 billion operations a second" in result.stdout
    assert result.stdout.endswith("All is well.\n")


def test_versions_are_those_of_the_packages() -> None:
    lines = dict(line.split(maxsplit=1) for line in call("doctor").stdout.splitlines() if line.startswith("  "))
    for name in ("torch", "gpytorch", "scipy", "typer"):
        assert lines[name] == metadata.version(name)


def test_old_and_missing_packages_are_named_with_the_remedy(installed: Callable[..., Any]) -> None:
    needed = ["torch>=2.6", "scipy>=1.15", 'pandas>=3.0; extra == "tables"', 'pytest>=8.3; extra == "dev"']
    installed(needed, torch="2.5.1")
    out = call("doctor").stdout
    assert "warning: torch 2.5.1 is older than 2.6: pip install -U torch.\n" in out
    assert "warning: scipy is missing: pip install scipy.\n" in out
    assert "not installed: pip install 'orbitgp[tables]'\n" in out  # nothing is wrong with that
    assert out.count("warning") == 2
    assert "pytest" not in out
    assert "All is well" not in out


def test_a_slow_machine_with_little_memory(monkeypatch: pytest.MonkeyPatch, installed: Callable[..., Any]) -> None:
    installed([])
    monkeypatch.setattr(doctor, "measured_speed", lambda device, dtype: 10e9 if dtype == torch.float32 else 16e9)
    monkeypatch.setattr("orbitgp.machine.free_memory", lambda device: 5e8)
    out = call("doctor", "--device", "cpu").stdout
    assert "warning: fits take about 4 times as long as plans say" in out  # 40 billion in single precision
    assert "warning: 0.5 GB of memory are free" in out


def test_a_driver_without_a_gpu_in_torch(monkeypatch: pytest.MonkeyPatch, installed: Callable[..., Any]) -> None:
    installed([])
    monkeypatch.setattr("orbitgp.cli.doctor.shutil.which", lambda name: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "warning: there is an NVIDIA driver, but torch sees no GPU" in call("doctor").stdout


def test_a_device_that_is_not_there() -> None:
    result = call("doctor", "--device", "gpu")
    assert result.exit_code == 1
    assert "device 'gpu' cannot be used" in result.stderr


def test_the_speed_is_that_of_a_product_of_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    a = torch.rand(1024, 1024)
    times = []
    for _ in range(10):
        start = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - start)
    by_hand = 2 * 1024**3 / min(times)
    assert by_hand / 20 < doctor.measured_speed(CPU, torch.float32) < 20 * by_hand  # others use the machine, too
