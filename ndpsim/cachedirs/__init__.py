"""Folders of caches: whose they are, what in them may be removed, and what in them is damaged.

A cache holds what can be made again, in folders ``KIND-VERSION``, each with a marker file that says who made
it: in the user's cache folder, or in the one that ``NDPSIM_CACHE_DIR`` names; where that cannot be used, in
the folder for temporary files. A folder that others can write, or own, is not read. A file is believed when
its digest says so. Only files and folders with ndpsim's own names, in folders with its marker, are removed.
"""

from ndpsim.cachedirs.entries import Entries
from ndpsim.cachedirs.folders import KINDS, clear, find_folders, roots
from ndpsim.cachedirs.own_files import problem_of
