"""Whether banks get refresh management (RFM), or a refresh, before they have too many activations."""

from __future__ import annotations

import numpy as np

from ndpsim.audit.case import Breach, Case, Found
from ndpsim.audit.checks import addressed_banks
from ndpsim.audit.kernels import find_unmanaged
from ndpsim.dram.spec.management import Managed


def unmanaged(case: Case, rfm: Managed) -> Found:
    """Find activations of banks whose counter (RAA) is at its maximum (RAAMMT).

    The counter goes up by one with each activation, and down with RFM (by RAAIMT) and with a refresh. An
    activation is a finding if the counter was at its maximum; later ones are not, until it goes down.
    """
    kinds, device = case.kinds, case.device
    bank, reach, stride = addressed_banks(case)
    opens = (kinds.opens == 1) | (kinds.opens == 3)
    change = opens - rfm.threshold * kinds.manages - rfm.by_refresh * kinds.refreshes
    counters, rows = np.zeros(device.banks, dtype=np.int64), np.full((case.limit, 2), -1, dtype=np.int64)
    count = find_unmanaged(case.part.command, bank, change, reach, stride, rfm.maximum, counters, rows)
    first = []
    for index, bank_number in rows[: min(count, case.limit)].tolist():
        group, number = divmod(bank_number % device.banks_per_rank, device.banks_per_group)
        detail = (
            f"bankgroup {group} bank {number} has more than {rfm.maximum} activations (RAAMMT) "
            "that no RFM or refresh took off"
        )
        first.append(Breach(case.origin(index), "refresh management", 0, detail))
    return Found(int(count), first)
