"""Saving: one safetensors file for each model, without pickle."""

from orbitgp.saving.container import FORMAT_VERSION, SavedFileError
from orbitgp.saving.objects import register

__all__ = ["FORMAT_VERSION", "SavedFileError", "register"]
