"""How long a GPU and a CPU take for experts, attention and dense parts, and what fits the memory of the
GPU.

>>> from ndpsim.moe import load_model
>>> from ndpsim.processors import load_processors
>>> processors, model = load_processors("trimoe"), load_model("deepseek-v2")
>>> round(processors.gpu.expert_time(model.expert, tokens=256).time_ns)
46913
>>> processors.gpu_memory(model, sequences=512, context=512).kv
'gpu'

An expert's time is that of the processor alone. The host's reading of weights and their way over PCIe come
from the cycle-level model: `ExpertTime.holds_weight_read` says whether a time has the reading of weights in
it.
"""

from ndpsim.processors.cpu import Cpu
from ndpsim.processors.dense import AttentionTime, DenseTime, operations
from ndpsim.processors.devices import ExpertTime
from ndpsim.processors.gpu import Gpu
from ndpsim.processors.machine import Processors, load_processors
from ndpsim.processors.memory import GpuMemory
from ndpsim.processors.operations import PARTS, Operation, Step
from ndpsim.processors.table import ExpertTable, read_table, table_names
