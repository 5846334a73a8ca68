"""Cases that could train wrongly in silence are right, or refused with the weights left as they were."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training.engine.small_networks import Head, loss, make_batch, make_blocks, plan_of
from training import engine
from training.engine import NonFiniteError
from training.engine.engine import FP16_SCALE, Engine
from training.engine.loss_scale import GOOD_STEPS, LARGEST, LossScale
from training.engine.recompute import Recompute

pytestmark = pytest.mark.usefixtures("one_thread")


def state_of(one: Engine) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in one.full_state_dict().items()}


def equal(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


class Marked(engine.TensorBatch):
    """Batch whose targets give their micro-batch."""

    def targets(self, microbatch: int) -> Any:
        return microbatch, super().targets(microbatch)


def spoilt(microbatch: int, spoil: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Any], Tensor]:
    """Loss that is altered for one micro-batch."""

    def of(logits_nk: Tensor, target: tuple[int, Tensor]) -> Tensor:
        value = loss(logits_nk, target[1])
        return value + spoil(logits_nk) if target[0] == microbatch else value

    return of


def root_at_zero(logits_nk: Tensor) -> Tensor:
    """A value of zero with an infinite gradient."""
    return ((logits_nk - logits_nk.detach()) ** 2).sum().sqrt()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda logits_nk: logits_nk.sum() * float("nan"), "the loss of micro-batch 2 in stage 0 on rank 0 is nan"),
        (lambda logits_nk: logits_nk.sum().exp() + 1e39, "the loss of micro-batch 2 in stage 0 on rank 0 is inf"),
        (root_at_zero, "gradients of micro-batch 2 in stage 0 on rank 0 are not finite"),
    ],
)
@pytest.mark.parametrize("strategy", ["single", "master"])
def test_a_step_with_numbers_that_are_not_finite_changes_nothing(strategy, spoil, says):
    batch = Marked(make_batch(4).parts)
    blocks, other_blocks = make_blocks("resnet"), make_blocks("resnet")
    one, other = Engine(blocks, plan_of(blocks, strategy)), Engine(other_blocks, plan_of(other_blocks, strategy))
    for trained in (one, other):
        trained.train_step(make_batch(3), loss)
    before = state_of(one), one.full_optimizer_state()

    with pytest.raises(NonFiniteError, match=rf"step 1: {says}\. No weight has changed") as error:
        one.train_step(batch, spoilt(2, spoil))
    assert error.value.microbatch == 2

    assert equal(state_of(one), before[0])
    assert equal(one.full_optimizer_state(), before[1])
    assert one.train_step(make_batch(3), loss) == other.train_step(make_batch(3), loss)
    assert equal(state_of(one), state_of(other))


def test_an_image_that_is_not_finite_leaves_no_trace_in_later_statistics():
    (image, classes), *others = make_batch(3).parts
    broken = image.clone()
    broken[0, 0, 0, 0] = float("inf")
    blocks, other_blocks = make_blocks("resnet"), make_blocks("resnet")
    one, other = Engine(blocks, plan_of(blocks)), Engine(other_blocks, plan_of(other_blocks))

    with pytest.raises(NonFiniteError, match="the loss of micro-batch 2"):
        one.train_step(engine.TensorBatch((*others, (broken, classes))), loss)
    one.train_step(make_batch(2), loss)

    other.train_step(make_batch(2), loss)
    assert equal(state_of(one), state_of(other))


class OneBuffer(engine.TensorBatch):
    """Careless loader that reads every image into the same memory."""

    buffer = torch.empty(0)

    def inputs(self, microbatch: int) -> Tensor:
        if not self.buffer.numel():
            type(self).buffer = torch.empty_like(super().inputs(0))
        return self.buffer.copy_(super().inputs(microbatch))


@pytest.mark.parametrize("recompute", [Recompute(), Recompute(1), Recompute(rest="norm")], ids=str)
def test_an_input_that_the_batch_fills_anew_is_not_trained_on(recompute):
    blocks = [nn.Conv2d(3, 4, 3), Head(4)]
    one = Engine(blocks, plan_of(blocks, "gpipe", recompute=recompute))

    with pytest.raises((ValueError, RuntimeError), match=r"changed in place after its forward|modified by an inplace"):
        one.train_step(OneBuffer(make_batch(3).parts), loss)


class OneBufferMet(OneBuffer):
    """The same, refilled exactly while the previous image is in use, which the network waits for."""

    filled = threading.Event()

    def inputs(self, microbatch: int) -> Tensor:
        value = super().inputs(microbatch)
        if microbatch:
            self.filled.set()
        return value


def test_an_input_that_is_filled_anew_while_the_next_is_read_ahead_is_not_trained_on():
    class Waits(nn.Module):
        def forward(self, x_nchw: Tensor) -> Tensor:
            assert OneBufferMet.filled.wait(60)
            return x_nchw

    blocks = [Waits(), nn.Conv2d(3, 4, 3), Head(4)]
    one = Engine(blocks, plan_of(blocks, prefetch=1))

    with pytest.raises(ValueError, match="changed in place after"):
        one.train_step(OneBufferMet(make_batch(2).parts), loss)
    one.close()


class Noisy(engine.TensorBatch):
    """Batch augmented with torch's own generator."""

    def inputs(self, microbatch: int) -> Tensor:
        image = super().inputs(microbatch)
        noise = torch.rand(())
        DRAWN.append(float(noise))
        return image + noise


