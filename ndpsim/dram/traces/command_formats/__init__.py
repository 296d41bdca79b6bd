"""Forms of command traces, one file each; see `ndpsim.dram.traces.command_form`."""
