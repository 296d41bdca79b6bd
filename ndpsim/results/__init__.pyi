# The names of the package, once; see ndpsim._later.
from ndpsim.results.cache import ResultCache as ResultCache
from ndpsim.results.contention import ContentionResult as ContentionResult
from ndpsim.results.expert import ExpertResult as ExpertResult
from ndpsim.results.expert import JobTime as JobTime
from ndpsim.results.expert import Phase as Phase
from ndpsim.results.host_read import HostReadResult as HostReadResult
from ndpsim.results.relayout import HostMove as HostMove
from ndpsim.results.relayout import OtherDimms as OtherDimms
from ndpsim.results.relayout import RelayoutResult as RelayoutResult
from ndpsim.results.relayout import Stretch as Stretch
from ndpsim.results.session import DimmResult as DimmResult
from ndpsim.results.session import ExpertRun as ExpertRun
from ndpsim.results.session import HostRun as HostRun
from ndpsim.results.session import RelayoutRun as RelayoutRun
from ndpsim.results.shared_dimm import SharedDimmResult as SharedDimmResult
from ndpsim.results.trace import TraceResult as TraceResult
