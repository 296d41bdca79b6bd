"""Cache folders: their owner, the files that may be removed, and the check for damage.

A cache has folders ``KIND-VERSION``, each with a marker file that names its maker. They are in the user's
cache folder or in ``NDPSIM_CACHE_DIR``; if that cannot be used, in the folder for temporary files. ndpsim
does not read a folder that other users own or can write. It uses a file only if its digest is right. It
removes only files and folders with its own names, in folders with its marker.
"""

from ndpsim.base.cachedirs.entries import Entries
from ndpsim.base.cachedirs.folders import KINDS, clear, find_folders, roots
from ndpsim.base.cachedirs.own_files import problem_of
