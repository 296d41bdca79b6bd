"""Other simulators beside ours, when they are installed."""
