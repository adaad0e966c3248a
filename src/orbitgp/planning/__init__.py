"""Planning: how a fit will go, from sizes, device, memory and options, before anything is learned.

:mod:`orbitgp.planning.plan` decides; the other modules know what things cost. No other layer asks what can be afforded.
"""
