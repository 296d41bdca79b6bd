"""Search: a sweep whose points a sampler chooses, for the best of one metric or the front of several."""
