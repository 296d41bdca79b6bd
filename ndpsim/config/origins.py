"""Values with their origins: leaves of hardware files with their source or assumption, and `--set`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ndpsim.base.errors import SETS, Code, InputError, one_of
from ndpsim.config.nodes import Node, parse

#: The keys of an annotated leaf; no section of a hardware file has a key of these names.
ANNOTATION = ("value", "source", "rtl", "assumption")

Kind = Literal["source", "rtl", "assumption", "set", "default", "stated"]
_STATED: tuple[Kind, ...] = ("source", "rtl", "assumption")
KeyPath = tuple[str, ...]


@dataclass(frozen=True)
class Origin:
    """The source of a value.

    Attributes:
        file: the file, or `SETS`.
        line: its line there, from 1; None: there is none.
        text: the annotation, the option, or the reason for the default; else empty.
        kind: "source", "rtl" (of hardware that a test compares) or "assumption" for a value with this
            annotation, "stated" for a value without one, "set" for an option, "default" for a value that is
            not given.
    """

    file: str
    line: int | None
    text: str
    kind: Kind

    def __str__(self) -> str:
        """One phrase for tables: the source, ``RTL: ...``, ``assumption: ...``, ``default, ...``, option or
        FILE:LINE.
        """
        if self.kind == "rtl":
            return f"RTL: {self.text}"
        if self.kind == "assumption":
            return f"assumption: {self.text}"
        if self.kind == "default":
            return f"default, {self.text}"
        return self.text or self.file + (f":{self.line}" if self.line else "")

    def error(self, problem: str, key: str | None, code: Code) -> InputError:
        """The error `problem` with `key`, at this place."""
        if self.kind == "set" and key is not None:
            key = key.replace("dram.overrides.", "dram.", 1)  # as the user typed it
        return InputError(problem, code, file=self.file, line=self.line, key=key)


def dotted(path: KeyPath) -> str:
    """``("dimm", "ranks")`` as ``dimm.ranks``."""
    return ".".join(path)


def shown(value: object) -> str:
    """`value` for an error message, in YAML form, cut to a readable length."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


@dataclass
class Draft:
    """Values on their way to a `System`: nested plain data, and the origin of every part of it."""

    values: dict[str, Any]
    origins: dict[KeyPath, Origin] = field(default_factory=dict)

    def at(self, path: KeyPath) -> Any:
        """The value at `path`; None if there is none."""
        value: Any = self.values
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def has(self, path: KeyPath) -> bool:
        """Whether `path` has a value, which may be null."""
        parent = self.at(path[:-1])
        return isinstance(parent, dict) and path[-1] in parent

    def remove(self, path: KeyPath) -> None:
        """Remove the value of `path`, if it has one."""
        if self.has(path):
            del self.at(path[:-1])[path[-1]]
        self._forget_origins(path)

    def _forget_origins(self, path: KeyPath) -> None:
        self.origins = {key: origin for key, origin in self.origins.items() if key[: len(path)] != path}

    def origin(self, path: KeyPath) -> Origin:
        """The origin of `path`, or of the nearest section around it with an origin."""
        while path not in self.origins:
            path = path[:-1]
        return self.origins[path]

    def error(self, problem: str, key: str, code: Code) -> InputError:
        """The error `problem` of a dotted key, at the place of its value."""
        return self.origin(tuple(key.split("."))).error(problem, key, code)

    def replace(self, path: KeyPath, value: Any, origins: dict[KeyPath, Origin]) -> None:
        """Put `value`, whose parts have `origins`, at `path`. Do nothing if a part above is not a mapping."""
        section = self.values
        for key in path[:-1]:
            if section.get(key) is None:
                section[key] = {}
            section = section[key]
            if not isinstance(section, dict):
                return
        section[path[-1]] = value
        self._forget_origins(path)
        self.origins.update(origins)

    def set(self, path: KeyPath, text: str) -> None:
        """Put the YAML value `text`, a change of a call, at `path`.

        Raises:
            InputError: `text` is no YAML value.
        """
        origin = Origin(SETS, None, f"--set {dotted(path)}={text}", "set")
        try:
            node = parse(text, SETS)
            values, inner = _read(node, SETS, path)
        except InputError as error:
            raise origin.error(error.problem, error.key or dotted(path), error.code) from None
        self.replace(path, values, dict.fromkeys(inner, origin))


def draft_of(node: Node, file: str, path: KeyPath = ()) -> Draft:
    """The values under `node`, the root of `file`, as a draft whose origins begin with `path`.

    Raises:
        InputError: it is not a mapping, or an annotated leaf is malformed.
    """
    if not isinstance(node.value, dict):
        problem = f"must be a mapping of keys to values, not {shown(node.value)}"
        raise InputError(problem, "type", file=file, line=node.line)
    draft = Draft({}, {path: Origin(file, 1, "", "stated")})
    for key, child in node.value.items():
        draft.values[key], origins = _read(child, file, (*path, key))
        draft.origins.update(origins)
    return draft


