"""Results of programs of units in banks as text."""

from __future__ import annotations

from ndpsim.base.reported import quantities, with_unit
from ndpsim.base.units import format_time
from ndpsim.inference.processors.layer_attention import LayerAttention
from ndpsim.report.printing import print_grid, print_text
from ndpsim.report.words import counted
from ndpsim.simulate.results.pim import PimResult


def pim_title(result: PimResult) -> str:
    """What ran on which device, in a line."""
    hardware, workload = result.config["hardware"], result.config.get("workload")
    what = counted(result.requests, "request")
    if workload is not None and "context" in workload:
        done = "Attention"
        if workload["kind"] == "new tokens":
            done = f"Writes of {counted(workload.get('tokens', 1), 'new token')}"
        what = (
            f"{done} of a layer of {workload['model']}, {counted(workload['batch'], 'sequence')} of "
            f"{counted(workload['context'], 'token')}"
        )
        if workload.get("expert_tokens"):
            what += f", then an expert of {counted(workload['expert_tokens'], 'token')}"
    elif workload is not None:
        size = f"{workload['hidden']} x {workload['intermediate']}"
        what = f"One expert of {size}, {counted(workload['tokens'], 'token')}"
    return f"{what} on {hardware['name']}, rules {hardware['rules']}"


def pim_rows(result: PimResult) -> list[tuple[str, str, str]]:
    """A row for each quantity: its label, its value, and an explanation."""
    described = quantities(PimResult)
    inner = {name for of in described.values() for name in of.beside}
    return [
        (of.label, with_unit(name, getattr(result, name), PimResult), _beside(result, of.beside))
        for name, of in described.items()
        if name not in inner
    ]


def print_pim(result: PimResult) -> None:
    """Print a run: its title, a row for each quantity, and how long it was simulated."""
    hardware = result.config["hardware"]
    print_text(pim_title(result), bold=True)
    print_grid(pim_rows(result))
    if result.host is not None:
        host = result.host
        print_text(
            f"host: {host['gbps']:.2f} GB/s of {host['gbps_alone']:.2f} GB/s alone; units "
            f"{host['units_slowdown']:.2f} times slower, arbitration {host['arbitration']}",
            indent="  ",
        )
    if hardware["energy"]:
        parts = [(nj, name) for name, nj in result.energy_nj.items() if nj and name != "total"]
        most = ", ".join(f"{name} {nj:,.1f}" for nj, name in sorted(parts, reverse=True)[:4])
        missing = [name for name, nj in result.energy_nj.items() if nj is None and name != "total"]
        rest = f"; not known: {', '.join(missing)}" if missing else ""
        print_text(f"energy {result.energy_nj['total'] or 0.0:,.1f} nJ ({most}){rest}", indent="  ")
    if hardware["idealisations"]:
        print_text(f"idealisations: {', '.join(hardware['idealisations'])}", indent="  ")
    print_text(f"simulated in {format_time(1e9 * result.run_s)}")


def print_attention(result: LayerAttention) -> None:
    """Print a layer's attention on a machine."""
    config = result.config
    what = f"{counted(config['batch'], 'sequence')} of {counted(config['context'], 'token')}"
    where = "GPU" if result.engine == "gpu" else f"units at: {result.engine}"
    machine = config["hardware"]["name"]
    print_text(f"Attention of a layer of {config['model']}, {what}, on {machine}, {where}", bold=True)
    print_grid(
        (described.label, with_unit(name, getattr(result, name), LayerAttention))
        for name, described in quantities(LayerAttention).items()
    )


def _beside(result: PimResult, names: tuple[str, ...]) -> str:
    described = quantities(PimResult)
    return "; ".join(
        f"{described[name].label} {with_unit(name, getattr(result, name), PimResult)}" for name in names
    )
