"""``run_serving``: requests served by a machine, with experts placed by a policy."""

from __future__ import annotations

from collections.abc import Callable

from ndpsim.base.arguments import instance, progress_function
from ndpsim.base.options.serve import ServeSettings
from ndpsim.base.options.settings import called_with
from ndpsim.inference.serving.log import ServingLog
from ndpsim.inference.serving.observer import ServingObserver
from ndpsim.inference.serving.server import Server, set_up
from ndpsim.simulate.results.serving import ServingResult
from ndpsim.simulate.results.stopwatch import Stopwatch


@called_with(ServeSettings)
def run_serving(
    settings: ServeSettings,
    *,
    log: ServingLog | None = None,
    observer: ServingObserver | None = None,
    progress: Callable[[float], None] | None = None,
) -> ServingResult:
    """Serve requests: a scheduler forms steps, a policy places the experts of their layers.

    A policy that rehearses cannot serve. Experts are drawn by sequence, see `workload.routing.sequences`.

    Args:
        log: a log that receives each request and each step.
        observer: receives each request, layer and step.
        progress: called with the share of the output tokens that have been generated.

    Raises:
        InputError: an argument makes no sense, a request or something else does not fit into memory, or a
            policy gives an impossible answer.
    """
    watch, progress = Stopwatch(), progress_function(progress)
    if log is not None:
        instance(log, "log", ServingLog)
    if observer is not None:
        instance(observer, "observer", ServingObserver)
    return Server(settings, set_up(settings)).serve(settings.rate, log, observer, progress, watch)
