"""Data as a person has them: files, folders and names, read into arrays.

What was decided while reading the training data (columns, colours, sizes) is kept in a :class:`Reading`, so that new inputs are
read in just the same way. Bad input gives one sentence: which file, what is wrong, what to do.
"""

from orbitgp.datasets.files.data import Data, Inputs, LoadingError, Reading
from orbitgp.datasets.files.read import NAMES, load, load_inputs

__all__ = ["NAMES", "Data", "Inputs", "LoadingError", "Reading", "load", "load_inputs"]
