"""The page on PyPI is the README, whose links and pictures lead to the home of the project."""

import re
from pathlib import Path

from setuptools import setup

HOME = "https://github.com/orbitgp/orbitgp"

text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
text = re.sub(r'(src|srcset)="(?!https?:)', rf'\1="{HOME}/raw/main/', text)
text = re.sub(r"\]\((?!https?:)", f"]({HOME}/blob/main/", text)
setup(long_description=text, long_description_content_type="text/markdown")
