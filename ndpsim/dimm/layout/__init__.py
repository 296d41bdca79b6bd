"""Locations of weights: the DIMM, lane, bank, row and burst of every bit of a matrix.

`formats` defines the bits of weights, scales and zero points, and slices of weights. `interleaving` puts the
rows of an expert's matrices into the order of reading, and distributes their bursts over lanes. `layouts`
does this for slices of an expert on the DIMMs of a machine (`geometry`), `tiled` for systolic arrays; `named`
makes layouts by name. `moves` lists the bits that move between two layouts.
"""

from ndpsim.dimm.layout.formats import (
    MATRICES,
    PADDING,
    SCALE,
    WEIGHT,
    ZERO_POINT,
    ExpertFormat,
    ExpertWeights,
    WeightFormat,
    expert_format,
)
from ndpsim.dimm.layout.interleaving import Address, Geometry, Interleaving, LaneShare, Region, expert_regions
from ndpsim.dimm.layout.layouts import (
    BurstPlaces,
    Layout,
    localized,
    make_layout,
    moves,
    parse_layout,
    sharded,
    striped,
)
from ndpsim.dimm.layout.tiled import TiledInterleaving, TiledLayout, Tiles
