"""Ops that a program defines itself."""

import torch

import smelt


def test_an_op_is_compiled():
    with torch.library._scoped_library("smelt_test", "FRAGMENT") as lib:
        lib.define("halved(Tensor x) -> Tensor")
        lib.impl("halved", lambda x: x / 2, "CPU")
        compiled = smelt.compile(lambda x: torch.ops.smelt_test.halved(x + 1) * 3)
        for x in (torch.ones(3), torch.zeros(3), torch.ones(3)):
            assert torch.equal(compiled(x), (x + 1) / 2 * 3)


def test_an_op_that_is_defined_anew():
    for scale, more in ((2, ""), (3, ", int k=1"), (4, "")):
        with torch.library._scoped_library("smelt_test", "FRAGMENT") as lib:
            lib.define(f"scaled(Tensor x{more}) -> Tensor")
            lib.impl("scaled", lambda x, *_, scale=scale: x * scale, "CPU")
            compiled = smelt.compile(lambda x: torch.ops.smelt_test.scaled(x) + 1)
            for _ in range(3):
                assert torch.equal(compiled(torch.ones(3)), torch.full((3,), scale + 1.0))


def test_an_op_that_nobody_has_looked_up():
    library = torch.library.Library("smelt_looked_up", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")

    def function(x):
        return torch.ops.smelt_looked_up.twice(x.sin()) + torch.ops.smelt_looked_up.twice.default(x)

    compiled, x = smelt.compile(function, fullgraph=True), torch.randn(4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), x.sin() * 2 + x * 2)