def _read(node: Node, file: str, path: KeyPath) -> tuple[Any, dict[KeyPath, Origin]]:
    """The plain value of `node` and the origins of all its parts."""
    if isinstance(node.value, dict) and not node.value.keys().isdisjoint(ANNOTATION):
        value, origin = _annotated(node.value, Origin(file, node.line, "", "stated"), path)
        return value, {path: origin}
    origins = {path: Origin(file, node.line, "", "stated")}
    if isinstance(node.value, list):
        return [_read(child, file, (*path, str(n)))[0] for n, child in enumerate(node.value)], origins
    if not isinstance(node.value, dict):
        return node.value, origins
    values = {}
    for key, child in node.value.items():
        values[key], inner = _read(child, file, (*path, key))
        origins.update(inner)
    return values, origins


def _annotated(parts: dict[str, Node], origin: Origin, path: KeyPath) -> tuple[Any, Origin]:
    """The value and origin of a leaf written with its source or assumption."""
    for problem in _annotation_problems(parts):
        raise origin.error(problem, dotted(path), "form")
    kind = next(each for each in _STATED if each in parts)
    text = " ".join(str(parts[kind].value).split())
    value = parts["value"].value
    plain = [entry.value for entry in value] if isinstance(value, list) else value
    return plain, Origin(origin.file, origin.line, text, kind)


def _is_leaf(node: Node) -> bool:
    entries = node.value if isinstance(node.value, list) else [node]
    return not any(isinstance(entry.value, dict | list) for entry in entries)


def _annotation_problems(parts: dict[str, Node]) -> Iterator[str]:
    for name in parts:
        if name not in ANNOTATION:
            yield one_of(name, ANNOTATION, "key of an annotated value")
    if "value" not in parts:
        yield "has no value; write {value: ..., source: ...} or {value: ..., assumption: ...}"
    elif not _is_leaf(parts["value"]):
        yield "an annotated value is a number, a word or a list of them; annotate the values one by one"
    stated = [name for name in _STATED if name in parts]
    if len(stated) != 1:
        found = " and ".join(stated) or "none"
        yield f"has {found} of source, rtl and assumption; give exactly one"
    for name in stated:
        text = parts[name].value
        if not isinstance(text, str) or not text.strip():
            yield f"{name} must be a sentence, not {shown(text)}"


# ---- The reason for each default: a source or an assumption, for every key that a file may leave out


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
    "host.cpu_roofline_power": "assumption: reading and computing overlap completely",
    "host.cpu_memory_gbps": (
        "not given: a fitted share of the channels by cpu_family (validation/cpu.md); without it, all"
    ),
    "host.cpu_read_gbps": "assumption: the program reads at the rate of the memory",
    "host.cpu_read_share": (
        "not given: the fitted share of what the memory gives (validation/cpu.md); without cpu_family, 1"
    ),
    "host.cpu_expert_overhead_us": "assumption: no overhead beyond compute or memory time",
    "host.cpu_thread_overhead_us": "assumption: threads do not wait for each other",
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
    "host.cpu_tflops": "not given: computed from cpu_cores, cpu_clock_ghz and cpu_isa",
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
    "gpu.fused_memory_efficiency": "not given: the value of gpu.memory_efficiency",
    "gpu.attention_memory_efficiency": "not given: the value of gpu.memory_efficiency",
    "gpu.attention_power": "not given: the value of gpu.roofline_power",
    "gpu.softmax_operations": "not given: no time of exponentials is added",
    "gpu.latent_efficiency": "not given: the value of gpu.attention_efficiency",
    "gpu.fp8_tflops": "assumption: weights of 8 bits or fewer are unpacked, and multiplied as 16 bits",
    "gpu.fp8_efficiency": "not given: the share of gpu.tflops",
    "gpu.fp4_tflops": "assumption: weights of 4 bits or fewer are unpacked, and multiplied as wider numbers",
    "gpu.fp4_efficiency": "not given: the share of gpu.tflops",
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
    "banks.computes": "assumption: the devices compute attention",
    "banks.link_gbps": "not given: the devices are on the GPU's link to the host",
    "banks.link_latency_ns": "assumption: no latency",
    "copy_overhead_us": "assumption: a copy takes as long as its packets",
    "row_sum_cycles": (
        "assumption: rows that are complete together leave the adder tree together; hardware with one tree "
        "has 1 (docs/rtl.md)"
    ),
    "ndp.published.": "not published; a cross-check that no simulation uses",
    "part": _NO_PART,
    "pj_per_bit": _UNKNOWN,
    "pj_per_byte": _UNKNOWN,
    "product_pj": _UNKNOWN,
    "buffer_pj_per_byte": _UNKNOWN,
    "fifo_pj_per_byte": _UNKNOWN,
    "value_pj": _UNKNOWN,
    "static_mw": _UNKNOWN,
    "area_mm2": "not given; results have no area",
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
