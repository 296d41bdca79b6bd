"""Azure's LLM inference trace of May 2024, a week of code completion and one of conversations.

Source: Azure/AzurePublicDataset, `AzureLLMInferenceTrace_code_1week.csv` and `_conv_1week.csv` (CC-BY 4.0),
described in "DynamoLLM" (HPCA 2025). Timestamps have the time zone +00:00, and six decimals, or none where
they are whole seconds.
"""

from __future__ import annotations

import re

from ndpsim.workload.requests.formats.azure_2023 import read_azure, recognised_by
from ndpsim.workload.requests.recorded import WorkloadFormat

_EXAMPLE = "2024-05-10 00:00:00.009930+00:00"
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{6}))?\+00:00"
)

FORMAT = WorkloadFormat(
    example=f"{_EXAMPLE},2162,5",
    meaning="CSV of Azure's LLM inference trace 2024, whose timestamps have a time zone",
    recognises=recognised_by(_TIMESTAMP),
    read=lambda path, most, sink: read_azure(
        path, most, sink, _TIMESTAMP, f"{_EXAMPLE} or 2024-05-12 00:00:00+00:00"
    ),
)
