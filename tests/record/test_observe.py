"""stats(), SMELT_LOG, explain(): what smelt tells about its work."""

import os
import subprocess
import sys

import pytest
import torch

import smelt

PROGRAM = "import torch, smelt; smelt.record(lambda x: (x + 1).relu(), torch.ones(3))"


def run_with_log(value):
    """What a fresh process with SMELT_LOG=value writes to standard error."""
    environment = dict(os.environ, SMELT_LOG=value)
    out = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, env=environment)
    assert out.returncode == 0, out.stderr
    return out.stderr


LIBRARY = torch.library.Library("smelt_test_observe", "DEF")  # no rule knows the shape of its result
LIBRARY.define("half(Tensor x) -> Tensor")
LIBRARY.impl("half", lambda x: x[:1] / 2, "CPU")
LIBRARY.impl("half", lambda x: x.new_empty(1, *x.shape[1:]), "Meta")


@pytest.fixture
def logged(capfd):
    """Switches categories on, lets smelt record, run and refuse something, and gives what was written."""

    def work(categories):
        smelt.set_log(categories)
        try:
            x = torch.randn(3, 4)
            smelt.record(lambda x: (x + 1).relu().sum() + torch.ops.smelt_test_observe.half(x), x).run(x)
            with pytest.raises(smelt.RecordError):
                smelt.record(lambda x: x.sum().item(), x)
        finally:
            smelt.set_log("")
        return capfd.readouterr().err

    return work


def categories_of(text):
    return {line.split("]")[0] for line in text.splitlines() if line.startswith("smelt[")}


@pytest.fixture
def counters():
    smelt.reset()
    yield smelt.stats
    smelt.reset()


def test_counters(counters):
    assert all(value == 0 for value in counters().values())
    x = torch.randn(3, 4)
    graph = smelt.record(lambda x: (x + 1).relu(), x)
    after = counters()
    assert (after["graphs"], after["refusals"], after["nodes"], after["runs"]) == (1, 0, 2, 0)
    assert after["shapes_row"] + after["shapes_meta"] + after["shapes_seen"] == 2
    assert after["ops_native"] + after["ops_fallback"] == 2
    assert after["record_ns"] > 0 and after["compile_ns"] > 0
    for _ in range(3):
        graph.run(x)
    assert counters()["runs"] == 3
    with pytest.raises(smelt.RecordError):
        smelt.record(lambda: x.sum().item())
    assert counters()["refusals"] == 1 and counters()["graphs"] == 1


def test_counters_are_documented():
    assert all(name.split("_")[0] in smelt.stats.__doc__ for name in smelt.stats())


WORDS = {
    "record": "aten::relu",
    "refusals": "aten::_local_scalar_dense",
    "shapes": "meta smelt_test_observe::half",
    "graph": "aten::relu(",
    "passes": "remove_dead",
    "program": "aten::relu(",
    "perf": "ms",
    "memory": "bytes",
}


@pytest.mark.parametrize("category", WORDS)
def test_log_category(category, logged):
    text = logged(category)
    assert categories_of(text) == {f"smelt[{category}"}
    assert WORDS[category] in text


def test_log_several_all_and_none(logged):
    assert categories_of(logged("graph, refusals")) == {"smelt[graph", "smelt[refusals"}
    assert categories_of(logged("all")) == {f"smelt[{category}" for category in WORDS}
    assert logged("") == ""


def test_environment():
    assert "smelt[graph]" in run_with_log("graph")


def test_unknown_category_in_the_environment_is_told_and_stops_nothing():
    text = run_with_log("grpah")
    assert text.count("smelt[") == 1 and "no category 'grpah'" in text
    assert all(f"{category}:" in text for category in WORDS)


def test_unknown_category_in_set_log():
    with pytest.raises(smelt.Error, match="no category 'nonsense'"):
        smelt.set_log("nonsense")


def test_explain_and_program():
    graph = smelt.record(lambda x: (x + 1).relu(), torch.ones(2))
    assert "remove_dead" in graph.explain()
    assert "aten::relu" in graph.program()


def test_errors_are_smelts():
    assert smelt.Error.__module__ == "smelt" and issubclass(smelt.RecordError, smelt.Error)
    assert issubclass(smelt.Error, RuntimeError)
    assert all(e.__doc__ for e in (smelt.Error, smelt.RecordError, smelt.InternalError))
