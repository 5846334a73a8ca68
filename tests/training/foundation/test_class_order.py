"""Class names that mean "negative" are recognised in many spellings, and names that only sound alike are not."""

from __future__ import annotations

import pytest

from training.foundation.words import class_lesions, class_words
from training.foundation.words.class_order import (
    _words,
    is_negative_class,
    lesion_classes,
    order_warning,
    positive_of_two,
)

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
    "tumor absent", "absent", "tumour not present", "not detected", "No lesion seen", "absence of tumor",
    "lack of tumor",    "tumorlos", "IDC(-)", "tumor (negative)", "negative (for malignancy)", "no tumor or metastasis",
    "no evidence of residual tumour", "normal adjacent to tumor", "benign adenoma", "lymph node, no melanoma",
    "tumor negative, no metastasis",
    "zdrowy", "łagodny", "sağlıklı", "норма", "здоровый", "доброкачественный", "отрицательный", "фон", "正常", "良性",
    "陰性", "정상",
    "sehat", "jinak", "tanpa tumor", "tidak ada tumor", "bukan kanker",
    "φυσιολογικό", "Φυσιολογικός", "υγιής", "καλόηθες", "χωρίς όγκο", "αρνητικό", "sunt", "ikke tumor",
    "svulstfri", "rask", "kræftfri", "ingen kreft", "inte tumör", "tumörfri", "frisk vävnad", "zdravo", "brez tumorja",
    "negativno", "dobroćudno", "nema tumora", "bình thường", "lành tính", "không có u", "âm tính", "yok", "tümör yok",
    "tümörsüz", "tümör olmayan", "tumormentes", "daganatmentes", "nezhoubný", "bez nádoru", "nenádorový", "нормальний",
    "здорова", "без пухлини", "доброякісний", "sănătoasă", "fără tumoră", "ei kasvainta", "terveet", "tausta",
    "paratumor", "peritumoral", "peri-tumoral", "Peritumoral stroma", "para-cancerous tissue", "tumour-adjacent tissue",
    "adjacent to tumor", "癌旁", "NDBE", "pN0", "ypN0", "pN0(i-)", "cM0",
    "u lành tính", "незлокачественный", "tümör değil", "jinak", "selim",
)  # fmt: skip
OTHERS = (
    "tumour", "abnormal", "not normal", "nicht normal", "unhealthy", "ungesund", "non-benign", "positive", "malignant",
    "HER2 negative", "triple negative", "non-small-cell", "Non-Hodgkin lymphoma", "carcinoma in situ",
    "necrosis in tumour", "tumour without metastasis", "other carcinoma", "background tumour", "stroma", "lymphocytes",
    "grade 1", "AC", "H", "S", "cold", "warm", "paranormal", "normalised", "tissue", "lymph node", "异常", "不正常",
    "DCIS without invasion", "adenoma without dysplasia", "HSIL, no invasion", "node-negative carcinoma",
    "lymph node negative cancer", "node negative and carcinoma", "metastasis-free melanoma",
    "LSIL negative for malignancy", "tumor negative for metastasis", "atypia negative for malignancy",
    "low-grade dysplasia, negative for high-grade dysplasia",
    "dysplasia, no cancer", "gleason 3 no cancer", "no invasion, carcinoma", "suspicious, not malignant",
    "non-invasive carcinoma", "invasive carcinoma with benign glands", "carcinoma, normal margins",
    "carcinoma, margin negative", "melanoma in benign nevus", "normal/tumor border", "benign or malignant",
    "Karzinom ohne Metastasen", "Adenom ohne Dysplasie", "IDC(+)", "HER2(-)", "detected", "nonstroma", "stroma-free",
    "1", "-",
    "non-seminoma", "Nonseminoma", "non-seminomatous germ cell tumour", "Nicht-Seminom", "Normal-like", "normal like",
    "non-Hodgkin", "non-small cell", "AML with normal karyotype", "neuroma", "nephroblastoma", "neoplasm",
    "distant metastasis", "peritumoral invasion", "peritumoral lymphocytes", "pN1", "pN0(i+)", "N0S1", "M0",
    "không bình thường", "tidak normal", "normal değil", "yes", "true", "+", "0",
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


@pytest.mark.parametrize(
    "classes",
    [["mutant", "wild type"], ["MSI", "MSS"], ["dMMR", "pMMR"], ["mut", "WT"], ["KRAS mut", "KRAS_wildtype"]],
)
def test_a_later_baseline_is_asked_about_and_not_chosen_in_silence(classes):
    warning = order_warning(classes, setting="it")

    assert warning is not None
    assert f'classes = ["{classes[1]}", "{classes[0]}"]' in warning
    assert order_warning(classes[::-1], setting="it") is None
    assert lesion_classes(classes) == (classes[1],)  # the position decides until somebody says otherwise


DENIED = [
    ("necrosis", "no necrosis"), ("TILs", "without TILs"), ("Nekrose", "keine Nekrose"), ("with budding", "no budding"),
    ("yes", "no"), ("Yes", "No"), ("oui", "non"), ("ja", "nein"), ("true", "false"), ("True", "False"), ("+", "-"),
    ("CMV+", "CMV-"), ("CMV +", "CMV −"), ("EBV(+)", "EBV(-)"), ("HPV", "HPV-"), ("CD3+ cells", "CD3- cells"),
    ("H. pylori +ve", "H. pylori -ve"), ("MMR positive", "MMR negative"), ("infarct present", "infarct absent"),
    ("1", "0"), ("class_1", "class_0"), ("HER2 1+", "HER2 0"), ("nekroz var", "nekroz yok"), ("有坏死", "无坏死"),
    ("tumor_yes", "tumor_no"), ("HER2+ carcinoma", "HER2- carcinoma"),
    ("inflamed", "not inflamed"), ("坏死", "无坏死"), ("壊死あり", "壊死なし"),
]  # fmt: skip


@pytest.mark.parametrize(("stated", "denial"), DENIED)
def test_a_later_class_that_denies_the_first_is_the_negative_one(stated, denial):
    warning = order_warning([stated, denial], setting="it")

    assert warning is not None
    assert f'classes = ["{denial}", "{stated}"]' in warning
    assert order_warning([denial, stated], setting="it") is None
    assert lesion_classes([stated, denial]) == lesion_classes([denial, stated]) == (stated,)


@pytest.mark.parametrize(
    ("one", "other"), [("necrotic", "non-necrotic"), ("TIL", "NonTIL"), ("infarkt", "infarktfrei")]
)
def test_a_later_class_that_may_deny_the_first_is_asked_about(one, other):
    assert order_warning([one, other], setting="it") is not None
    assert lesion_classes([one, other]) == (other,)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("seminoma", "non-seminoma"), ("Hodgkin", "non-Hodgkin"), ("small cell", "non-small cell"), ("2", "1"),
        ("keratinizing", "non-keratinizing"), ("Basal", "Normal-like"), ("CD3+", "CD4-"), ("ER+ PR-", "ER- PR+"),
        ("10", "1"), ("typical", "atypical"), ("differentiated", "undifferentiated"),
        ("G1", "G2"), ("stage I", "stage II"),
    ],
)  # fmt: skip
def test_two_kinds_of_a_thing_do_not_deny_each_other(one, other):
    assert order_warning([one, other], setting="it") is None
    assert lesion_classes([one, other]) == (other,)


