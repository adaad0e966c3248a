"""Orbits of images: warps, which move points, and what changes thickness and intensity."""
