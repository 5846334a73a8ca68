"""Words in class names, by meaning: lower case, without accents, in the languages of many laboratories."""

from __future__ import annotations


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


HEALTHY = _set(
    """
    benign benigna benigne benignes benigni benigno benin egeszseges frisk friska friske friskt gesund gesunde
    gesunder gesundes gezond gezonde godartad godartet goedaardig goedaardige gutartig gutartige gutartiges healthy
    hyvanlaatuinen iyi joindulatu lagodna lagodne lagodny nat nilm norm normaal normaali normais normal normala normale
    normales normalgewebe normali normalis normalni normals normalt normaux nrm physiological prawidlowa prawidlowe
    prawidlowy sadia sadio saglikli sain saine saines sains sana sanas sanatos sane sani sano sanos saudaveis saudavel
    terve unaffected unauffallig uninvolved unremarkable wnl zdrava zdrave zdravy zdrowa zdrowe zdrowy доброкачественная
    доброкачественное доброкачественный здоровая здоровое здоровый норма нормальная нормальное нормальный
    """
)
"""Nothing is wrong."""
NOTHING = _set(
    """
    achtergrond altri altro andere anderes arkaplan aucun autre autres back backgr background baggrund bakgrund
    bakgrunn bg blank control ctrl empty fond fondo fundo geen glass hatter hintergrund inne leeg leer nenhum nessuno
    nichts ninguno none nothing other others otro otros outro outros overig pozadi rest sfondo sonstige sonstiges
    tausta tlo vacio vazio vide vuoto whitespace другое прочее фон
    """
)
"""Nothing of interest: glass, background, the rest."""
NEGATIVE = _set(
    """
    free frei libero libre livre neg negatief negatieve negatif negatifs negativ negativa negative negatives negativi
    negativni negativo negatywna negatywny ujemna ujemny vrij отрицательная отрицательное отрицательный
    """
)
"""Absence of a finding, which may be named beside it."""
NOT = _set(
    """
    aucun aucune bez bezi brak ei fara geen ikke ingen inget kein keine keinen keiner nao ne nenhum nenhuma nessun
    nessuna nicht nie niet nincs ningun ninguna no non none not ohne pas sans sem senza sin uden utan uten without
    zonder без не нет
    """
)
"""Negations."""
LESION = _set(
    """
    abnormal abnormality adenocarcinoma affected befund cancer cancereuse cancereux cancerous cancers cancro carcinoma
    carcinomas carcinomatous carcinome disease diseased dysplasia dysplasie dysplastic finding findings guz invasion
    invasive involved kanker karzinom kasvain krebs kreft lasao lasion lesion lesional lesione lesiones lesions
    lymphoma malign malignancy malignant maligne maligno melanoma metastase metastasen metastases metastasi metastasis
    metastatic mitosis mitotic nador neoplasia neoplasic neoplasique neoplasm neoplastic neoplastico nowotwor
    pathologic pathological pathology positive rak sarcoma tumeur tumeurs tumor tumoral tumorale tumorales tumore
    tumoren tumores tumori tumorous tumors tumoru tumour tumours опухолевый опухоли опухоль рак
    """
)
"""Findings that are looked for."""
TISSUE = _set(
    """
    area areas case cases cell cells class classes gewebe klasse lymph lymphnode node nodes patch patches region
    regions roi slide slides tecido tejido tessuto tile tiles tissu tissue tissues vaev vav weefsel
    """
)
"""Neutral nouns for what is classified."""
JOINING = _set(
    """
    a af and auf av da de des di do du for fur intraepithelial of or para per pour the to von voor
    """
)
"""Function words without a meaning here."""
UNSPACED = (
    "正常",
    "健康",
    "健常",
    "良性",
    "阴性",
    "陰性",
    "背景",
    "非肿瘤",
    "非腫瘍",
    "非癌",
    "无肿瘤",
    "정상",
    "음성",
    "배경",
)
"""Negative words in languages without spaces between words."""
UNSPACED_NOT = ("不正常", "异常", "異常", "非正常", "비정상", "不健康")
