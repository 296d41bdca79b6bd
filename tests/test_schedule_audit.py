"""The checker of schedules reports every violation with its name and line, and accepts legal schedules."""

from __future__ import annotations

import ast
import copy
import gzip
import json
import re
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

import ndpsim.audit
from calls import call, refused_call
from mistakes import refused
from ndpsim.audit import check_schedule
from ndpsim.audit.schedule_layer import _order_faults
from ndpsim.base.errors import InputError
from ndpsim.inference.layers.log import writing_log


@pytest.fixture(scope="module")
def good(tmp_path_factory, moe_by_hand):
    """The lines of a log in which nothing is wrong: what is run, then layers 3 and 4 in steps 0 and 1."""
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    with writing_log(path) as observer:
        moe_by_hand.play(observer, "trimoe")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def judged(good, tmp_path):
    """What is found in a log after a change, as (line, rule), and the messages."""

    def judge(change=lambda lines: None):
        lines = copy.deepcopy(good)
        changed = change(lines)
        lines = changed if isinstance(changed, list) else lines
        path = tmp_path / "log.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        report = check_schedule(path)
        assert report.ok == (not report.findings)
        for one in report.findings:
            assert one.message.startswith(f"line {one.line}: ")
            assert one.rule in one.message
            assert "\n" not in one.message
        return {(one.line, one.rule) for one in report.findings}, [one.message for one in report.findings]

    return judge


def test_a_good_log_has_no_findings(judged, good):
    assert judged() == (set(), [])


def job(line, kind, expert=-1, resource=None):
    return next(
        one
        for one in line["jobs"]
        if (one["kind"], one["expert"]) == (kind, expert) and resource in (None, one["resource"])
    )


def moved(line, kind):
    return next(one for one in line["migrations"] if one["kind"] == kind)


def at(of, **changes):
    of.update(changes)