def test_of_more_classes_the_named_healthy_one_decides():
    classes = ["ER+ tumour", "ER- tumour", "normal"]

    assert lesion_classes(classes) == ("ER+ tumour", "ER- tumour")
    assert 'classes = ["normal"' in (order_warning(classes, setting="it") or "")
    assert order_warning(["normal", "CMV+", "CMV-"], setting="it") is None


def test_a_lesion_that_only_lacks_something_keeps_its_hotspots():
    assert lesion_classes(["healthy", "DCIS without invasion", "DCIS with invasion"]) == (
        "DCIS without invasion", "DCIS with invasion",
    )  # fmt: skip
    assert lesion_classes(["carcinoma, normal margins", "healthy"]) == ("carcinoma, normal margins",)


def test_of_two_classes_the_positive_one_is_not_the_healthy_one():
    assert [positive_of_two(names) for names in (["a", "b"], ["normal", "b"], ["b", "normal"])] == [1, 1, 0]


def test_the_warning_names_the_setting_and_an_order_to_paste():
    warning = order_warning(["adenoma", "carcinoma", "normal"], setting="the order in gemslide.toml")

    assert warning is not None
    assert 'Set the order in gemslide.toml: classes = ["normal", "adenoma", "carcinoma"]' in warning


def test_no_classes_have_no_order() -> None:
    assert order_warning([], setting="`classes`") is None


@pytest.mark.parametrize("module", [class_words, class_lesions])
def test_every_listed_word_is_found_in_a_name_that_is_this_word(module):
    lists = [value for value in vars(module).values() if isinstance(value, set | frozenset | tuple | list)]
    words = {word for listed in lists for word in listed if isinstance(word, str) and word}

    assert words
    assert [word for word in words if _words(word) != [word]] == []