DRAWN: list[float] = []


def test_what_a_batch_draws_is_another_number_for_each_step_and_micro_batch_and_the_same_in_another_run():
    runs = []
    for _ in range(2):
        DRAWN.clear()
        blocks = make_blocks("relu-chain")
        one = Engine(blocks, plan_of(blocks))
        for _ in range(3):
            one.train_step(Noisy(make_batch(2).parts), loss)
        runs.append(list(DRAWN))

    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 6


def test_statistics_that_nobody_keeps_equal_are_refused():
    """Only BatchNorm's are replayed; those of other layers would be counted twice when recomputed."""
    blocks = [nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, track_running_stats=True), Head(4)]
    one = Engine(blocks, plan_of(blocks))

    with pytest.raises(ValueError, match=r"forward changed the buffers 1\.running_mean"):
        one.train_step(make_batch(1), loss)


def test_a_mode_that_was_changed_is_still_refused_after_a_look_at_the_network():
    blocks = make_blocks("resnet")
    one = Engine(blocks, plan_of(blocks))
    layer = next(layer for layer in blocks[-1].modules() if layer is not blocks[-1])
    layer.eval()

    one.forward_only(make_batch(1))

    assert not layer.training
    with pytest.raises(ValueError, match=r"train\(\), eval\(\) or requires_grad"):
        one.train_step(make_batch(1), loss)


def test_outputs_keep_their_type():
    class Largest(nn.Module):
        def forward(self, x_nchw: Tensor) -> Tensor:
            return x_nchw.mean((2, 3)).argmax(1)

    blocks = [nn.Conv2d(3, 4, 1), Largest()]

    assert Engine(blocks, plan_of(blocks)).forward_only(make_batch(1))[0].dtype == torch.int64


def test_a_loss_in_sixteen_bits_is_scaled_in_thirty_two():
    def absolute(logits_nk: Tensor, _: Tensor) -> Tensor:
        return logits_nk.half().abs().sum()

    blocks = make_blocks("relu-chain")
    one = Engine(blocks, plan_of(blocks, precision="fp16"))

    result = one.train_step(make_batch(2), absolute)

    assert not result.skipped
    assert one.loss_scale.value == FP16_SCALE