# Line 1 says what is run; 2: step 0, layer 3; 3: step 0, layer 4; 4: step 1, layer 3; 5: step 1, layer 4.
BREAKS = {
    "a pair too many": (2, "loads", lambda ls: at(ls[1], loads=[5, 5, 2, 1, 2, 2, 0, 0])),
    "tokens of another batch": (2, "loads", lambda ls: at(ls[1], tokens=9)),
    "loads of more experts": (2, "loads", lambda ls: ls[1]["loads"].append(0)),
    "more tokens than there are": (2, "loads", lambda ls: at(ls[1], loads=[9, 1, 2, 0, 2, 2, 0, 0])),
    "an expert left out": (2, "pairs", lambda ls: ls[1]["assign"]["cpu"].clear()),
    "an expert twice": (2, "pairs", lambda ls: ls[1]["assign"]["gpu"].append([2, 1.0])),
    "an expert without tokens": (2, "pairs", lambda ls: ls[1]["assign"]["cpu"].append([3, 1.0])),
    "an expert that does not exist": (2, "pairs", lambda ls: ls[1]["assign"]["cpu"].append([8, 1.0])),
    "shares below 1": (2, "pairs", lambda ls: ls[1]["assign"].update(cpu=[[2, 0.9]])),
    "a share above 1": (2, "assign", lambda ls: ls[1]["assign"].update(cpu=[[2, 1.5]])),
    "an engine of no machine": (2, "assign", lambda ls: ls[1]["assign"].update(tpu=[])),
    "a job left out": (2, "pairs", lambda ls: ls[1]["jobs"].remove(job(ls[1], "expert", 2))),
    "a job of fewer tokens": (2, "pairs", lambda ls: at(job(ls[1], "expert", 4), tokens=1)),
    "a job of half the columns": (2, "pairs", lambda ls: at(job(ls[1], "expert", 0), share=0.5)),
    "a job elsewhere": (2, "pairs", lambda ls: at(job(ls[1], "expert", 2), resource="gpu")),
    "a resource of no machine": (2, "resource", lambda ls: at(job(ls[1], "expert", 4), resource="ndp 4")),
    "another order": (2, "order of experts", lambda ls: ls[1]["assign"]["gpu"].reverse()),
    "another DIMM": (2, "engine", lambda ls: at(job(ls[1], "expert", 5), resource="ndp 2")),
    "NDP on a striped expert": (
        2,
        "engine",
        lambda ls: (at(ls[1]["placement"]["5"], lies="striped"), at(ls[0]["placement"]["dimm"][0].__setitem__(5, -1) or {})),
    ),
    "the GPU does two things": (2, "exclusive", lambda ls: at(job(ls[1], "expert", 0), start_ns=23e3)),
    "an NDP unit does two things": (3, "exclusive", lambda ls: at(job(ls[2], "expert", 4), end_ns=131e3)),
    "a job before its layer": (2, "within the layer", lambda ls: at(job(ls[1], "activations"), start_ns=19e3)),
    "a job beyond its layer": (2, "within the layer", lambda ls: at(job(ls[1], "results"), end_ns=81e3)),
    "a job that ends before it begins": (
        2,
        "within the layer",
        lambda ls: at(job(ls[1], "shared"), start_ns=24e3, end_ns=20e3),
    ),
    "an expert computed before its copy": (2, "copy", lambda ls: at(job(ls[1], "copy", 1), end_ns=61e3)),
    "an expert never copied": (2, "copy", lambda ls: ls[1]["jobs"].remove(job(ls[1], "copy", 1))),
    "a copy for nothing": (3, "copy", lambda ls: at(job(ls[2], "copy", 1), expert=3)),
    "a GPU that reads less": (2, "bytes", lambda ls: at(job(ls[1], "expert", 0), bytes=999_000)),
    "a job faster than alone": (2, "alone", lambda ls: at(job(ls[1], "expert", 4), alone_ns=25_100.0)),
    "more copies than engines": (2, "copy", lambda ls: at(ls[0], copy_engines=0)),
    "more copies than buffers": (2, "GPU memory", lambda ls: at(ls[0], expert_buffers=0)),
    "a result without a way back": (2, "activations", lambda ls: ls[1]["jobs"].remove(job(ls[1], "results"))),
    "results before the end": (2, "activations", lambda ls: at(job(ls[1], "results"), start_ns=74e3)),
    "CPU before its activations": (2, "activations", lambda ls: at(job(ls[1], "expert", 2), start_ns=21e3)),
    "a copy of fewer bytes": (2, "bytes", lambda ls: at(job(ls[1], "copy", 1), bytes=999_000)),
    "an NDP unit that reads less": (2, "bytes", lambda ls: at(job(ls[1], "expert", 4), bytes=999_000)),
    "PCIe too fast": (2, "rate", lambda ls: at(job(ls[1], "results"), bytes=330_000)),
    "DRAM of a DIMM too fast": (2, "rate", lambda ls: at(job(ls[1], "expert", 4), bytes=4_000_000)),
    "one channel as fast as all": (2, "rate", lambda ls: at(ls[0]["gbps"], channel=15.0)),
    "PCIe together too fast": (2, "rate", lambda ls: at(ls[0]["gbps"], pcie=30.0) or ls[1]["jobs"].append({**job(ls[1], "copy", 1), "expert": 0})),
    "channels together too fast": (2, "rate", lambda ls: at(ls[0]["gbps"], channel=20.0)),
    "a critical path with a gap": (2, "critical path", lambda ls: ls[1]["critical_path"].pop(1)),
    "a critical path that ends early": (2, "critical path", lambda ls: ls[1]["critical_path"].pop()),
    "no critical path": (2, "critical path", lambda ls: at(ls[1], critical_path=[])),
    "a critical path of other jobs": (2, "critical path", lambda ls: at(ls[1], critical_path=[99])),
    "a layer missing": (3, "order", lambda ls: ls.pop(2)),
    "a step missing": (2, "order", lambda ls: ls[:1] + ls[3:]),
    "a run that ends within a step": (4, "order", lambda ls: ls.pop()),
    "a layer of no run": (2, "order", lambda ls: at(ls[1], layer=7)),
    "another policy's line": (2, "order", lambda ls: at(ls[1], policy="monde")),
    "a layer before the last ended": (3, "time", lambda ls: at(ls[2], window_ns=21e3)),
    "a layer that ends first": (2, "time", lambda ls: at(ls[1], end_ns=19e3)),
    "less than the bound": (2, "bound", lambda ls: at(ls[1], bound_ns=60_001.0)),
    "another place than before": (2, "placement", lambda ls: at(ls[1]["placement"]["4"], lies="localized 1")),
    "resident from nowhere": (2, "placement", lambda ls: at(ls[1]["placement"]["2"], gpu=True)),
    "no longer resident": (4, "placement", lambda ls: at(ls[3]["placement"]["0"], gpu=False)),
    "no place": (2, "placement", lambda ls: ls[1]["placement"].pop("2")),
    "used at its new place too soon": (5, "placement", lambda ls: at(moved(ls[3], "rebalance"), to="localized 2")),
    "a move that never was": (5, "placement", lambda ls: ls[3]["migrations"].clear()),
    "a migration of no kind": (3, "migration", lambda ls: at(moved(ls[2], "prefetch"), kind="teleport")),
    "a migration of no expert": (3, "migration", lambda ls: at(moved(ls[2], "prefetch"), expert=8)),
    "a migration from elsewhere": (4, "migration", lambda ls: at(moved(ls[3], "rebalance"), **{"from": "localized 1"})),
    "a migration to nowhere": (4, "migration", lambda ls: at(moved(ls[3], "rebalance"), to="localized 4")),
    "a relayout that moves to a DIMM": (4, "migration", lambda ls: at(moved(ls[3], "rebalance"), kind="relayout")),
    "an eviction of what is not there": (5, "migration", lambda ls: at(moved(ls[4], "evict"), expert=2)),
    "a fetch of what is there": (4, "migration", lambda ls: ls[3]["migrations"].append({**moved(ls[2], "prefetch"), "end_ns": 170e3, "hidden_ns": 30e3})),
    "a migration before it is decided": (3, "migration", lambda ls: at(moved(ls[2], "prefetch"), decided_ns=81e3)),
    "a migration decided when nothing was": (3, "migration", lambda ls: at(moved(ls[2], "prefetch"), decided_ns=70e3)),
    "an eviction of what the GPU computes": (4, "migration", lambda ls: at(moved(ls[4], "evict"), decided_ns=180e3, start_ns=180e3, end_ns=180e3) or ls[3]["migrations"].append(ls[4]["migrations"].pop(0))),
    "a migration of another line": (3, "migration", lambda ls: at(moved(ls[2], "prefetch"), end_ns=161e3, hidden_ns=21e3)),
    "a migration of fewer bytes": (3, "bytes", lambda ls: at(moved(ls[2], "prefetch"), bytes=1)),
    "an eviction of fewer bytes": (5, "bytes", lambda ls: at(moved(ls[4], "evict"), bytes=1)),
    "a prefetch in few bits, computed in full": (5, "bytes", lambda ls: (at(ls[0], replicas={"4": 250_000}), at(moved(ls[2], "prefetch"), bytes=250_000))),
    "a migration over a fast PCIe": (3, "rate", lambda ls: at(moved(ls[2], "prefetch"), end_ns=90e3, hidden_ns=10e3)),
    "a migration over fast links": (4, "rate", lambda ls: at(ls[0], link_ports=0)),
    "more hidden than there was": (3, "hidden", lambda ls: at(moved(ls[2], "prefetch"), hidden_ns=41e3)),
    "less hidden than there was": (4, "hidden", lambda ls: at(moved(ls[3], "rebalance"), hidden_ns=20e3)),
    "more residents than fit": (3, "GPU memory", lambda ls: at(ls[0], gpu_experts=2)),
    "more residents than fit at first": (1, "GPU memory", lambda ls: at(ls[0], gpu_experts=1)),
    "half the activations": (2, "bytes", lambda ls: at(job(ls[1], "activations"), bytes=job(ls[1], "activations")["bytes"] // 2)),
    "activations of fewer tokens than the busiest expert's": (2, "bytes", lambda ls: tuple(at(job(ls[1], kind), bytes=8192) for kind in ("activations", "results"))),
    "activations of half a token": (2, "bytes", lambda ls: tuple(at(job(ls[1], kind), bytes=20480) for kind in ("activations", "results"))),
    "PCIe too fast for a migration beside a copy": (3, "rate", lambda ls: (at(ls[0]["gbps"], pcie=48.2), at(moved(ls[2], "prefetch"), end_ns=121e3), at(job(ls[2], "copy", 1), end_ns=121e3))),
    "a fetch left out": (5, "residents", lambda ls: ls[4]["migrations"].remove(moved(ls[4], "fetch"))),
    "another bottleneck": (2, "bottleneck", lambda ls: at(ls[1], bottleneck="gpu")),
    "a run with something else": (1, "keys", lambda ls: at(ls[0], machine="another")),
    "a layer with something else": (2, "keys", lambda ls: at(ls[1], stalls=3)),
    "a job with something else": (2, "keys", lambda ls: at(job(ls[1], "copy", 1), lane=1)),
    "a migration with something else": (3, "keys", lambda ls: at(moved(ls[2], "prefetch"), retries=1)),
    "bits of no replica": (2, "bytes", lambda ls: at(ls[1], bits={"2": 3})),
    "a copy that stays and never was": (3, "migration", lambda ls: at(moved(ls[2], "prefetch"), kind="keep", bytes=0)),
    "an eviction left out": (5, "migration", lambda ls: ls[4]["migrations"].remove(moved(ls[4], "evict"))),
    "activations and results of fewer tokens than choose so much": (2, "bytes", lambda ls: (ls[1]["assign"]["cpu"].append([0, 0.5]), [at(job(ls[1], kind), bytes=5 * 8192) for kind in ("activations", "results")])),
    "half a window": (3, "time", lambda ls: at(ls[2], window_ns=10e3)),
    "a step before the last has ended": (4, "time", lambda ls: at(ls[3], window_ns=21e3)),
    "a run that begins later": (2, "time", lambda ls: at(ls[1], window_ns=19e3)),
    "half a bound": (3, "bound", lambda ls: at(ls[2], bound_ns=15.5e3)),
    "a bound below shared experts": (2, "bound", lambda ls: at(ls[1], bound_ns=3.9e3)),
    "an estimate of PCIe too fast": (2, "estimates", lambda ls: at(ls[1]["estimates"], gpu=15.6e3)),
    "an estimate of DIMMs too fast": (2, "estimates", lambda ls: at(ls[1]["estimates"], ndp=13.0e3)),
    "an estimate of nothing": (2, "estimates", lambda ls: at(ls[1]["estimates"], cpu=0.0)),
    "an estimate for nothing": (2, "estimates", lambda ls: ls[1]["assign"]["cpu"].clear()),
    "an estimate left out": (2, "estimates", lambda ls: ls[1]["estimates"].pop("ndp")),
    "a layer estimated at less than nothing": (2, "estimates", lambda ls: at(ls[1], estimated_ns=-1.0)),
    "a full DIMM": (1, "DIMM memory", lambda ls: at(ls[0], dimm_bytes=3_000_000)),
    "a DIMM that fills": (4, "DIMM memory", lambda ls: at(ls[0], dimm_bytes=5_000_000) or at(ls[0]["placement"], dimm=[[-1] * 4 + [0, 1, 3, 3], [-1] * 4 + [0, 0, 1, 3]])),
}  # fmt: skip


#: Breaks that one rule finds more than once in a line: what is assigned and what is done, from where and to where,
#: by a transfer and by all together, over PCIe and over channels, activations and results, each of several DIMMs,
#: what follows of an eviction that should not have been, a gate beside a beginning, and what was copied in few bits.
OFTEN = {
    **dict.fromkeys(("an expert left out", "an expert twice", "an expert without tokens", "shares below 1"), 2),
    **dict.fromkeys(("tokens of another batch", "an expert that does not exist", "a job elsewhere", "another DIMM"), 2),
    **dict.fromkeys(("PCIe too fast", "one channel as fast as all", "channels together too fast"), 2),
    **dict.fromkeys(("a migration of no expert", "an eviction of what is not there", "a migration over fast links"), 2),
    **dict.fromkeys(("activations of fewer tokens than the busiest expert's", "activations of half a token"), 2),
    "activations and results of fewer tokens than choose so much": 2,
    **dict.fromkeys(("a migration before it is decided", "a migration of fewer bytes"), 2),
    "a migration over a fast PCIe": 3,
    "a full DIMM": 3,
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_wrong_is_named_with_its_line(judged, name):
    """As often as it is wrong: a rule that finds nothing any more is not hidden by another one of its name."""
    line, rule, change = BREAKS[name]
    messages = judged(change)[1]
    of_rule = [one for one in messages if re.match(f"line {line}: (.*, layer .: )?{rule}: ", one)]
    assert len(of_rule) == OFTEN.get(name, 1), messages


def findings_of_the_source():
    """Of each place in the audit's source that yields a fault: file and line, rule, and the fixed parts of its words."""
    for file in sorted(Path(ndpsim.audit.__file__).parent.glob("schedule*.py")):
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            of = node.value if isinstance(node, ast.Yield) else None
            if isinstance(of, ast.Tuple) and len(of.elts) == 2:
                rule = of.elts[0].value if isinstance(of.elts[0], ast.Constant) else None
                yield f"{file.name}:{node.lineno}", rule, words_of(of.elts[1])


def words_of(node):
    """A pattern of the fixed parts of a text."""
    if isinstance(node, ast.Constant):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(words_of(part) for part in node.values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return re.sub(r"\\{\\}", ".*", words_of(node.func.value))
    return ".*"


def test_every_finding_is_made_by_a_test(judged):
    """Not only a finding of its name: one with its words, of each place in the source that makes one."""
    messages = [message for _, _, change in BREAKS.values() for message in judged(change)[1]]
    places = list(findings_of_the_source())
    assert len(places) > 50
    assert {rule for _, rule, _ in places} - {None} == {rule for _, rule, _ in BREAKS.values()}
    missing = [
        (place, rule, words)
        for place, rule, words in places
        if not any(re.fullmatch(f".*{rule or ''}: {words}", message) for message in messages)
    ]
    assert missing == []


def test_check_says_a_finding_a_line_and_ends_with_1(good, tmp_path):
    path = tmp_path / "log"  # found by its content
    text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in good)
    path.write_bytes(gzip.compress(text.encode()))
    assert call("check", path) == (
        0,
        f"{path}: consistent; runs 1, layers 4, jobs 35, migrations 4, findings 0\n",
        "",
    )
    path.write_text(text.replace('"tokens":8,', '"tokens":7,'))
    status, out, err = call("check", path, "--limit", 2)
    assert (status, err) == (1, "")
    lines = out.splitlines()
    assert lines[0] == "line 2: step 0, layer 3: loads: 7 tokens, where the run has 8"
    assert lines[-1].endswith("findings 8")
    assert len(lines) == 4
    status, out, _ = call("check", path, "--json", "-")
    assert status == 1
    assert json.loads(out)["findings"][0]["rule"] == "loads"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "form log.jsonl"),
        ("{", "form log.jsonl:1"),
        ("[]", "form log.jsonl:1"),
        ('{"log": NaN}', "form log.jsonl:1"),
        ('{"log": 1}', "form log.jsonl:1 log"),
        ('{"log": 4}', "form log.jsonl:1"),
        ('{"step": 1}', "form log.jsonl:1"),
    ],
)
def test_what_is_no_log_is_said_in_a_line(tmp_path, text, message):
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with refused(message) as caught:
        check_schedule(path)
    status, out, err = call("check", path)
    assert (status, out) == (2, "")
    assert err == f"ndpsim: error: {caught.value}\n"


