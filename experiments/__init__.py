"""Experiments: the figures and tables of the paper, each a command."""
