"""Meanings of colours, equal in all pictures.

The colours of the memory and the units are Okabe and Ito's (https://jfly.uni-koeln.de/color), which
colour-blind readers can distinguish; within a picture, the others differ in lightness as well.
"""

from __future__ import annotations

from matplotlib.colors import to_rgb

#: Axes, text, limits and means.
INK = "#000000"

COLOURS = {
    "read": "#0072B2",
    "write": "#D55E00",
    "read or write": "#555555",
    "refresh": "#E69F00",
    "rows": "#CC79A7",
    "compute": "#009E73",
    "activation unit": "#7A3E00",
    "chip io": "#56B4E9",
    "link": "#F0E442",
    "host": "#332288",
    "idle": "#BBBBBB",
    "gate": "#882255",
    "up": "#C3B1E1",
    "down": "#999933",
    "empty": "#F0F0F0",
    "decode": "#117733",
    "prefill": "#AA4499",
    "hot": "#B2182B",
    "warm": "#F4A582",
    "cold": "#92C5DE",
    "gpu": "#CC66BB",
    "pcie": "#E67300",
    "hidden": "#99DDFF",
    "exposed": "#B01500",
    "everything": "#4477AA",
    "experts": "#CC5522",
}

#: Colours of series that only a legend explains: Okabe and Ito's, the darkest first.
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7A7A7A")

#: The meaning of each component of energy.
ENERGY = {
    "activate": "rows",
    "read": "read",
    "write": "write",
    "refresh": "refresh",
    "background": "idle",
    "I/O": "chip io",
    "NDP units": "compute",
    "link": "link",
    "host": "host",
}


def tint(colour: str, strength: float) -> tuple[float, float, float]:
    """A colour mixed with white; some formats lack transparency. Strength 1 is the colour itself."""
    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(colour))
    return red, green, blue
