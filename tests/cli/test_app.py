"""The application: help, and what is loaded when."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytest.importorskip("typer")

from tests.cli.calling import call, run


def test_help_shows_orbits_as_they_are_typed():
    """In Markdown, what stands between two stars is emphasised, and the stars are gone."""
    for command in ("compare", "learn"):
        words = re.sub(r"[│\s]+", " ", call(command, "--help").stdout)
        assert '("affine*deformation")' in words
    assert "gain*offset for signals" in re.sub(r"[│\s]+", " ", call("compare", "--help").stdout)


def test_help_is_there_for_every_command():
    for command in ("learn", "compare", "predict", "show"):
        result = call(command, "--help")
        assert result.exit_code == 0
        assert f"orbitgp {command}" in result.stdout
    assert "which invariance do the data support?" in call("--help").stdout
    assert call("--version").stdout.startswith("orbitgp ")


def test_without_typer_one_sentence(here):
    (here / "typer.py").write_text("raise ImportError('not here')")
    process = run("--help", env={"PYTHONPATH": str(here)})
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert out == ""
    assert "pip install 'orbitgp[cli]'" in err
    assert "Traceback" not in err


def test_the_first_line_does_not_wait_for_torch():
    """Nor do a help page and the completion of the shell."""
    code = "import sys, orbitgp.cli.app; print(*{'torch', 'sklearn', 'gpytorch', 'scipy', 'matplotlib'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == ""
