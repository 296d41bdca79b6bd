"""Azure's LLM inference trace of November 2023, of code completion and of conversations.

Source: Azure/AzurePublicDataset, `AzureLLMInferenceTrace_code.csv` and `_conv.csv` (CC-BY 4.0), described in
"Splitwise" (ISCA 2024). Timestamps have seven decimals and no time zone; lines end in CR LF.
"""

from __future__ import annotations

import re

from ndpsim.workload.requests.azure import read_azure, recognised_by
from ndpsim.workload.requests.recorded import WorkloadFormat

_EXAMPLE = "2023-11-16 18:17:03.9799600"
_TIMESTAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})\.([0-9]{7})")

FORMAT = WorkloadFormat(
    example=f"{_EXAMPLE},4808,10",
    meaning="CSV of Azure's LLM inference trace 2023, columns TIMESTAMP,ContextTokens,GeneratedTokens",
    recognises=recognised_by(_TIMESTAMP),
    read=lambda path, most, sink: read_azure(path, most, sink, _TIMESTAMP, _EXAMPLE),
)
