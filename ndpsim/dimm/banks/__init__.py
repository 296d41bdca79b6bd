"""Programs of units in banks from operands: which element lies in which bank, and the requests in order.

Each module has the layouts of an extension: `gemv`, and `attention` where the units have one.
"""
