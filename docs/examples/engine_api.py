"""Train a small U-Net, a list of blocks that pass tuples to each other, on as many ranks as there are.

python docs/examples/engine_api.py                                  # one rank
torchrun --nproc-per-node 2 docs/examples/engine_api.py             # two, GEMS: the same losses, to the last bit
torchrun --nproc-per-node 2 docs/examples/engine_api.py chimera     # or any other strategy
"""

import os
import sys

import torch
from torch import Tensor, nn

from training import engine


class Down(nn.Module):
    """Image -> fine features, kept for later, and coarse ones."""

    def __init__(self) -> None:
        super().__init__()
        self.fine, self.coarse = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, stride=2, padding=1)

    def forward(self, image_nchw: Tensor) -> tuple[Tensor, Tensor]:
        fine_nchw = torch.relu(self.fine(image_nchw))
        return fine_nchw, torch.relu(self.coarse(fine_nchw))


class Middle(nn.Module):
    """Works on the coarse features and hands the fine ones on."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())

    def forward(self, features: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return features[0], self.body(features[1])


class Up(nn.Module):
    """Both -> one number per pixel: is it inside?"""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(24, 1, 1)

    def forward(self, features: tuple[Tensor, Tensor]) -> Tensor:
        fine_nchw, coarse_nchw = features
        upper_nchw = nn.functional.interpolate(coarse_nchw, size=fine_nchw.shape[2:])
        return self.head(torch.cat([fine_nchw, upper_nchw], dim=1))


def loss(logits_n1hw: Tensor, masks_n1hw: Tensor) -> Tensor:
    """The sum over the samples of a micro-batch, never their mean: the engine divides by the whole batch."""
    pixels = nn.functional.binary_cross_entropy_with_logits(logits_n1hw, masks_n1hw, reduction="none")
    return pixels.mean((1, 2, 3)).sum()


torch.set_num_threads(1)  # as torchrun sets it for its ranks; other counts add in another order
torch.manual_seed(0)  # every rank makes the same network and the same images
num_ranks = int(os.environ.get("WORLD_SIZE", "1"))
ranks = engine.connect_ranks(timeout_s=600) if num_ranks > 1 else engine.alone()
strategy = sys.argv[1] if len(sys.argv) > 1 else "single" if num_ranks == 1 else "master"
blocks = [Down(), Middle(), Middle(), Up()]
images_nchw = torch.rand(7, 3, 32, 48)
masks_n1hw = (images_nchw.mean(1, keepdim=True) > 0.5).float()

batch = engine.split(images_nchw, masks_n1hw, microbatch_size=2)  # three of two samples and one of one
plan = engine.make_plan(
    strategy,
    num_stages=num_ranks,
    num_microbatches=4,
    costs=[cost.flops for cost in engine.block_costs(blocks, (2, 3, 32, 48))],
    recompute=engine.Recompute(every=1),
    make_optimizer=lambda weights: torch.optim.Adam(weights, lr=0.01),
)
trained = engine.Engine(blocks, plan, ranks=ranks)
losses = [trained.train_step(batch, loss).loss for _ in range(10)]
right = (torch.cat(trained.forward_only(batch)) > 0) == (masks_n1hw > 0)  # outputs come to every rank
state = trained.full_state_dict()  # what all ranks have learned, on every rank
if int(os.environ.get("RANK", "0")) == 0:
    print(*losses, f"{right.float().mean():.1%} of the pixels are right", sep="\n")  # noqa: T201
ranks.close()
