"""Sections of hardware files for units with multipliers, each a module of its name here.

A module calls its keys ``SECTION``; `ndpsim.ndp` has a module of the same name, which simulates the unit.
"""
