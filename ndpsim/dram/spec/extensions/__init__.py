"""Units in banks as data: each module has the commands and rules that it adds to a standard."""

WRITE = "WR"
"""The request of each page that writes a column, as the host does; units' new tokens are written so."""
