"""The reason for each default: a source or an assumption, for every key that a file may leave out."""

from __future__ import annotations

from ndpsim.config.origins import KeyPath, dotted

_RAMULATOR = "as the controller of Ramulator 2.1 that made the reference traces"
_ONE = "assumption: the minimum"
_UNKNOWN = "not known; the total energy names it as missing"
_UNUSED = "not given; no simulation uses it"

_NO_PART = "no part; the file gives every value"
_OR_FITTED = "; with gpu.family, its fitted value"
_FITTED = "not given: the fitted value of gpu.family; without gpu.family, times are not known"
_NO_MORE = f"assumption: no overhead beyond compute or memory time{_OR_FITTED}"
_ROOFLINE = "none given: the roofline gives the time of an expert"

# By dotted key, by section followed by a dot, or by the last key if several units share it.
_REASONS = {
    "title": "none given; the name is used instead",
    "paper": "none given",
    "dram.rules": "the rules of the standard; reference is for comparisons of commands with Ramulator 2.1",
    "dram.organisation.": "the size of the organisation preset",
    "dram.mapper": (
        "assumption: a mapping of Ramulator 2.1 that keeps a stream in open rows; only for requests by "
        "address, because layouts place weights"
    ),
    "dram.scheduler": _RAMULATOR,
    "dram.row_policy": _RAMULATOR,
    "dram.row_cap": "as in Ramulator 2.1; only row_policy closed-cap uses it",
    "dram.refresh": "the normal refresh mode of DDR4 and DDR5 (JESD79-4, JESD79-5)",
    "dram.refresh_control": "a choice of the controller: as the rules, own-bank or reference",
    "dram.read_buffer": _RAMULATOR,
    "dram.write_buffer": _RAMULATOR,
    "dram.rfm": "the standards ask for RFM only where a register of the device says so",
    "dram.rfm_threshold": "as the page of the standard says (RAAIMT)",
    "dram.wck": "assumption: the data clock stops without reads or writes, which saves power",
    "dram.rck": "as in Ramulator 2.1: the read clock always runs",
    "dram.rck_idle": "as in Ramulator 2.1; only a read clock that stops uses it",
    "dram.power.": "the value of the data sheet of this DRAM, if it is known",
    "dram.power.scaled_from_mtps": "not scaled: only a data sheet for the DRAM's own data rate is used",
    "dimm.count": _ONE,
    "dimm.ranks": _ONE,
    "dimm.subchannels": f"{_ONE}; a DDR5 DIMM has two",
    "dimm.command_bus": (
        "assumption: every rank has pins of its own, because the bandwidths in the papers need them"
    ),
    "host.part": _NO_PART,
    "host.channels": _ONE,
    "host.memory.ranks": _ONE,
    "host.mapper": (
        "assumption: consecutive bursts are in different bank groups and ranks, as in servers; layouts place "
        "weights"
    ),
    "host.cpu_compute_efficiency": (
        "not given: the fitted value of cpu_isa (validation/cpu.md); without cpu_isa, times are not known"
    ),
    "host.cpu_added_tokens": "assumption: the time is proportional to the number of tokens",
    "host.cpu_read_gbps": "assumption: the CPU reads at the rate of the channels",
    "host.cpu_read_share": (
        "not given: the fitted value of cpu_family (validation/cpu.md); without cpu_family, 1"
    ),
    "host.cpu_expert_overhead_us": "assumption: no overhead beyond compute or memory time",
    "host.cpu_layer_overhead_us": "assumption: the CPU begins as soon as activations have arrived",
    "host.cpu_sockets": _ONE,
    "host.cpu_sockets_most": "not given: the value of cpu_sockets",
    "host.cpu_cores": "not given: cpu_tflops is the peak for any number of threads",
    "host.cpu_clock_ghz": "not given: cpu_tflops is the peak",
    "host.cpu_isa": "not given: cpu_tflops is the peak",
    "host.cpu_family": "not given: no fitted read rate",
    "host.cpu_memory_channels": "not given: the value of host.channels",
    "host.cpu_memory_mtps": "not given: no limit on the rate of the DRAM",
    "host.cpu_memory_mtps_2dpc": "not given: the value of cpu_memory_mtps",
    "host.cpu_fabric_gbps": "assumption: the fabric is as fast as the channels",
    "host.cpu_threads": "not given: the largest measured number of threads",
    "host.cpu_expert_times": _ROOFLINE,
    "host.measured_power": _UNKNOWN,
    "host.": _UNUSED,
    "gpu.compute_efficiency": _FITTED,
    "gpu.attention_efficiency": _FITTED,
    "gpu.memory_efficiency": _FITTED,
    "gpu.expert_overhead_us": _NO_MORE,
    "gpu.kernel_overhead_us": _NO_MORE,
    "gpu.family": "not given: keys that are not given have no fitted values",
    "gpu.count": _ONE,
    "gpu.link_gbps": "assumption: GPUs exchange over PCIe, at gpu.pcie_gbps",
    "gpu.link_latency_us": (
        "assumption: the value of LLMServingSim 2 for two cards on PCIe (casys-kaist/LLMServingSim @5daddb2)"
    ),
    "gpu.fused_efficiency": "not given: the value of gpu.compute_efficiency",
    "gpu.roofline_power": f"assumption: reading and computing overlap completely{_OR_FITTED}",
    "gpu.tile_tokens": f"assumption: no rounding to tiles{_OR_FITTED}",
    "gpu.expert_calls": "assumption: one launch for each expert, as in TriMoE's equation 1",
    "gpu.call_overhead_us": f"assumption: a call takes as long as its experts{_OR_FITTED}",
    "gpu.slice_us": _NO_MORE,
    "gpu.attention_overhead_us": "not given: the value of gpu.kernel_overhead_us",
    "gpu.expert_times": _ROOFLINE,
    "gpu.reserved_gb": "assumption: the model can use all of the memory",
    "gpu.expert_buffers": "assumption: one expert computes while the next arrives",
    "link.group_dimms": f"{_ONE}; only topology groups uses it",
    "link.host_latency_ns": "assumption: no latency except that of the wires; only topology groups uses it",
    "cxl.copy_engines": _ONE,
    "banks.count": _ONE,
    "banks.level": "the place in the file of the device",
    "banks.experts": "assumption: the devices compute attention",
    "banks.link_gbps": "not given: the devices are on the GPU's link to the host",
    "banks.link_latency_ns": "assumption: no latency",
    "copy_overhead_us": "assumption: a copy takes as long as its packets",
    "ndp.published.": "not published; a cross-check that no simulation uses",
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
    """The source of the default at `path`, or its assumption.

    Raises:
        KeyError: nothing is known of such a key.
    """
    for key in (dotted(path), f"{dotted(path[:-1])}.", path[-1]):
        if key in _REASONS:
            return _REASONS[key]
    raise KeyError(dotted(path))
