"""Why a value that a hardware file leaves out is what it is, for every key that may be left out."""

from __future__ import annotations

from ndpsim.config.origins import KeyPath, dotted

_RAMULATOR = "as the controller of Ramulator 2.1 that the reference traces are from"
_ONE = "assumption: the least there can be"
_UNKNOWN = "not known, and left out of the energy by name"
_UNUSED = "not given, and used by no simulation"
_NO_TIMES = "not given, so that there are no times of this processor"
_NO_PART = "none named: the file gives every value itself"
_OR_FITTED = "; with gpu.family, what was fitted"
_FITTED = "not given: that of gpu.family, if there is one; else there are no times of this processor"
_NO_MORE = f"assumption: compute or memory time, no more{_OR_FITTED}"
_ROOFLINE = "none given: the roofline says how long an expert takes"

# By dotted key, by section with a dot behind it, or by the last key where several units share it.
_REASONS = {
    "title": "none given; the name stands for it",
    "paper": "none given",
    "dram.rules": "the standard's; the reference's are there to compare commands with it",
    "dram.mapper": (
        "assumption: a mapping of Ramulator 2.1 that leaves a stream in its rows; for requests by address, "
        "not for weights, which layouts place"
    ),
    "dram.scheduler": _RAMULATOR,
    "dram.row_policy": _RAMULATOR,
    "dram.row_cap": "as in Ramulator 2.1; used by row_policy: closed-cap only",
    "dram.refresh": "the normal refresh mode of DDR4 and DDR5 (JESD79-4, JESD79-5)",
    "dram.read_buffer": _RAMULATOR,
    "dram.write_buffer": _RAMULATOR,
    "dram.wck": "assumption: the data clock stops when nothing is read or written, which saves power",
    "dram.power.": "as in the data sheet that is known of the DRAM, if there is one",
    "dram.power.scaled_from_mtps": "not scaled: only a data sheet of the DRAM's own data rate counts",
    "dimm.count": _ONE,
    "dimm.ranks": _ONE,
    "dimm.subchannels": f"{_ONE}; a DDR5 DIMM has two",
    "dimm.command_bus": (
        "assumption: every rank is read on its own, as the papers' bandwidths ask, with pins of its own"
    ),
    "host.part": _NO_PART,
    "host.channels": _ONE,
    "host.memory.ranks": _ONE,
    "host.mapper": (
        "assumption: consecutive bursts are in different bank groups and ranks, as in servers; weights are "
        "as their layouts say"
    ),
    "host.cpu_compute_efficiency": "not given: fitted by cpu_isa (validation/cpu.md); without it, no times",
    "host.cpu_added_tokens": "assumption: time grows with the tokens from the first",
    "host.cpu_read_gbps": "assumption: the CPU reads as fast as the channels carry",
    "host.cpu_read_share": "not given: fitted by cpu_family (validation/cpu.md), else all of it",
    "host.cpu_expert_overhead_us": "assumption: an expert takes its compute or its memory time, no more",
    "host.cpu_layer_overhead_us": "assumption: the CPU begins as soon as activations have arrived",
    "host.cpu_sockets": _ONE,
    "host.cpu_sockets_most": "not given: as many as cpu_sockets says",
    "host.cpu_cores": "not given: cpu_tflops are of any number of threads",
    "host.cpu_clock_ghz": "not given: cpu_tflops says the peak",
    "host.cpu_isa": "not given: cpu_tflops says the peak",
    "host.cpu_family": "not given: no fitted rate of reading",
    "host.cpu_memory_channels": "not given: as many as host.channels says",
    "host.cpu_memory_mtps": "not given: any rate of the DRAM",
    "host.cpu_memory_mtps_2dpc": "not given: as with one DIMM a channel",
    "host.cpu_fabric_gbps": "assumption: the fabric carries all that the channels do",
    "host.cpu_threads": "not given: the most that were measured",
    "host.cpu_expert_times": _ROOFLINE,
    "host.measured_power": _UNKNOWN,
    "host.": _UNUSED,
    "gpu.compute_efficiency": _FITTED,
    "gpu.attention_efficiency": _FITTED,
    "gpu.memory_efficiency": _FITTED,
    "gpu.expert_overhead_us": _NO_MORE,
    "gpu.kernel_overhead_us": _NO_MORE,
    "gpu.family": "not given: nothing fitted stands for keys that are not given",
    "gpu.count": _ONE,
    "gpu.link_gbps": "assumption: GPUs exchange over PCIe, at gpu.pcie_gbps",
    "gpu.link_latency_us": (
        "assumption: as LLMServingSim 2 has it for two cards on PCIe (casys-kaist/LLMServingSim @5daddb2)"
    ),
    "gpu.fused_efficiency": "not given: that of gpu.compute_efficiency",
    "gpu.roofline_power": f"assumption: reading and computing overlap in full{_OR_FITTED}",
    "gpu.tile_tokens": f"assumption: no tile is part empty{_OR_FITTED}",
    "gpu.expert_calls": "assumption: each expert is launched by itself, as TriMoE's equation 1 has it",
    "gpu.call_overhead_us": f"assumption: a call takes as long as its experts, no more{_OR_FITTED}",
    "gpu.slice_us": _NO_MORE,
    "gpu.attention_overhead_us": "not given: that of gpu.kernel_overhead_us",
    "gpu.expert_times": _ROOFLINE,
    "gpu.reserved_gb": "assumption: all of the memory is there for the model",
    "gpu.expert_buffers": "assumption: one expert computes while the next arrives",
    "link.group_dimms": f"{_ONE}; used by topology groups only",
    "link.host_latency_ns": "assumption: no latency but that of the wires; used by topology groups only",
    "cxl.copy_engines": _ONE,
    "copy_overhead_us": "assumption: a copy takes as long as its packets, no more",
    "ndp.published.": "not published; a cross-check, and used by no simulation",
    "part": _NO_PART,
    "pj_per_bit": _UNKNOWN,
    "pj_per_byte": _UNKNOWN,
    "product_pj": _UNKNOWN,
    "buffer_pj_per_byte": _UNKNOWN,
    "fifo_pj_per_byte": _UNKNOWN,
    "value_pj": _UNKNOWN,
    "static_mw": _UNKNOWN,
    "area_mm2": _UNUSED,
}


def default_reason(path: KeyPath) -> str:
    """The source of the default at `path`, or what it assumes.

    Raises:
        KeyError: nothing is known of such a key.
    """
    for key in (dotted(path), f"{dotted(path[:-1])}.", path[-1]):
        if key in _REASONS:
            return _REASONS[key]
    raise KeyError(dotted(path))
