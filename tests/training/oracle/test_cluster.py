"""Clusters that a file describes: their links are shared, their files may be wrong."""

from dataclasses import replace
from pathlib import Path

import pytest

from training.engine.partition import BlockCost
from training.engine.strategies import build_schedule, place
from training.foundation.errors import BadRecipeError
from training.oracle.clusters.cluster import CLUSTERS_DIR, TRAFFIC, Cluster, load_cluster
from training.oracle.simulation.costs import StageCost
from training.oracle.simulation.simulate import simulate

STAGES = [
    StageCost(1.0, 2.5, weight_bytes=400),
    StageCost(1.5, 2.0, input_bytes=60, gradient_bytes=40, weight_bytes=100),
]
TEXT = (CLUSTERS_DIR / "abci_v100.toml").read_text()


def cluster(gpus=2, alpha_s=0.0):
    return Cluster.model_validate(
        {
            "name": "test",
            "gpu": {
                "name": "g", "memory_bytes": 1000, "flops_per_s": {"fp32": 100.0}, "bytes_per_s": 17.5,
                "share": 0.5, "host_bytes_per_s": 2.0,
            },
            "node": {"gpus": gpus, "alpha_s": alpha_s, "bytes_per_s": 1000.0},
            "network": {"alpha_s": alpha_s, "bytes_per_s": 100.0},
        }
    )  # fmt: skip


@pytest.mark.parametrize("name", ["abci_v100", "h100_nvlink", "h100_nvlink.toml"])
def test_shipped_clusters_are_found_by_name(name):
    found = load_cluster(Path(name))

    assert found.source
    assert found.named.endswith("(not measured)")


def test_a_block_takes_as_long_as_its_slower_limit():
    compute, memory = BlockCost(1000, 1, 0), BlockCost(1, 30, 0, norm_bytes=10)
    first, second = (each.times for each in cluster().with_times([compute, memory], "fp32"))

    assert (first.forward_s, first.backward_s) == (20.0, 40.0)
    assert second.forward_s + second.backward_s == pytest.approx(TRAFFIC * 30 / (17.5 * 0.5))
    assert second.norm_s == pytest.approx(2 * 20 / (17.5 * 0.5))
    assert second.offload_s == 30.0


def test_messages_out_of_a_node_share_its_card():
    network = cluster().network_between()
    names = {pair: {link.name for link in network(*pair)} for pair in ((0, 1), (0, 2), (1, 3), (2, 0))}

    assert names[0, 1] == {"0 to 1"}
    assert names[0, 2] == names[1, 3] == {"out of node 0", "into node 1"}
    assert not names[0, 2] & names[2, 0]


@pytest.mark.parametrize("strategy", ["mp-basic", "master", "gpipe", "1f1b", "chimera"])
@pytest.mark.parametrize("gpus", [2, 4, 16])
def test_one_group_with_the_sums_of_all_takes_as_long_as_all_groups(strategy, gpus):
    """Groups within a node, two of them in one, and all in one."""
    group = build_schedule(strategy, num_stages=2, num_microbatches=4)
    everyone = build_schedule(strategy, num_stages=2, num_microbatches=16, data_parallel=4)
    placement = place(strategy, num_stages=2, data_parallel=4)

    alone = simulate(group, cluster(gpus).group_costs(STAGES, group, placement)).end_s
    assert alone == pytest.approx(simulate(everyone, cluster(gpus).costs(STAGES, placement)).end_s, rel=0.08)


def test_a_card_that_were_not_shared_would_be_noticed():
    """The planted fault: each GPU with a card of its own."""
    shared = cluster(2)
    holders = place("single", num_stages=1, data_parallel=8).holders(0)
    own = shared.model_copy(update={"network": shared.network.model_copy(update={"bytes_per_s": 200.0})})

    assert shared.swap_s(holders, 50.0, 8) == pytest.approx(2 * own.swap_s(holders, 50.0, 8))
    assert shared.swap_s(holders, 50.0, 8) == pytest.approx(6 * 2 * 50.0 / 100.0)


def test_messages_that_take_no_time_cost_nothing():
    group = build_schedule("1f1b", num_stages=2, num_microbatches=4)
    placement = place("1f1b", num_stages=2, data_parallel=4)
    slow, free = cluster(alpha_s=1.0), cluster(alpha_s=1.0).without_messages()
    bare = [replace(stage, input_bytes=0, gradient_bytes=0) for stage in STAGES]

    with_s, without_s = (simulate(group, each.group_costs(STAGES, group, placement)).end_s for each in (slow, free))
    assert without_s < with_s
    assert without_s == pytest.approx(simulate(group, free.group_costs(bare, group, placement)).end_s)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("gpus = 4", "gpus = 0"), r"\[node\] gpus = 0: Input should be greater"),
        (("share = 0.85", "share = 1.5"), r"\[gpu\] share = 1.5"),
        (("bytes_per_s = 12.5e9", "bytes_per_s = inf"), r"\[network\] bytes_per_s = inf"),
        (("[network]", "[net]"), "unknown key .?net"),
        (("name = ", "nam = "), "name"),
        (("[node]", "[node"), "cannot be read as a cluster"),
    ],
)
def test_a_file_that_is_no_cluster_is_refused(tmp_path, change, says):
    path = tmp_path / "c.toml"
    path.write_text(TEXT.replace(*change, 1))

    with pytest.raises(BadRecipeError, match=says):
        load_cluster(path)


def test_an_unknown_cluster_names_the_shipped_ones():
    with pytest.raises(BadRecipeError, match="shipped ones: abci_v100, h100_nvlink"):
        load_cluster(Path("none"))


def test_a_precision_without_a_rate_is_refused():
    with pytest.raises(BadRecipeError, match="flops_per_s is missing for bf16; it names fp32, fp16"):
        load_cluster(Path("abci_v100")).with_times([BlockCost(1, 1, 1)], "bf16")
