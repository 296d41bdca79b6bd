"""The parts of the energy of every result, compared with each other."""

from __future__ import annotations

import pytest

import ndpsim
from ndpsim.workload.models import Expert

SMALL = Expert(512, 256)
DRAM = {"activate", "read", "write", "refresh", "background", "io"}


def total_of(parts):
    return sum(nj for name, nj in parts.items() if nj is not None and name != "total")


@pytest.fixture(scope="module")
def relayouts():
    return {
        name: ndpsim.simulate_relayout(
            model=SMALL, experts=2, source="localized", target="striped", sets=[f"link.topology={name}"]
        )
        for name in ("ring", "groups")
    }


def test_every_result_has_a_split_that_adds_up(relayouts):
    results = [
        ndpsim.simulate_expert("trimoe", SMALL),
        ndpsim.simulate_expert("edge", SMALL, layout="sharded:3"),
        ndpsim.simulate_expert("cxl", SMALL, bits=3),
        ndpsim.simulate_host_read("trimoe", SMALL),
        ndpsim.simulate_contention("trimoe", SMALL, host_gbps=5.0),
        *relayouts.values(),
        relayouts["ring"].host,
    ]
    for result in results:
        parts = result.energy_nj
        assert set(parts) >= DRAM | {"total"}
        assert parts["total"] == pytest.approx(total_of(parts))
        assert parts["read"] > 0


def test_shards_spend_together_what_one_dimm_does_but_for_background():
    one, three = (ndpsim.simulate_expert("edge", SMALL, layout=f"sharded:{n}").energy_nj for n in (1, 3))
    for name in ("read", "io", "ndp_multiply", "ndp_fifo", "ndp_activation"):
        assert three[name] == pytest.approx(one[name], rel=1e-3)
