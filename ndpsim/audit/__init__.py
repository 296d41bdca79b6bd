"""Checks a trace of DRAM commands against the rules of its standard, without any scheduler.

It shares only the standard's data with the controllers. It reads the rules itself, and searches for each
command the earlier commands that forbid it. Therefore it can judge the controllers.

>>> from ndpsim.audit import check
>>> from ndpsim.dram.spec import resolve
>>> from ndpsim.dram.traces import read_commands
>>> device = resolve("DDR5", "DDR5_16Gb_x8", "DDR5_4800AN", ranks=4)
>>> report = check(read_commands("commands.csv.gz"), device)  # doctest: +SKIP
>>> report.ok  # doctest: +SKIP
True

`check_schedule` judges a schedule in the same way, a log of ``ndpsim moe``; `check_serving` a log of ``ndpsim
serve``.
"""

from ndpsim.audit.legality import CommandBuses, check, check_lanes
from ndpsim.audit.log_lines import Finding
from ndpsim.audit.report import Report, Violation
from ndpsim.audit.schedule import ScheduleReport, check_schedule, is_schedule_log
from ndpsim.audit.serving import ServingReport, check_serving, is_serving_log