def test_each_group_keeps_its_own_learning_rate():
    blocks = make_blocks("resnet")

    def two_groups(named: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        norms = [weight for _, weight in named if weight.ndim == 1]
        others = [weight for _, weight in named if weight.ndim > 1]
        return torch.optim.SGD([{"params": norms, "lr": 0.1}, {"params": others, "lr": 0.4}])

    one = Engine(blocks, plan_of(blocks, make_optimizer=two_groups))
    one.scale_lr(0.5)
    one.scale_lr(0.25)

    (optimizer,) = one._optimizers()
    assert [group["lr"] for group in optimizer.param_groups] == [0.025, 0.1]


def test_an_optimizer_is_told_the_names_in_the_whole_network():
    blocks = make_blocks("resnet")
    told: list[dict[str, Tensor]] = []

    def noting(named: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
        told.append(dict(named))
        return torch.optim.SGD([weight for _, weight in named], lr=0.1)

    Engine(blocks, plan_of(blocks, make_optimizer=noting))

    own, for_all = told  # for all, it is asked about weights that take no memory
    assert own == dict(nn.Sequential(*blocks).named_parameters())
    assert [(name, each.shape) for name, each in for_all.items()] == [(name, each.shape) for name, each in own.items()]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda blocks: blocks[1].eval(), r"1, 1\.norm1"),
        (lambda blocks: blocks[0].requires_grad_(False), r"0\.0\.weight"),
        (lambda blocks: blocks[4].train(False), r"4, 4\.0"),
    ],
)
def test_a_mode_that_is_changed_behind_the_engine_is_refused(change, named):
    blocks = make_blocks("resnet")
    one = Engine(blocks, plan_of(blocks))
    one.train_step(make_batch(1), loss)
    before = state_of(one)

    change(blocks)

    with pytest.raises(ValueError, match=rf"requires_grad of {named}.* in stage 0 changed after .* make a new engine"):
        one.train_step(make_batch(1), loss)
    assert equal(state_of(one), before)


@pytest.mark.parametrize(
    ("saved", "loaded", "says"),
    [
        (
            torch.optim.SGD,
            torch.optim.AdamW,
            r"momentum_buffer \(6,\), not exp_avg \(6,\), exp_avg_sq",
        ),
        (torch.optim.AdamW, torch.optim.SGD, r"exp_avg \(6,\).*, not momentum_buffer \(6,\)"),
    ],
)
def test_what_one_optimizer_remembers_is_not_given_to_another(saved, loaded, says):
    def engine_with(kind: Any) -> Engine:
        blocks = [nn.Conv2d(3, 6, 1), Head(6)]
        options: dict[str, Any] = {"momentum": 0.9} if kind is torch.optim.SGD else {}
        return Engine(blocks, plan_of(blocks, make_optimizer=lambda n: kind([w for _, w in n], lr=0.1, **options)))

    one, other = engine_with(saved), engine_with(loaded)
    one.train_step(make_batch(1), loss)

    with pytest.raises(ValueError, match=rf"does not fit {loaded.__name__}: for 0.bias it has {says}|for 0.weight"):
        other.load_full_optimizer_state(one.full_optimizer_state())
    assert other.full_optimizer_state() == {}
    other.train_step(make_batch(1), loss)


def test_the_first_weights_are_those_of_the_network_and_not_of_a_probe():
    """Probing an optimizer's state changes no weight."""
    blocks = make_blocks("resnet")
    one = Engine(blocks, plan_of(blocks))
    one.train_step(make_batch(1), loss)
    before = state_of(one)

    one.load_full_optimizer_state(one.full_optimizer_state())

    assert equal(state_of(one), before)
    assert all(weight.grad is None for block in blocks for weight in block.parameters())


def test_gradients_that_overflow_in_fp16_are_left_out_and_the_scale_is_lowered():
    blocks = make_blocks("relu-chain")
    one = Engine(blocks, plan_of(blocks, precision="fp16"))
    before = state_of(one)

    too_large = one.train_step(make_batch(2), lambda logits_nk, classes_n: loss(logits_nk, classes_n) * 1e4)

    assert too_large.skipped
    assert one.loss_scale.value == FP16_SCALE / 2
    assert equal(state_of(one), before)
    fine = one.train_step(make_batch(2), loss)
    assert not fine.skipped
    assert not equal(state_of(one), before)


