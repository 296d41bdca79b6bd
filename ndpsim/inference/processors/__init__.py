"""Times of experts, attention and dense parts on GPU and CPU, and the contents of the GPU's memory.

>>> from ndpsim.workload.models import load_model
>>> from ndpsim.inference.processors import load_processors
>>> processors, model = load_processors("trimoe"), load_model("deepseek-v2")
>>> round(processors.gpu.expert_time(model.expert, tokens=256).time_ns)
46913
>>> processors.gpu_memory(model, sequences=512, context=512).kv
'gpu'

An expert's time is the time of the processor alone. Host reads of weights, and copies over PCIe, come from
the cycle-level model. `ExpertTime.holds_weight_read` tells whether a time includes the reading of weights.
"""

from ndpsim.inference.processors.cpu import Cpu
from ndpsim.inference.processors.dense import AttentionTime, DenseTime, operations
from ndpsim.inference.processors.devices import ExpertTime
from ndpsim.inference.processors.gpu import Gpu
from ndpsim.inference.processors.machine import Processors, load_processors
from ndpsim.inference.processors.memory import GpuMemory
from ndpsim.inference.processors.operations import PARTS, Operation, Step
from ndpsim.inference.processors.table import ExpertTable, read_table, table_names
