"""Class names that mean "negative" are recognised in many spellings, and names that only sound alike are not."""

from __future__ import annotations

import pytest

from training.foundation.words.class_order import is_negative_class, lesion_classes, order_warning, positive_of_two

NEGATIVE = (
    "normal", "Normal", "NORM", "normal mucosa", "Healthy_tissue", "healthy (control)", "Benign-gland",
    "benign tumour", "negative", "Neg", "tumour_negative", "negative for malignancy", "NILM", "NAT", "WNL",
    "uninvolved",
    "tumour-adjacent normal", "background", "BG", "BACK", "glass", "other", "none", "non-tumour", "NonTumor",
    "nontumor", "non_neoplastic", "noncancerous", "no tumor", "no_lesion", "notumor", "not malignant",
    "without metastasis", "tumor-free", "tumorfrei", "0_normal", "gesund", "Gesundes Gewebe", "Normalgewebe",
    "gutartig", "kein Tumor", "Nicht-Tumor", "unauffällig", "negativ", "Hintergrund", "sain", "tissu sain", "bénin",
    "négatif", "non tumoral", "sans tumeur", "fond", "sano", "benigno", "sin tumor", "no tumoral", "fondo",
    "senza tumore", "sfondo", "saudável", "não tumoral", "sem tumor", "gezond", "geen_tumor", "goedaardig", "frisk",
    "zdrowy", "łagodny", "sağlıklı", "норма", "фон", "正常", "良性", "陰性", "정상",
)  # fmt: skip
OTHERS = (
    "tumour", "abnormal", "not normal", "nicht normal", "unhealthy", "ungesund", "non-benign", "positive", "malignant",
    "HER2 negative", "triple negative", "non-small-cell", "Non-Hodgkin lymphoma", "carcinoma in situ",
    "necrosis in tumour", "tumour without metastasis", "other carcinoma", "background tumour", "stroma", "lymphocytes",
    "grade 1", "AC", "H", "S", "cold", "warm", "paranormal", "normalised", "tissue", "lymph node", "异常", "不正常",
    "1", "-",
)  # fmt: skip


@pytest.mark.parametrize("name", NEGATIVE)
def test_a_class_that_means_nothing_to_find_is_known_by_its_name(name):
    assert is_negative_class(name)
    assert "classes = [" in order_warning(["carcinoma", name], setting="it")
    assert lesion_classes(["carcinoma", name]) == lesion_classes([name, "carcinoma"]) == ("carcinoma",)


@pytest.mark.parametrize("name", OTHERS)
def test_a_class_that_only_sounds_so_is_not(name):
    assert not is_negative_class(name)
    assert order_warning(["carcinoma", name], setting="it") is None
    assert lesion_classes(["carcinoma", name]) == (name,)


@pytest.mark.parametrize(
    ("classes", "lesions"),
    [
        (["cold", "warm"], ("warm",)),
        (["adenoma", "normal", "polyp"], ("adenoma", "polyp")),
        (["background", "normal", "tumour"], ("tumour",)),
        (["normal", "benign"], ("benign",)),  # of two negative classes, only the order decides
        (["H"], ("H",)),
        (["normal"], ("normal",)),
    ],
)
def test_lesions_are_what_the_order_and_the_names_leave(classes, lesions):
    assert lesion_classes(classes) == lesions


def test_of_two_classes_the_positive_one_is_not_the_healthy_one():
    assert [positive_of_two(names) for names in (["a", "b"], ["normal", "b"], ["b", "normal"])] == [1, 1, 0]


def test_the_warning_names_the_setting_and_an_order_to_paste():
    warning = order_warning(["adenoma", "carcinoma", "normal"], setting="the order in gemslide.toml")

    assert warning is not None
    assert 'Set the order in gemslide.toml: classes = ["normal", "adenoma", "carcinoma"]' in warning
