"""Tools for those who develop the simulator: benchmarks, runs of other simulators, and published claims.

Nothing that is simulated imports them.
"""
