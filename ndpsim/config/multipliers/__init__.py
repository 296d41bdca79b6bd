"""What hardware files say of units that multiply, each a module of its name here.

A module calls its keys ``SECTION``; `ndpsim.ndp` has a module of the same name, which simulates the unit.
"""
