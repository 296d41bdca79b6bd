"""Sections of hardware files for units with multipliers: a module for each section, with its name.

``SECTION`` is the class of the keys. The module of the same name in `ndpsim.dimm.units` simulates the unit.
"""
