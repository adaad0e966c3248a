"""The compiled loops (src/orbitgp/_native/loops.c). Where they cannot be built, the package does without them."""

import sys

from setuptools import Extension, setup

native = Extension(
    "orbitgp._native._loops",
    ["src/orbitgp/_native/loops.c"],
    extra_compile_args=["-O3", "-fopenmp", "-std=gnu11"],
    extra_link_args=["-fopenmp"],
    py_limited_api=True,
    optional=True,
)
setup(
    ext_modules=[native] if sys.platform == "linux" else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if sys.platform == "linux" else {},
)
