"""Shapes of models, mainly mixtures of experts: the size of an expert, and the layers with experts.

>>> from ndpsim.workload.models import load_model
>>> model = load_model("deepseek-v2")
>>> model.expert, model.moe_layers, model.dense_layers
(Expert(hidden=5120, intermediate=1536, gated=True), 59, (0,))
>>> model.expert.weight_bytes(bits=16)
47185920
>>> model.attention.kind, model.attention.cached_values, model.vocabulary
('mla', 576, 102400)
>>> model = load_model("gpt-oss-120b")
>>> [kind.title for kind in model.attention_kinds], model.layers_of_kind
(['gqa window of 128', 'gqa'], (18, 18))
"""

from ndpsim.workload.models.attention import Attention, LinearAttention, Network
from ndpsim.workload.models.compressed import CompressedAttention
from ndpsim.workload.models.expert import Expert, Matrix
from ndpsim.workload.models.families import FAMILIES
from ndpsim.workload.models.indexed import Index
from ndpsim.workload.models.reader import load_model, load_moe_model, model_names, parse_shape
from ndpsim.workload.models.residual import Residual
from ndpsim.workload.models.shape import LayerAttention, MixedAttention, MoeShape
