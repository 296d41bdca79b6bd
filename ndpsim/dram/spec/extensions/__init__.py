"""Units in banks as data: each module has the commands and rules that it adds to a standard."""
