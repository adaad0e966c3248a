"""Saving: one safetensors file for each model, without pickle."""

from orbitgp.saving import kernels, ours
from orbitgp.saving.container import FORMAT_VERSION, SavedFileError
from orbitgp.saving.estimator import load_estimator, save_estimator
from orbitgp.saving.registry import register

__all__ = ["FORMAT_VERSION", "SavedFileError", "kernels", "load_estimator", "ours", "register", "save_estimator"]
