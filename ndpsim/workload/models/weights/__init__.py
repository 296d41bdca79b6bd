"""Weight files by name: the block format of each tensor of a model, and the size of the file.

>>> from ndpsim.workload.models.weights import BLOCKS, weight_file
>>> BLOCKS["q4_k"].bits
Fraction(9, 2)
>>> file = weight_file("q4_k_m", "deepseek-v3")
>>> file.bits["gate"], round(float(file.bits["down"]), 3), round(file.bytes / 2**30, 1)
(Fraction(9, 2), 5.46, 376.8)
"""

from ndpsim.workload.models.blocks import BLOCKS, Block
from ndpsim.workload.models.stored import CLASSES, WeightFile
from ndpsim.workload.models.weights.file import OWN, own_weight_file, weight_file, weight_name, weight_names