def test_the_loss_scale_grows_again_after_many_good_steps():
    blocks = make_blocks("relu-chain")
    one = Engine(blocks, plan_of(blocks, precision="fp16"))
    one.loss_scale.value, one.loss_scale.good_steps = 2.0**3, GOOD_STEPS - 2

    scales = []
    for _ in range(3):
        one.train_step(make_batch(1), loss)
        scales.append(one.loss_scale.value)

    assert scales == [2.0**3, 2.0**4, 2.0**4]


def test_the_loss_scale_has_an_end():
    scale = LossScale(LARGEST, good_steps=GOOD_STEPS - 1, is_on=True)
    scale.note_good_step()
    assert scale.value == LARGEST

    halved = LossScale(4.0, good_steps=GOOD_STEPS - 1, is_on=True)
    assert halved.lower()
    halved.note_good_step()
    assert halved.value == 2.0

    least = LossScale(1.0, good_steps=GOOD_STEPS - 1, is_on=True)
    assert not least.lower()
    least.note_good_step()
    assert least.value == 2.0


def test_a_loss_scale_of_fp16_is_not_seen_in_losses_and_norms():
    """A power of two changes no bit of a value that fits."""
    results = []
    for scale in (2.0**3, 2.0**9):
        blocks = make_blocks("relu-chain")
        one = Engine(blocks, plan_of(blocks, precision="fp16"))
        one.loss_scale.value = scale
        results.append(one.train_step(make_batch(3), loss))

    assert results[0].losses == results[1].losses
    assert results[0].gradient_norm == pytest.approx(results[1].gradient_norm, rel=2e-3)  # fp16 loses small gradients
    assert results[0].loss < 3


def test_without_a_scale_to_lower_an_overflow_is_an_error():
    blocks = make_blocks("relu-chain")
    one = Engine(blocks, plan_of(blocks, precision="fp16"))
    one.loss_scale.value = 1.0

    with pytest.raises(NonFiniteError, match="gradients of micro-batch 0"):
        one.train_step(make_batch(1), lambda logits_nk, classes_n: loss(logits_nk, classes_n) * 1e9)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_forward_only_computes_in_the_precision_of_the_training(precision):
    blocks = make_blocks("relu-chain")
    one = Engine(blocks, plan_of(blocks, precision=precision))
    images_nchw = make_batch(1).inputs(0)

    (output,) = one.forward_only(make_batch(1))

    half = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    with torch.no_grad(), torch.autocast("cpu", dtype=half):
        expected = nn.Sequential(*blocks)(images_nchw)
    assert output.dtype == expected.dtype == half
    assert torch.equal(output, expected)


@pytest.mark.parametrize(
    ("bias", "says"),
    [(True, r"weights 0\.left\.weight, 0\.left\.bias; freeze"), (False, r"weights 0\.left\.weight; freeze")],
)
def test_weights_that_a_step_leaves_out_are_refused_by_name(bias, says):
    class Leaving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.left = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1, bias=bias)

        def forward(self, x_nchw: Tensor) -> Tensor:
            return self.used(x_nchw)

    blocks = [Leaving(), Head(4)]

    with pytest.raises(ValueError, match=f"does not depend on its {says} them"):
        Engine(blocks, plan_of(blocks)).train_step(make_batch(1), loss)


def test_a_graph_that_is_cut_is_refused():
    class Cut(nn.Conv2d):
        def forward(self, x_nchw: Tensor) -> Tensor:
            return super().forward(x_nchw.detach())

    blocks = [nn.Conv2d(3, 4, 1), Cut(4, 4, 1), Head(4)]

    with pytest.raises(ValueError, match="does not depend on the output of the block before it"):
        Engine(blocks, plan_of(blocks, recompute=Recompute(1))).train_step(make_batch(1), loss)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_forward_that_changes_a_buffer_is_refused_by_name(in_place):
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x_nchw: Tensor) -> Tensor:
            if in_place:
                self.seen += 1
            else:
                self.seen = self.seen + 1
            return x_nchw

    blocks = [nn.Conv2d(3, 4, 1), Counting(), Head(4)]

    with pytest.raises(ValueError, match=r"forward changed the buffers 1\.seen of stage 0"):
        Engine(blocks, plan_of(blocks)).train_step(make_batch(1), loss)
