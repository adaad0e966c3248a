"""The application: help, what is loaded when, and ``orbitgp show``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

pytest.importorskip("typer")

from orbitgp.cli.run import Run
from orbitgp.datasets import digits
from tests.cli.calling import call, run


def test_help_shows_orbits_as_they_are_typed() -> None:
    """In Markdown, what stands between two stars is emphasised, and the stars are gone."""
    for command in ("compare", "learn"):
        words = re.sub(r"[│\s]+", " ", call(command, "--help").stdout)
        assert '("affine*deformation")' in words
    assert "gain*offset for signals" in re.sub(r"[│\s]+", " ", call("compare", "--help").stdout)


def test_help_is_there_for_every_command() -> None:
    for command in ("learn", "compare", "advise", "predict", "show", "export", "doctor"):
        result = call(command, "--help")
        assert result.exit_code == 0
        assert f"orbitgp {command}" in result.stdout
    assert "which invariance do the data support?" in call("--help").stdout
    assert call("--version").stdout.startswith("orbitgp ")


def test_without_typer_one_sentence(here: Path) -> None:
    (here / "typer.py").write_text("raise ImportError('not here')")
    process = run("--help", env={"PYTHONPATH": str(here)})
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert out == ""
    assert "pip install 'orbitgp[cli]'" in err
    assert "Traceback" not in err


def test_the_first_line_does_not_wait_for_torch() -> None:
    """Nor does a help page."""
    heavy = {"torch", "sklearn", "gpytorch", "scipy", "matplotlib"}
    code = f"import sys, orbitgp.cli.app; print(*{heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == ""


def test_nothing_is_collected_when_a_command_ends() -> None:
    code = (
        "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count())); from orbitgp.cli import main; main()"
    )
    found = subprocess.run([sys.executable, "-c", code, "--version"], check=True, capture_output=True, text=True)
    assert int(found.stdout.split()[-1]) > 0


def test_threads_sleep_while_they_wait() -> None:
    """OpenMP itself says so when it is loaded, as torch does; what the user has set stays."""
    code = "import os\nfrom orbitgp.cli import main\ntry: main()\nexcept SystemExit: "
    env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | {
        "OMP_DISPLAY_ENV": "verbose"
    }

    def ended(code: str, **given: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, "--version"]
        return subprocess.run(command, env=env | given, capture_output=True, text=True, check=True)

    assert ended(code + "print(os.environ['OMP_WAIT_POLICY'])", OMP_WAIT_POLICY="active").stdout.split()[-1] == "active"
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libgomp" in line}
    if not loaded:
        pytest.skip("this is another OpenMP than that of GNU")
    assert "GOMP_SPINCOUNT = '0'" in ended(code + f"import ctypes; ctypes.CDLL({min(loaded)!r})").stderr


def test_show_says_it_again(learned: tuple[Path, Result]) -> None:
    run, _ = learned
    result = call("show", run)
    assert result.exit_code == 0
    assert json.loads((run / "result.json").read_text())["summary"] in result.stdout
    assert json.loads(call("show", run, "--json").stdout)["orbit"] == "rotation"


def test_show_opens_the_report(learned: tuple[Path, Result], monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = learned
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    assert call("show", run, "--open").exit_code == 0
    assert opened == [(run / "report.html").resolve().as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    result = call("show", run, "--open")
    assert result.exit_code == 1
    assert "report.html by hand" in result.stderr


def test_a_damaged_run_is_one_sentence(learned: tuple[Path, Result], here: Path) -> None:
    run = here / "copy"
    run.mkdir()
    (run / "config.json").write_text("{")
    result = call("show", run)
    assert result.exit_code == 1
    assert "is damaged" in result.stderr
    config = (learned[0] / "config.json").read_text()
    (run / "config.json").write_text(config)
    (run / "model.safetensors").write_bytes((learned[0] / "model.safetensors").read_bytes()[:-100])
    np.save("new.npy", digits().x_test[:2])
    result = call("predict", run, "new.npy")
    assert result.exit_code == 1
    assert len(result.stderr.strip().splitlines()) == 1
    assert "0 of 12 steps" in call("show", run).stdout


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "3", '{"command": 3}', '{"command": "learn"}'])
def test_a_configuration_that_is_none_is_one_sentence(here: Path, text: str) -> None:
    (here / "run").mkdir()
    (here / "run/config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json is damaged, or it was changed .*\.$"):
        Run.open(here / "run")


def test_a_configuration_of_a_later_version_is_one_sentence(learned: tuple[Path, Result], here: Path) -> None:
    config = Run.open(learned[0]).config
    Run(here, {**config, "settings": {**config["settings"], "later": 1}}).claimed()
    with pytest.raises(ValueError, match=r"has settings of another version of orbitgp: open it with that one\.$"):
        Run.open(here)


def test_a_terminal_without_some_signs_gets_the_rest(learned: tuple[Path, Result]) -> None:
    """As under a code page of Windows without ± and °."""
    process = run("show", str(learned[0]), env={"PYTHONIOENCODING": "iso8859_5"})
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "nats" in out
    assert "?" in out
