"""Metrics of predictions, as numbers and images for the training log."""

from __future__ import annotations

from io import BytesIO

import matplotlib
import numpy as np
import torch
from numpy.typing import NDArray
from torchmetrics.functional import classification

from training.packages.intervals import Area

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

Probabilities = NDArray[np.float32]
"""float32 of shape (tiles, classes), rows summing to 1."""


def classification_metrics(labels: NDArray[np.int64], probabilities_nk: Probabilities) -> dict[str, float]:
    """Loss, accuracy, balanced accuracy, F1, area under the ROC curve and calibration error of some predictions.

    F1 and area are means over classes, each against the rest. The calibration error is the mean distance between
    confidence and accuracy over 15 bins (Guo et al., ICML 2017). The area is omitted where it is undefined: when a
    class does not occur.
    """
    predicted = probabilities_nk.argmax(1)
    exact = probabilities_nk.astype(np.float64)
    exact /= exact.sum(1, keepdims=True)  # float32 rows do not sum to exactly 1
    num_classes = probabilities_nk.shape[1]
    present = np.unique(labels)
    scores, truth = torch.from_numpy(exact), torch.from_numpy(labels)
    metrics = {
        "loss": float(-np.log(np.maximum(exact[np.arange(len(labels)), labels], np.finfo(float).eps)).mean()),
        "accuracy": float((predicted == labels).mean()),
        "balanced_accuracy": float(np.mean([(predicted[labels == k] == k).mean() for k in present])),
        "f1": float(classification.multiclass_f1_score(scores, truth, num_classes=num_classes, average="macro")),
        "calibration_error": float(classification.multiclass_calibration_error(scores, truth, num_classes=num_classes)),
    }
    if len(present) == num_classes:
        areas = [Area(labels == k, probabilities_nk[:, k]) for k in range(num_classes)]
        metrics["auc"] = float(np.mean([area.weighted(np.ones(len(labels))) for area in areas]))
    return {name: value for name, value in metrics.items() if np.isfinite(value)}


def slide_metrics(
    labels: NDArray[np.int64], probabilities_nk: Probabilities, slides: NDArray[np.str_]
) -> dict[str, float]:
    """The figures of `classification_metrics` except the loss for whole slides, each named `slide_…`.

    Empty if fewer than two slides have a label.
    """
    slide_labels, means = slide_means(labels, probabilities_nk, slides)
    if len(slide_labels) < 2:
        return {}
    figures = classification_metrics(slide_labels, means)
    return {f"slide_{name}": value for name, value in figures.items() if name != "loss"}


def slide_means(
    labels: NDArray[np.int64], probabilities_nk: Probabilities, slides: NDArray[np.str_]
) -> tuple[NDArray[np.int64], Probabilities]:
    """Labels of whole slides, and the means of their tiles' probabilities.

    Only slides whose tiles all have the same label have one themselves; the others are left out.
    """
    names, first, index = np.unique(slides, return_index=True, return_inverse=True)
    is_one = np.array([(labels[index == slide] == labels[at]).all() for slide, at in enumerate(first)])
    sums = np.zeros((len(names), probabilities_nk.shape[1]))
    np.add.at(sums, index, probabilities_nk)
    means = (sums / np.bincount(index)[:, None])[is_one].astype(np.float32)
    return labels[first][is_one], means


def confusion_image(
    labels: NDArray[np.int64], probabilities_nk: Probabilities, classes: tuple[str, ...]
) -> NDArray[np.uint8]:
    """Confusion matrix as an image, uint8 (height, width, 3)."""
    predicted = torch.from_numpy(probabilities_nk.argmax(1))
    matrix = classification.multiclass_confusion_matrix(predicted, torch.from_numpy(labels), num_classes=len(classes))
    counts = matrix.numpy()
    figure, axes = plt.subplots(figsize=(4, 3.6), dpi=100)
    axes.imshow(counts, cmap="Blues")
    axes.set(xticks=range(len(classes)), yticks=range(len(classes)), xlabel="predicted", ylabel="label")
    axes.set_xticklabels(classes)
    axes.set_yticklabels(classes)
    for row, column in np.ndindex(counts.shape):
        dark = counts[row, column] > counts.max() / 2
        axes.text(column, row, str(counts[row, column]), ha="center", color="white" if dark else "black")
    return _pixels(figure)


def tile_image(
    tiles_nhwc: NDArray[np.uint8],
    labels: NDArray[np.int64],
    probabilities_nk: Probabilities,
    classes: tuple[str, ...],
) -> NDArray[np.uint8]:
    """Tiles with their labels and predictions, uint8 (height, width, 3)."""
    figure, grid = plt.subplots(2, 4, figsize=(8, 4.6), dpi=100)
    for axes in grid.flat:
        axes.axis("off")
    for axes, tile, label, row in zip(grid.flat, tiles_nhwc, labels, probabilities_nk, strict=False):
        axes.imshow(tile)
        predicted = int(row.argmax())
        colour = "green" if predicted == label else "red"
        axes.set_title(f"{classes[label]} → {classes[predicted]} {row[predicted]:.2f}", fontsize=7, color=colour)
    return _pixels(figure)


def _pixels(figure: Figure) -> NDArray[np.uint8]:
    figure.tight_layout()
    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    plt.close(figure)
    buffer.seek(0)
    return (plt.imread(buffer)[..., :3] * 255).astype(np.uint8)
