"""Orbits of signals: warps, which move points in time, and what changes values, resolution and order."""