def test_a_line_with_something_else_in_it_is_said_in_a_line(good, tmp_path):
    for key, value in (
        ("jobs", 3),
        ("loads", None),
        ("placement", []),
        ("start_ns", "x"),
        ("assign", {"gpu": [1]}),
    ):
        lines = copy.deepcopy(good)
        lines[1][key] = value
        path = tmp_path / "log.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        with refused("form log.jsonl:2"):
            check_schedule(path)


def places_in(value, path=()):
    """Every place in plain data, as the keys that lead there."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places_in(value[key], (*path, key))


def test_whatever_a_line_says_nothing_breaks(good, tmp_path):
    """Any value anywhere is let through, found, or refused in a line."""
    random, path = Random(1), tmp_path / "log.jsonl"
    others = (None, True, -1, 0, 1e300, 10**400, float("nan"), "", "gpu", "ndp 77", [], [[]], {}, {"0": 1})
    for _ in range(150):
        lines = copy.deepcopy(good)
        line = random.randrange(len(lines))
        *way, last = random.choice([place for place in places_in(lines[line]) if place])
        of = lines[line]
        for key in way:
            of = of[key]
        of[last] = random.choice(others)
        path.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
        try:
            report = check_schedule(path)
        except InputError as error:
            assert "\n" not in str(error)
            assert str(error).startswith(f"{path}:")
        else:
            assert all("\n" not in one.message for one in report.findings)


def test_options_of_command_traces_are_refused_for_logs(good, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(good[0]))
    assert refused_call("check", path, "--hw", "trimoe") == "conflict --hw"
    assert refused_call("check", path, "--limit", -1) == "range --limit"


def test_an_expert_may_arrive_while_its_layer_is_under_way(judged):
    def arriving(lines, start_ns=120e3):
        line = lines[2]
        line["jobs"].remove(job(line, "copy", 1))
        at(job(line, "expert", 1), start_ns=start_ns, end_ns=160e3)
        line["critical_path"] = [line["jobs"].index(job(line, "expert", 1))]
        line["bottleneck"] = "gpu"

    assert judged(arriving) == (set(), [])
    assert judged(lambda lines: arriving(lines, 119e3))[0] == {(3, "copy"), (3, "critical path")}


def test_a_sharded_expert_is_computed_on_each_of_its_dimms(judged):
    def sharded(lines, dimms=(2, 3)):
        lines[0]["placement"]["dimm"][0][4], lines[0]["placement"]["shards"][0][4] = 2, 2
        for line in lines[1::2]:
            line["placement"]["4"]["lies"] = "sharded:2 2"
            one = job(line, "expert", 4)
            line["jobs"].remove(one)
            line["jobs"] += [{**one, "resource": f"ndp {dimm}", "bytes": 500_000} for dimm in dimms]
            parts = (("activations", -1), ("expert", 2), ("results", -1))
            at(job(line, "expert", 2), end_ns=line["end_ns"] - 5e3)
            line["critical_path"] = [line["jobs"].index(job(line, *part)) for part in parts]
            line["bottleneck"] = "cpu"

    assert judged(sharded) == (set(), [])
    for dimms in ((2,), (2, 1), (2, 3, 1)):
        assert (2, "engine") in judged(lambda lines, dimms=dimms: sharded(lines, dimms))[0]


def test_a_prefill_comes_before_the_steps(good, judged):
    def with_prefill(lines):
        lines[0]["prompt_tokens"] = 8
        both = [{**copy.deepcopy(line), "phase": "prefill"} for line in lines[1:3]]
        shift = 160e3
        for line in lines[1:]:
            for of in (line, *line["jobs"], *line["migrations"]):
                of.update(
                    {
                        key: value + shift
                        for key, value in of.items()
                        if key in ("start_ns", "end_ns", "decided_ns")
                    }
                )
        both[1].update(migrations=[], residents=2)
        return [lines[0], *both, *lines[1:]]

    assert judged(with_prefill) == (set(), [])
    assert (2, "order") in judged(lambda lines: lines[0].update(prompt_tokens=8))[0]


@pytest.mark.parametrize(("order", "faults"), [([2, 1, 3, 4], 0), ([1, 2, 3, 4], 1), ([2, 1, 4, 3], 1)])
def test_copied_experts_are_computed_as_their_copies_end(order, faults):
    """Half of expert 2 arrives before expert 1, whose copy began with it; 3 and 4 are residents."""
    copies = [{"kind": "copy", "expert": 1, "end_ns": 20.0}, {"kind": "copy", "expert": 2, "end_ns": 10.0}]
    computing = [
        {"kind": "expert", "resource": "gpu", "expert": expert, "start_ns": 30.0 + place}
        for place, expert in enumerate(order)
    ]
    line = {
        "assign": {"gpu": [[1, 1.0], [2, 0.5], [3, 1.0], [4, 1.0]]},
        "placement": {"3": {"gpu": True}, "4": {"gpu": True}},
    }
    found = list(_order_faults(SimpleNamespace(gpu_order="arrived"), line, iter([*copies, *computing])))
    assert len(found) == faults, found
