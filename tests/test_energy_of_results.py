"""The parts of the energy of every result, compared with each other."""

from __future__ import annotations

import pytest

import ndpsim
from ndpsim.moe import Expert

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


def test_links_spend_by_the_bytes_on_their_wires(relayouts):
    result = relayouts["ring"]
    carried_gb_s = 25 * sum(result.link_busy.values())  # mean, over all wires
    assert result.energy_nj["link"] == pytest.approx(
        carried_gb_s * result.time_ns * 8 * 1.17 / 1000, rel=1e-6
    )
    assert "host" not in result.energy_nj
    assert relayouts["groups"].energy_nj["host"] > 0


def test_a_relayout_reads_and_writes_every_burst(relayouts):
    # Equal bursts cost the same for every reader; the units write them as well.
    result, alone = relayouts["ring"], ndpsim.simulate_expert("trimoe", SMALL)
    each = alone.energy_nj["read"] / alone.commands["RD"]
    assert result.energy_nj["read"] == pytest.approx(each * result.commands["RD"])
    assert result.commands["RD"] == 2 * alone.commands["RD"]
    assert result.energy_nj["write"] > 0
    passed = 2 * result.read_bytes
    assert result.energy_nj["ndp_relayout"] == pytest.approx(2.125 * passed / 1000)


def test_shards_spend_together_what_one_dimm_does_but_for_background():
    one, three = (ndpsim.simulate_expert("edge", SMALL, layout=f"sharded:{n}").energy_nj for n in (1, 3))
    for name in ("read", "io", "ndp_multiply", "ndp_fifo", "ndp_activation"):
        assert three[name] == pytest.approx(one[name], rel=1e-3)
