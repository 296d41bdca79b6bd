"""Kernels read and set the elements of arrays and records that Python does."""

from __future__ import annotations

import numpy as np

from ndpsim.base.jit import kernel

RECORD = np.dtype(
    [("single", np.int64), ("table", np.int64, (4, 5)), ("row", np.int32, (7,)), ("small", np.uint8)]
)


@kernel
def use(records, strided, table, turned, line):
    record, total = records[1], 0
    for i in range(-4, 4):
        for j in range(-5, 5):
            record.table[i, j] = i * 10 + j
            total += record.table[-1, j] * record.table[i, 2]
    for i in range(record.row.shape[0]):
        record.row[i] = i - 9
        total += record.row[-i]
    record.small = 200
    total += record.small + record.single
    for i in range(-strided.shape[0], strided.shape[0]):
        total += strided[i] // 3 % 5
    for i in range(table.shape[0]):
        for j in range(table.shape[1]):
            table[i, j] += turned[j, i] + turned.shape[1] + turned[-1, -1]
    line[:] = 3
    line[1:3] = 7
    part = table[1]
    total += part[2] ** 2 + part[-1] + records[-1].row[3] + 1000 * records[2].table.shape[1]
    return total


def outcome(function, view=lambda records: records):
    records, table = np.zeros(3, dtype=RECORD), np.arange(12, dtype=np.int32).reshape(3, 4)
    records["row"], records["single"] = 5, 77
    line, turned = np.zeros(5, dtype=np.int16), np.arange(24).reshape(4, 6)[:, ::2]
    total = function(view(records), np.arange(24)[::3], table, turned, line)
    return int(total), records.tobytes(), table.tolist(), line.tolist()


def test_elements_are_those_that_python_finds():
    python = getattr(use, "py_func", use)
    assert outcome(use) == outcome(python, lambda records: records.view(np.recarray))
