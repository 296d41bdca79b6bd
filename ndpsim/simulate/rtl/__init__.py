"""Units as hardware (RTL) in the closed loop with the simulated DRAM; see docs/rtl.md."""
