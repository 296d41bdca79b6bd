"""Many runs: sweeps of a command, and the search for the best of them."""
