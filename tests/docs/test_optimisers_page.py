"""The examples with Ax and BayBE, where these are installed: their loops run, and their models have the symmetry.

They run in a process of their own, where nothing checks shapes: Ax asks the model for the names of its arguments.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.docs.shown import DOCS

PAGE = (DOCS / "how-to" / "optimisers.md").read_text(encoding="utf-8")

AX = """
here, moved = client.predict([{"a": 0.1, "b": 0.3, "c": 0.7}, {"a": 0.3, "b": 0.7, "c": 0.1}])
assert abs(here["y"][0] - moved["y"][0]) < 1e-6
assert len(client.summarize()) == 9
"""

BAYBE = """
assert len(campaign.measurements) == 6
assert isinstance(surrogate.model, InvariantGPModel)
made = GaussianProcessSurrogate(kernel)
made.fit(space, campaign.objective, campaign.measurements)
here = torch.rand(5, 3, dtype=torch.float64)
first, second = (made.to_botorch().posterior(x).mean for x in (here, here[:, [1, 2, 0]]))
torch.testing.assert_close(first, second)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("title", "package", "checks"), [("Ax", "ax", AX), ("BayBE", "baybe", BAYBE)])
def test_a_loop_runs(title: str, package: str, checks: str) -> None:
    pytest.importorskip(package, reason=f"{title} is no dependency")
    first, second, *_ = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    (example,) = re.findall(
        r"```py\n(.*?)```", PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0], flags=re.DOTALL
    )
    done = subprocess.run(
        [sys.executable, "-c", first + second + example + checks],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
