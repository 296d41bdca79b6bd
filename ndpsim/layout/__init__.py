"""Where weights lie: which burst of which matrix sits in which lane, bank, row and column."""

from ndpsim.layout.localized import LaneShare, LocalizedLayout
from ndpsim.layout.regions import Region, expert_regions

__all__ = ["LAYOUTS", "LaneShare", "LocalizedLayout", "Region", "expert_regions"]

#: Layouts by the name they have on the command line.
LAYOUTS = {"localized": LocalizedLayout}
