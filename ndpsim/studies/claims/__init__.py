"""Claims of papers as data: the published figure, the runs for the simulated figure, and the tolerance."""
