"""Data as a person has them: files, folders and names, read into arrays.

:class:`ReadOptions` keeps what was decided while reading the training data (columns, colours, sizes), so that new
inputs are read in the same way. Bad input gives one sentence: which file, what is wrong, what to do.
"""

from orbitgp.datasets.files.data import Data, ReadOptions, read_option
from orbitgp.datasets.files.read import NAMES, as_trained, load, load_inputs

__all__ = ["NAMES", "Data", "ReadOptions", "as_trained", "load", "load_inputs", "read_option"]
