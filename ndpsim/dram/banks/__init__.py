"""Controllers of devices with units in banks: programs of unit commands, run clock by clock.

`programs` reads a program, `lower` turns a page into integers, `look_ahead` and `in_order` are the two
controllers, and `run` drives them.
"""
