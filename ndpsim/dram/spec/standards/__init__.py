"""One file a DRAM standard."""
