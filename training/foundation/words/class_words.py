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
    absent absente absentes assente ausente excluded fehlend free frei libero libre livre neg negatief negatieve
    negatif negatifs negativ negativa negative negatives negativi negativni negativo negatywna negatywny ujemna ujemny
    vrij отрицательная отрицательное отрицательный
    """
)
"""Absence of a finding, which may be named beside it."""
NOT = _set(
    """
    absence aucun aucune bez bezi brak ei fara geen ikke ingen inget kein keine keinen keiner lack nao ne nenhum
    nenhuma nessun nessuna nicht nie niet nincs ningun ninguna no non none not ohne pas sans sem senza sin uden utan
    uten without zonder без не нет
    """
)
"""Negations."""
NOT_ONE = _set("ikke nao nicht niet non not не")
"""Of these, the negations of the next word alone: a non-invasive carcinoma is one."""
DETECTED = _set(
    """
    detectable detected detecte erkennbar found gefunden identified nachgewiesen nachweisbar present seen visible
    vorhanden
    """
)
"""What is said of a finding that is there, and negated of one that is not."""
EVIDENCE = _set("anzeichen evidence hinweis hinweise nachweis residual sign signs viable vital vitaler")
"""Words between a negation and what it negates: "no evidence of residual tumour"."""
ADJACENT = _set("adjacent away distant next outside")
"""Words for tissue beside a lesion."""
BASELINE = _set("mss pmmr proficient reference stable unmutated wildtyp wildtype wt")
"""The usual negative class of a comparison in which neither is healthy; "wild type" counts as "wildtype"."""
LESION = _set(
    """
    abnormal abnormality adenocarcinoma adenoom affected ain asch ascus atypia atypical atypie atypisch befund cancer
    cancereuse cancereux cancerous cancers cancro carcinoma carcinomas carcinomatous carcinome cin cis dcis disease
    diseased dysplasia dysplasie dysplastic finding findings gleason guz hgpin hsil idc ilc invasion invasive involved
    kanker karzinom kasvain krebs kreft lasao lasion lcis lesion lesional lesione lesiones lesions lsil lymphoma malign
    malignancy malignant maligne maligno melanoma metastase metastasen metastases metastasi metastasis metastatic
    mitosis mitotic nador neoplasia neoplasic neoplasique neoplasm neoplastic neoplastico nowotwor pathologic
    pathological pathology positive rak sarcoma suspect suspicious tumeur tumeurs tumor tumoral tumorale tumorales
    tumore tumoren tumores tumori tumorous tumors tumoru tumour tumours опухолевый опухоли опухоль рак
    """
)
"""Findings that are looked for."""
LESION_ENDINGS = (
    "oma", "omas", "omata", "karzinom", "karzinome", "sarkom", "sarkome", "melanom", "melanome", "lymphom", "lymphome",
    "adenom", "adenome", "gliom", "gliome", "blastom", "blastome", "carcinome", "carcinomes", "sarcome", "sarcomes",
)  # fmt: skip
"""Ends of words for tumours."""
NO_LESIONS = ("glaucoma", "haematoma", "hematoma", "stroma")
"""Ends of words that only end so."""
BENIGN = _set(
    """
    benign benigna benigne benignes benigni benigno benin godartad godartet goedaardig goedaardige gutartig gutartige
    gutartiger gutartiges hyvanlaatuinen iyi joindulatu lagodna lagodne lagodny доброкачественная доброкачественное
    доброкачественный
    """
)
"""Of the words for healthy, those that make the lesion beside them a harmless one."""
MAY_BE_BENIGN = _set(
    """
    befund disease finding findings guz kasvain lesion lesional lesione lesiones lesions neoplasia neoplasm nowotwor
    tumeur tumeurs tumor tumore tumoren tumores tumori tumors tumoru tumour tumours опухоли опухоль
    """
)
"""Lesions that can be harmless; so can those known by their endings alone, such as adenomas."""
TISSUE = _set(
    """
    area areas case cases cell cells class classes gewebe klasse lymph lymphnode node nodes patch patches region
    regions roi slide slides tecido tejido tessuto tile tiles tissu tissue tissues vaev vav weefsel
    """
)
"""Neutral nouns for what is classified."""
ALSO = _set("and et ni nor oder or ou und")
"""Function words between things of equal rank."""
JOINING = ALSO | _set(
    """
    a af auf av da de des di do du for fur intraepithelial of para per pour the to von voor
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
