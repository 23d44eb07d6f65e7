"""Trainings as people write them, in eager and compiled: what each step returns, and in the end parameters, gradients and
the state of optimizers."""

import functools

import generated
import pytest
import runs_autograd
import runs_images
import runs_loops
import runs_models
import runs_optimizers
import runs_sequences
import runs_state
import torch
from runs_session import FORMS, play

import smelt

TOLERANCE = 1e-4  # of the largest element
NOISE = 2e-6  # what is left of a gradient that is zero, like that of a bias in front of a batch norm
LOW_PRECISION = {"autocast_bfloat16": 3e-2, "model_in_bfloat16": 3e-2, "scaler_float16": 3e-3, "scaler_with_overflow": 3e-2}

# Sizes that vary: the limit of variants is told of (docs/compile.md), and Python goes on.
PAST_THE_LIMIT = {"recommender_sparse_adam", "mixture_of_experts", "lbfgs", "lbfgs_strong_wolfe", "growing_sequences"}
# What is part of the program differs from step to step: sizes, numbers in a text or in code of the user's that autograd calls.
# Or there are more pieces than the first steps came to.
KEEPS_CHANGING = {"printing_now_and_then", "packed_sequences", "cutmix", "gradient_reversal", "reinforce_episodes",
                  "backward_hooks", "checkpoint_of_a_sequence"}  # fmt: skip
# What is run op by op: backward passes inside of a step that are more than gradients of a loss, sparse gradients, a branch
# or a size by a tensor's contents everywhere, nothing to compile.
OP_BY_OP = {
    "model": {"recommender_sparse_sgd", "recommender_sparse_adam", "embedding_max_norm", "raw_tensors_by_hand",
              "func_grad_training", "binary_activations", "codebook_by_averages"},
    "step": {"wgan_gradient_penalty", "recommender_sparse_sgd", "unet_dice", "asgd", "validation_inside_the_step",
             "several_losses_retain_graph", "maml", "maml_first_order", "maml_functional_call", "hessian_vector_product",
             "gradient_penalty_of_double_backward", "gradient_surgery", "physics_informed", "codebook_by_averages",
             "numpy_comes_in", "outputs_kept_and_used_later", "noise_with_a_generator", "quantized_straight_through"},
}  # fmt: skip

# Whatever the form, nothing breaks these.
IN_ONE_PIECE = {"mlp_sgd", "gpt_tied_weights", "bert_masked_words", "resnet_with_inplace_relu", "dcgan_two_optimizers",
                "vector_valued_backward", "autograd_backward_of_many", "accumulation_in_the_step", "zeroed_in_place",
                "accumulation_of_chunks", "radam", "plateau", "rate_changed_by_hand", "spectral_norm", "lookahead_slow_weights",
                "state_in_an_attribute", "trainer_class", "whole_epoch_compiled", "scaler_with_overflow"}  # fmt: skip

FILES = (runs_models, runs_images, runs_sequences, runs_optimizers, runs_loops, runs_autograd, runs_state)
RUNS = {run.__name__: run for file in FILES for run in file.RUNS}


@functools.cache
def eager(name):
    return play(RUNS[name], None)


def compare(found, expected, tolerance, path=""):
    assert type(found) is type(expected), path
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for key in expected:
            compare(found[key], expected[key], tolerance, f"{path}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), path
        for i, pair in enumerate(zip(found, expected)):
            compare(*pair, tolerance, f"{path}[{i}]")
    elif isinstance(expected, torch.Tensor):
        largest = expected.abs().max().nan_to_num().item() if expected.numel() else 0
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance * largest + NOISE, equal_nan=True,
                                   msg=lambda text: f"{path}: {text}")  # fmt: skip
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=tolerance, abs=NOISE, nan_ok=True), path
    elif not callable(expected):
        assert found == expected, path


def test_there_are_many():
    assert len(RUNS) == sum(len(file.RUNS) for file in FILES) >= 80


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", RUNS)
def test_run(name, form):
    expected, warnings = eager(name)
    session, more = play(RUNS[name], form)
    compare(session.notes, expected.notes, LOW_PRECISION.get(name, TOLERANCE))
    new = [text for text in more if text not in warnings]
    if name in PAST_THE_LIMIT:
        assert all("was compiled" in text for text in new)
        return
    assert new == []
    assert name in KEEPS_CHANGING or not any(session.recompiles[-2:]), session.recompiles
    if generated.HAS_KERNELS and name not in OP_BY_OP[form]:
        assert smelt.stats()["kernels"] > 0
    if name in IN_ONE_PIECE:
        assert smelt.stats()["graph_breaks"] == 0
