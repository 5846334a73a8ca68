"""ParaDL projections from a table of layers: closed forms, the authors' numbers, and tables that somebody sent."""

from pathlib import Path

import pytest

from training.foundation.errors import BadRecipeError
from training.oracle.clusters.cluster import Cluster, load_cluster
from training.oracle.layers_table import ITEM_BYTES, Epoch, Layer, load_layers, project

ALPHA_S, BYTES_PER_S = 1e-3, 1e9
CLUSTER = Cluster.model_validate(
    {
        "name": "test",
        "gpu": {
            "name": "g", "memory_bytes": 10**6, "flops_per_s": {"fp32": 1e12}, "bytes_per_s": 1e12,
            "host_bytes_per_s": 1e10,
        },
        "node": {"gpus": 2, "alpha_s": 0.0, "bytes_per_s": 1e15},
        "network": {"alpha_s": ALPHA_S, "bytes_per_s": BYTES_PER_S},
    }
)  # fmt: skip
HEADER = "layer,x_channels,x_height,x_width,y_channels,y_height,y_width,kernel,weights,forward_s,backward_s,update_s"
TABLE = f"""{HEADER}
stem,3,8,6,16,8,6,3,432,0.001,0.002,0.01
body,16,8,6,8,4,3,3,1152,0.003,0.006,0.02
head,8,4,3,2,4,3,1,16,0.001,0.001,0.005
"""


def layers(tmp_path, text=TABLE):
    path = tmp_path / "layers.csv"
    path.write_text(text)
    return load_layers(path)


def rows_of(epoch, worlds):
    return {(row["strategy"], row["world"]): row for row in project(epoch, worlds)}


@pytest.fixture
def epoch(tmp_path):
    return Epoch(layers(tmp_path), samples=640, batch=16, cluster=CLUSTER)


def test_the_authors_own_projection_of_resnet_50_comes_out():
    """Computing and memory of data parallelism, from log/data_resnet_scaling_proj.log of their public repository."""
    whole = Layer(
        layer="ResNet-50", x_channels=14971596, x_height=1, x_width=1, y_channels=14819368, y_height=1, y_width=1,
        weights=22734016, forward_s=0.003119502,
    )  # fmt: skip

    for p, computing_s in {2: 1996.48128, 16: 249.56016, 128: 31.19502, 2048: 1.94968875}.items():
        row = rows_of(Epoch([whole], 1_280_000, 64 * p, load_cluster(Path("abci_v100"))), [p])["data", p]
        assert row["computing_s"] == pytest.approx(computing_s)
        assert row["bytes"] == 15434845696
        assert row["fits"]


def test_data_parallelism_sums_the_weights_once_an_iteration(epoch):
    row = rows_of(epoch, [4])["data", 4]
    weight_bytes = (432 + 1152 + 16) * ITEM_BYTES

    assert row["computing_s"] == pytest.approx(640 / 4 * 0.014 + 40 * 0.035)
    assert row["communication_s"] == pytest.approx(40 * 2 * 3 * (ALPHA_S + weight_bytes / 4 / BYTES_PER_S))
    assert row["epoch_s"] == row["computing_s"] + row["communication_s"]


def test_a_pipeline_updates_its_weights_once_an_iteration(epoch):
    """The report prints that term without the number of iterations."""
    row = rows_of(epoch, [3])["pipeline", 3]

    assert row["computing_s"] == pytest.approx(640 * (3 + 3 - 1) / 3 * (0.003 + 0.006) + 40 * 0.02)
    largest_bytes = 16 / 3 * (16 * 8 * 6) * ITEM_BYTES
    assert row["communication_s"] == pytest.approx(2 * 40 * (3 + 3 - 2) * (ALPHA_S + largest_bytes / BYTES_PER_S))


def test_data_and_filter_send_what_the_table_says(epoch):
    """Half of what the report's equation 14 does."""
    row = rows_of(epoch, [8])["data+filter", 8]
    weight_bytes = (432 + 1152 + 16) * ITEM_BYTES
    gathered_s = 3 * sum(16 * y / 8 * ITEM_BYTES / 1e15 for y in (16 * 8 * 6, 8 * 4 * 3))

    wanted = 40 * (gathered_s + 2 * 3 * (ALPHA_S + weight_bytes / 8 / BYTES_PER_S))
    assert row["communication_s"] == pytest.approx(wanted)
    assert row["bytes"] == 2 * ITEM_BYTES * (16 / 4 * (144 + 768 + 768 + 96 + 96 + 24) + 1600 / 2)


def test_spatial_parallelism_exchanges_edges_of_windows_only(epoch, tmp_path):
    text = TABLE.replace(",3,1152", ",1,1152")
    without = Epoch(layers(tmp_path, text), 640, 16, CLUSTER)
    with_s, without_s = (rows_of(each, [4])["spatial", 4]["communication_s"] for each in (epoch, without))
    halo = 16 * 8 + 8 * 4

    assert with_s - without_s == pytest.approx(40 * 2 * (2 * ALPHA_S + 16 * halo * ITEM_BYTES / BYTES_PER_S))
    assert without_s > rows_of(epoch, [4])["data", 4]["communication_s"]


def test_what_cannot_be_split_so_far_is_named_and_not_priced(epoch):
    rows = rows_of(epoch, [1, 3, 32])

    assert "epoch_s" in rows["serial", 1]
    assert ("serial", 3) not in rows
    assert ("data", 1) not in rows
    assert rows["spatial", 32]["refused"] == "at most 12 ranks: positions of the smallest output of a window"
    assert rows["data", 32]["refused"] == "at most 16 ranks: a sample for each"
    assert rows["pipeline", 32]["refused"] == "at most 3 ranks: a layer for each"
    assert rows["filter", 3]["refused"] == "at most 2 ranks: filters of a layer"
    assert rows["channel", 32]["refused"] == "at most 8 ranks: channels of a layer"
    assert rows["data+spatial", 3]["refused"] == "3 ranks do not fill nodes of 2"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "0 layers; a table has 1 to"),
        (HEADER, "0 layers; a table has 1 to"),
        (TABLE + "more,1\n", "line 5: it has more or fewer cells than the header"),
        (TABLE.replace("16,8,6,3,432", "16,8,6,3,-1"), "line 2: weights = -1: Input should be greater"),
        (TABLE.replace("0.003", "inf"), "line 3: forward_s"),
        (TABLE.replace("forward_s", "forwards_s"), "did you mean `forward_s`"),
        (TABLE.replace("stem,3", "stem,three"), "line 2: x_channels"),
        ("\x00" * 100, "cannot be read as a table of layers|0 layers"),
    ],
)
def test_a_table_that_is_none_is_refused_with_its_line(tmp_path, text, says):
    with pytest.raises(BadRecipeError, match=says):
        layers(tmp_path, text)
