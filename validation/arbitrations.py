"""Measures what each arbitration costs the NDP units and the host, for docs/host.md.

python validation/arbitrations.py [trimoe] [edge]
"""

from __future__ import annotations

import sys

from ndpsim.config import load_hardware
from ndpsim.dimm.arbitrations import NAMES
from ndpsim.simulate import Session
from ndpsim.workload.models import Expert

BEGIN_NS, END_NS = 20_000.0, 120_000.0
# One token through experts in a queue on every DIMM of a channel: waits for weights, not for multipliers.
MACHINES = {"trimoe": (Expert(2048, 512), 40), "edge": (Expert(2048, 128), 80)}


def measure(hw: str, arbitration: str, gbps: float | str, kind: str) -> dict[str, float]:
    """In the window: GB/s of units and host, the ACTs of the channel, and the host's latency in ns."""
    expert, count = MACHINES[hw]
    session = Session(hw, arbitration=arbitration)
    dimms = len(session.machine.geometry.dimms_of(0))
    for number in range(count * dimms):
        session.expert(expert, 1, number % dimms)
    if gbps:
        for dimm in range(dimms):
            of_each = gbps if gbps == "saturate" else float(gbps) / dimms
            if kind == "host read":
                session.host_read(Expert(2048, 1024), "localized", of_each, dimm=dimm, behind=True)
            else:
                session.host(kind, of_each, dimm=dimm)

    def counted() -> list[float]:
        acts = session.result().commands["ACT"]
        return [sum(session.ndp_bytes), sum(stream.bytes for stream in session.hosts), acts]

    session.run(BEGIN_NS)
    before = counted()
    session.run(END_NS)
    ndp, host, acts = (now - then for then, now in zip(before, counted(), strict=True))
    waits = [stream.read_latency_ns for stream in session.hosts if stream.read_latency_ns]
    window = END_NS - BEGIN_NS
    return {
        "ndp": ndp / window,
        "host": host / window,
        "acts": acts,
        "mean": sum(one["mean"] for one in waits) / max(1, len(waits)),
        "p99": max((one["p99"] for one in waits), default=0.0),
    }


def main() -> None:
    """Print a row for each machine, kind of traffic, rate and arbitration."""
    print("hw kind asked arbitration ndp-slowdown host-GB/s host% extra-ACTs/burst mean-ns p99-ns")
    for hw in sys.argv[1:] or MACHINES:
        hardware = load_hardware(hw)
        burst_bytes, alone = hardware.lane_device().burst_bytes, measure(hw, "host-first", 0, "")
        dimms = len(Session(hw).machine.geometry.dimms_of(0))
        internal = dimms * hardware.lanes * hardware.lane_device().peak_gbps
        for kind in ("host read", "random", "sequential"):
            for gbps in (3.0, 6.0, 10.0, 20.0, "saturate"):
                for arbitration in NAMES:
                    found = measure(hw, arbitration, gbps, kind)
                    bursts = found["host"] * (END_NS - BEGIN_NS) / burst_bytes
                    extra = found["acts"] - alone["acts"] * found["ndp"] / alone["ndp"]
                    slower = alone["ndp"] / found["ndp"]
                    print(
                        f"{hw} {kind.replace(' ', '-')} {gbps} {arbitration} {slower:.3f} "
                        f"{found['host']:.2f} {100 * found['host'] / internal:.1f} {extra / bursts:.2f} "
                        f"{found['mean']:.0f} {found['p99']:.0f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
