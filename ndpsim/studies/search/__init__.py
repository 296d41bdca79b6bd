"""Search: a sweep whose points are chosen by a sampler, to find the best point or a Pareto front."""
