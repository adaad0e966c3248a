"""Results: one JSON file for each kind of hardware, and its tables in Markdown."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import gpytorch
import torch

from orbitgp.saving import container as files

RESULTS = Path(__file__).parent / "results"


def setting(device: torch.device, clock: str) -> dict[str, Any]:
    """Where, when and with what."""
    return {
        "clock": clock,
        "hardware": hardware(device),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gpytorch": gpytorch.__version__,
        "mimalloc_purge_delay": os.environ.get("MIMALLOC_PURGE_DELAY"),
        "tf32": torch.backends.cuda.matmul.allow_tf32 if device.type == "cuda" else None,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _output("git", "describe", "--always", "--dirty", "--exclude=*") or "unknown",
    }


def hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    model = re.search(r"Model name:\s*(.+)", _output("lscpu"))
    name = model[1].strip() if model else platform.machine()
    cores, threads = os.cpu_count(), torch.get_num_threads()
    return f"{name}, {cores} cores" if threads == cores else f"{name}, {threads} of {cores} cores"


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=RESULTS.parent).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def save(results: dict[str, Any], folder: Path = RESULTS) -> None:
    """Write <hardware>.json; parts that were not measured this time stay as they were."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (re.sub(r"[^a-z0-9]+", "-", results["setting"]["hardware"].lower()).strip("-") + ".json")
    before = json.loads(path.read_text()) if path.exists() else {}
    text = json.dumps({**before, **results}, indent=2, ensure_ascii=False) + "\n"
    files.replace(path, lambda beside: beside.write_text(text))


def markdown(results: dict[str, Any]) -> str:
    s = results["setting"]
    lines = [
        f"## {s['hardware']}",
        "",
        f"{s['threads']} threads, torch {s['torch']}, gpytorch {s['gpytorch']}, {s['date']}, commit {s['commit']}. "
        "Rotated 28×28 images, ten outputs, float32 samples, every gradient. Shapes are (minibatch, orbit samples S, "
        "inducing points M). Times are the smallest of several interleaved rounds, in milliseconds; ratios are medians "
        "over the rounds.",
    ]
    if s["clock"] == "cpu":
        lines[-1] += " Measured in CPU time of the process, on a busy machine."
    if s["mimalloc_purge_delay"]:
        lines[-1] += f" MIMALLOC_PURGE_DELAY={s['mimalloc_purge_delay']}."
    if "steps" in results:
        lines += ["", "### One training step", "", *_table(_step_rows(results["steps"]))]
        lines += ["", "### The bare operations", "", *_table(_bare_rows(results["steps"]))]
    if "profiles" in results:
        lines += ["", "### Where the time of a step goes", "", *_table(_profile_rows(results["profiles"]))]
    if "predictions" in results:
        lines += ["", "### Prediction of 1,000 images", "", *_table(_prediction_rows(results["predictions"]))]
    lines += _exact_lines(results.get("exact predictions"))
    if "accuracy" in results:
        a = results["accuracy"]
        lines += ["", f"### Relative errors against plain float64, at {a['shape']}", ""]
        names = list(a["errors"])
        rows = [["", *names], *([key, *(f"{a['errors'][n][key]:.1e}" for n in names)] for key in a["errors"][names[0]])]
        lines += _table(rows)
    if "growth" in results:
        lines += ["", "### Growth of the step: time ~ size^slope", ""]
        rows = [["", "sizes", "ms", "slope"]]
        rows += [
            [
                name,
                ", ".join(map(str, g["sizes"])),
                ", ".join(f"{t:.3g}" for t in g["milliseconds"]),
                f"{g['slope']:.2f}",
            ]
            for name, g in results["growth"].items()
        ]
        lines += _table(rows)
    if "processes" in results:
        found = results["processes"]
        rows = [["", *(f"M = {part['inducing']}" for part in found)]]
        rows += [
            [f"{name}, ms", *(_ms(part["milliseconds"][name]) for part in found)] for name in found[0]["milliseconds"]
        ]
        rows.append(["one process / two processes", *(f"{part['efficiency']:.2f}" for part in found)])
        for i, count in enumerate(("one process", "two processes")):
            rows.append([f"processor time of {count}, ms", *(_ms(part["processor_milliseconds"][i]) for part in found)])
        rows.append(["numbers that each process sends a step", *(f"{part['reduced']:,}" for part in found)])
        rows.append(["2 M² + M·L + parameters", *(f"{part['formula']:,}" for part in found)])
        lines += ["", "### One model on two processes", "", *_table(rows)]
    return "\n".join(lines) + "\n"


