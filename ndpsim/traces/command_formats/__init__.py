"""Forms of command traces, one file each; see `ndpsim.traces.command_form`."""
