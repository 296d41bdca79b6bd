#!/usr/bin/env bash
# numba 0.68.1: `Event.is_failed` of an END event is True where compiling succeeded and False where it failed.
#
# A good guess: as its docstring says ("Is the event carrying an exception?"), a listener of "numba:compile" learns from
# `event.is_failed` that a function could not be compiled.
# Seen: `is_failed` is `exc_details is None`, and the details are None without an exception. It says the opposite.
# What follows: who logs or counts compilations by it counts failures as successes and successes as failures.
#
# It prints the value for a function that compiles and for one that does not, and ends with 0 if that is as stated here.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q numba==0.68.1 llvmlite==0.50.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import numba
from numba.core import event


class Ends(event.Listener):
    def on_start(self, event):
        pass

    def on_end(self, event):
        seen.append(event.is_failed)


seen = []
event.register("numba:compile", Ends())


@numba.njit
def works(number):
    return number + 1


@numba.njit
def fails(number):
    return number.no_such_field


works(1)
good, seen[:] = list(seen), []
try:
    fails(1)
except numba.TypingError:
    pass
print("compiled: is_failed =", good)
print("not compiled: is_failed =", seen)
assert good and all(good), "is_failed differs from what is stated above"
assert seen and not any(seen), "is_failed differs from what is stated above"
PYTHON