def _step_rows(steps: list[dict[str, Any]]) -> list[list[str]]:
    rows = [["", *(step["shape"] for step in steps)]]
    rows.append(["bare GEMM, forward and both backward products", *(_ms(step["gemm"]) for step in steps)])
    rows.append(["sum of the bare operations", *(_ms(step["bare"]) for step in steps)])
    rows.append(["**orbitgp**", *(f"**{_ms(step['milliseconds']['orbitgp'])}**" for step in steps)])
    names = {"orbitgp, torch alone": "orbitgp, torch alone", "straightforward GPyTorch": "straightforward"}
    rows += [[title, *(_ms(step["milliseconds"].get(name)) for step in steps)] for title, name in names.items()]
    for title, key in (
        ("orbitgp / bare operations", "orbitgp / bare"),
        ("orbitgp / bare GEMM", "orbitgp / GEMM"),
        ("orbitgp / torch alone", "orbitgp / torch alone"),
        ("straightforward / orbitgp", "straightforward / orbitgp"),
    ):
        rows.append(
            [title, *(f"{step['ratios'][key]['median']:.2f}" if key in step["ratios"] else "–" for step in steps)]
        )
    for name in ("orbitgp", "straightforward"):
        rows.append([f"peak memory in MB, {name}", *(_ms(step["peak_megabytes"].get(name)) for step in steps)])
    return rows


def _bare_rows(steps: list[dict[str, Any]]) -> list[list[str]]:
    names = [name for name in steps[0]["milliseconds"] if not name.startswith(("orbitgp", "straightforward"))]
    return [["", *(s["shape"] for s in steps)], *([n, *(_ms(s["milliseconds"][n]) for s in steps)] for n in names)]


def _prediction_rows(predictions: list[dict[str, Any]]) -> list[list[str]]:
    names = ("bare GEMM", "orbitgp", "orbitgp, torch alone", "straightforward")
    rows = [["", *(p["shape"] for p in predictions)]]
    rows += [[name, *(_ms(p["milliseconds"].get(name)) for p in predictions)] for name in names]
    for title, key in (("orbitgp / bare GEMM", "orbitgp / GEMM"), ("orbitgp / torch alone", "orbitgp / torch alone")):
        rows.append([title, *(f"{p['ratios'][key]['median']:.2f}" if key in p["ratios"] else "–" for p in predictions)])
    for count in predictions[0]["peak_megabytes"]:
        rows.append(
            [f"peak memory in MB, {int(count):,} images", *(_ms(p["peak_megabytes"].get(count)) for p in predictions)]
        )
    return rows


def _exact_lines(found: dict[str, Any] | None) -> list[str]:
    if found is None:
        return []
    head = "### Prediction by an exact model of {data:,} images, {samples} samples of each".format(**found)
    text = "{images:,} new images. *compact* has {points} points, and changes {changed} labels.".format(**found)
    ratios = {name.split(" / ")[0]: f"{both['median']:.2f}" for name, both in found["ratios"].items()}
    rows = [[name, _ms(ms), ratios.get(name, "1")] for name, ms in found["milliseconds"].items()]
    return ["", head, "", text, "", *_table([["", "ms", "/ bare GEMM"], *rows])]


def _profile_rows(profiles: list[dict[str, Any]]) -> list[list[str]]:
    """Stages or kernels, in the order of the largest shape."""
    rows = [["ms", *(p["shape"] for p in profiles)]]
    for name in profiles[-1]["parts"]:
        title = f"`{name[:60]}`" if "launches" in profiles[-1] else name
        rows.append([title, *(_ms(p["parts"].get(name)) for p in profiles)])
    if "waits" in profiles[0]:
        rows.append(["launches", *(f"{p['launches']:.0f}" for p in profiles)])
        rows.append(["times that the host waits for the device", *(str(len(p["waits"])) for p in profiles)])
    return rows


def _ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _table(rows: list[list[str]]) -> list[str]:
    rows = [row for row in rows if set(row[1:]) != {"–"}]  # what was not measured at any shape
    head, *body = ["| " + " | ".join(row) + " |" for row in rows]
    return [head, "|" + "---|" * len(rows[0]), *body]
