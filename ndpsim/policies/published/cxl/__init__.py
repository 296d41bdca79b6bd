"""Context-aware CXL-NDP: `policy` decides; `prefix_split` chooses bits by the losses of a table."""

from ndpsim.policies.published.cxl.policy import POLICY
