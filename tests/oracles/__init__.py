"""What ndpsim computes once more, in plain Python or clock by clock: slow, to be read and compared with."""
