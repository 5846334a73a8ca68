"""Words in class names, by meaning: lower case, without accents, in the languages of many laboratories."""

from __future__ import annotations


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


HEALTHY = _set(
    """
    benigen benign benigna benignan benigne benignes benigni benigno benin binhthuong dobrocudan dobrocudna dobrocudni
    dobrocudno egeszseges ep frisk friska friske friskt gerybinis gesund gesunde gesundem gesunder gesundes gezond
    gezonde godartad godartade godartet goedaardig goedaardige gutartig gutartige gutartiger gutartiges healoomuline
    healthy heilbrigt hyvanlaatuinen hyvanlaatuiset indemne indemnes iyi jinak joindulatu khoemanh labdabigs lagodna
    lagodne lagodny lanhtinh nat nawm ndb ndbe ned nenadorova nenadorove nenadorovy nezhoubna nezhoubne nezhoubny
    nezhubna nezhubne nezhubny nienowotworowa nienowotworowe nienowotworowy nilm norm normaal normaali normaalia
    normaalit normaalne normais normal normala normalan normale normalen normales normalgewebe normali normalis
    normalna normalne normalni normalno normalny normals normalt normalus normaux nrm physiological prawidlowa
    prawidlowe prawidlowy rask sadia sadio saglikli sain saine saines sains sana sanas sanatoasa sanatoase sanatos
    sanatosi sane sani sano sanos saudaveis saudavel sehat selim sihat sund sunde sundt sunn sunne sunt sveika sveikas
    terve terveet unaffected unauffallig unauffallige unauffalliger unauffalliges uninvolved unremarkable vesela vesels
    wnl zdrav zdrava zdrave zdravega zdravi zdravo zdravy zdrowa zdrowe zdrowy καλοηθεσ καλοηθη καλοηθησ υγιεισ υγιεσ
    υγιη υγιησ φυσιολογικα φυσιολογικη φυσιολογικο φυσιολογικοσ бенигно доброкачествен доброкачествена
    доброкачественная доброкачественное доброкачественный доброкачествено доброякісна доброякісне доброякісний здорова
    здоровая здорове здоровий здоровое здоровый здорові здрав здрава здраво норма нормален нормална нормално нормальна
    нормальная нормальний нормальное нормальный нормальні בריא שפיר תקין حميد سالم سليم طبيعي طبیعی نرمال
    """
)
"""Nothing is wrong."""
NOTHING = _set(
    """
    achtergrond altri altro andere anderes arkaplan aucun autre autres back backgr background baggrund bakgrund
    bakgrunn bg blank control ctrl empty fonas fond fondo fons fundal fundo geen glass hatter hintergrund inne
    latarbelakang leeg leer nen nenhum nessuno nichts ninguno none nothing other others otro otros outro outros overig
    ozadje pozadi pozadie pozadina rest sfondo sonstige sonstiges taust tausta tlo vacio vazio vide vuoto whitespace
    υποβαθρο φοντο другое прочее фон רקע خلفية
    """
)
"""Nothing of interest: glass, background, the rest."""
NEGATIVE = _set(
    """
    absent absente absentes amtinh assente ausente bulunmayan degil excluded fehlend franvarande fravaerende free frei
    fri fria frie fritt gorulmedi libero libre livre neg negatief negatieve negatif negatifs negatiivinen negatiivne
    negatiu negativ negativa negativan negativas negative negativen negatives negativi negativni negativno negativny
    negativo negativs negativt negatywna negatywny neigiamas nelkul olmayan puuttuu saptanmadi ujemna ujemny vrij yok
    αρνητικα αρνητικη αρνητικο αρνητικοσ відсутня відсутнє відсутній негативан негативна негативне негативний негативно
    отрицателен отрицателна отрицателно отрицательная отрицательное отрицательный שלילי سلبي منفی
    """
)
"""Absence of a finding, which may be named beside it."""
NOT = _set(
    """
    absence assenza aucun aucune ausencia bez bezi brak brez bukan ei ej fara geen hicbir icke ikke ikkje ilma ilman
    inga ingen inget inte kein keine keinen keiner khong lack nao ne nem nema nenhum nenhuma neni nessun nessuna nicht
    nici nicio niciun nie niet nije nincs ningun ninguna no non none not nu ohne pas sans sem sense senza sin tanpa
    tidak uden utan uten without zadna zadne zadny zonder δεν καμια κανενα μη οχι χωρισ без не нема немає нет няма ללא
    بدون لا
    """
)
"""Negations."""
NOT_ONE = _set("bukan icke ikke ikkje nao nicht niet non not μη не")
"""Of these, the negations of the next word alone: a non-invasive carcinoma is one."""
DETECTED = _set(
    """
    aanwezig detectable detecte detected erkennbar found gefunden identified nachgewiesen nachweisbar nachzuweisen
    present presente presentes presents seen tilstede visible vorhanden vorhandene
    """
)
"""What is said of a finding that is there, and negated of one that is not."""
EVIDENCE = _set("ada anzeichen co evidence hinweis hinweise nachweis residual sign signs viable vital vitaler")
"""Words between a negation and what it negates: "no evidence of residual tumour"."""
ADJACENT = _set("adjacent away beside distant next outside")
"""Words for tissue beside a lesion."""
AWAY = _set("away distant outside")
"""Of these, the words for what is not next to it; a distant metastasis is a lesion."""
BASELINE = _set("mss pmmr proficient reference stable unmethylated unmutated wildtyp wildtype wt")
"""The usual negative class of a comparison in which neither is healthy; "wild type" counts as "wildtype"."""
LESION = _set(
    """
    abnormal abnormality actinh adenocarcinoma adenoom affected ain aml asch ascus atypia atypical atypie atypisch
    befund cancer cancereuse cancereux cancerous cancers cancro carcinoma carcinomas carcinomatous carcinome cin cis
    daganat dcis disease diseased dysplasia dysplasie dysplastic finding findings ganas gleason guz guza hgpin hsil idc
    ilc invasion invasive involved kanker kanser karcinom karcinoma karcinomu karzinom kasvaimen kasvaimia kasvain
    kasvainta kasvaja khoiu kraeft krebs kreft kræft lasao lasion lcis lesion lesional lesione lesiones lesions
    leucemie leukaemia leukamie leukemia lsil lymphoma malign maligna malignancy malignant maligne maligni malignitet
    maligno malignt melanoma metastase metastasen metastases metastasi metastasis metastatic mitosis mitotic nador
    nadorova nadorove nadorovy nadoru neoplasia neoplasic neoplasique neoplasm neoplastic neoplastico nowotwor
    nowotworowe nowotworowy pathologic pathological pathology positive rak raka rosszindulatu sarcoma seminom seminoma
    suspect suspicious svulst svulster syopa syopaa tumeur tumeurs tumor tumora tumoral tumorala tumorale tumorales
    tumore tumoren tumorer tumores tumori tumorii tumorja tumorous tumors tumoru tumorun tumour tumours u ungthu
    zhoubne zhoubny zhubny zlocudan zlocudna zlocudno κακοηθεσ κακοηθη κακοηθησ καρκινο καρκινοσ καρκινου καρκινωμα
    ογκο ογκοι ογκοσ ογκου злокачествен злокачествена злокачественная злокачественное злокачественный злокачествено
    злоякісна злоякісне злоякісний опухолевый опухоли опухоль пухлин пухлина пухлини рак тумор тумора туморни גידול
    סרטן ورم
    """
)
"""Findings that are looked for."""
OF_ENTITIES = _set(
    """
    basal clear endometrioid functioning gcb hodgkin hodgkins keratinising keratinizing lepidic luminal mucinous muscle
    seminom seminoma seminomas seminomatous seminome serous shh small squamous urothelial wnt
    """
)
"""What "non" does not deny: non-seminomas, non-Hodgkin lymphomas and non-small-cell carcinomas are tumours, too."""
LESION_ENDINGS = (
    "oma", "omas", "omata", "karzinom", "karzinome", "sarkom", "sarkome", "melanom", "melanome", "lymphom", "lymphome",
    "adenom", "adenome", "gliom", "gliome", "blastom", "blastome", "carcinome", "carcinomes", "sarcome", "sarcomes",
)  # fmt: skip
"""Ends of words for tumours."""
NO_LESIONS = ("glaucoma", "haematoma", "hematoma", "stroma")
"""Ends of words that only end so."""
BENIGN = _set(
    """
    benigen benign benigna benignan benigne benignes benigni benigno benin dobrocudan dobrocudna dobrocudni dobrocudno
    gerybinis godartad godartade godartet goedaardig goedaardige gutartig gutartige gutartiger gutartiges healoomuline
    hyvanlaatuinen hyvanlaatuiset iyi jinak joindulatu labdabigs lagodna lagodne lagodny lanhtinh nezhoubna nezhoubne
    nezhoubny nezhubna nezhubne nezhubny selim καλοηθεσ καλοηθη καλοηθησ бенигно доброкачествен доброкачествена
    доброкачественная доброкачественное доброкачественный доброкачествено доброякісна доброякісне доброякісний שפיר
    حميد
    """
)
"""Of the words for healthy, those that make the lesion beside them a harmless one."""
MAY_BE_BENIGN = _set(
    """
    befund daganat disease finding findings guz kasvain kasvaja khoiu lesion lesional lesione lesiones lesions nador
    nadoru neoplasia neoplasm nowotwor svulst tumeur tumeurs tumor tumora tumore tumoren tumores tumori tumorja tumors
    tumoru tumour tumours u ογκο ογκοσ опухоли опухоль пухлина пухлини тумор
    """
)
"""Lesions that can be harmless; so can those known by their endings alone, such as adenomas."""
BESIDE = _set(
    """
    juxtatumoral paracancer paracancerous paracarcinoma paratumor paratumoral paratumour paratumoural pericancerous
    peritumor peritumoral peritumorale peritumorales peritumoraux peritumour peritumoural
    """
)
"""Tissue beside a tumour, in one word."""
PLACES = _set("area bed liver lung margin mucosa parenchyma stroma zone zones")
"""What the tissue beside a tumour may be called besides `TISSUE`."""
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
AFFIRMATIVE = _set(
    """
    ano avec co com con da evet igen ja joo jest kylla med mit oui pos positif positiv positiva positive positivo
    si sim tak true var wahr with yes ya ναι да є так 是 有 はい 예
    """
)
"""What states a finding, in pairs such as "yes" and "no"."""
DENIAL = _set("ekki epatosi falsch false falsk falso faux hayir nei nein nej nem ні οχι 否 无 無 いいえ 아니오")
"""What denies it there, besides `NOT` and `NEGATIVE`."""
OTHER_KIND = _set("icke ikkje nicht niet non")
"""Negations of an adjective, which may name another kind instead: keratinizing and non-keratinizing carcinomas."""
PHRASES = _set("actinh amtinh arkaplan binhthuong khoemanh khoiu lanhtinh latarbelakang ungthu")
"""Expressions of two words, written as one in these lists."""
NEGATIVE_ENDINGS = (
    "free", "frei", "freies", "less", "los", "loses", "negative", "negativ", "mentes", "fri", "fritt", "fria", "frie",
    "suz", "siz",
)  # fmt: skip
"""Ends of words that deny what stands before them."""
NEGATIVE_STARTS = ("non", "no", "not", "nicht", "kein")
NEGATIVE_STARTS_OF_WORDS = ("ne", "nie", "не", "ej", "icke", "ikke")
"""Beginnings that deny only words of `LESION`: neuromas are lesions."""
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
    "無腫瘍",
    "非腫瘤",
    "無腫瘤",
    "未见肿瘤",
    "无癌",
    "无病变",
    "癌旁",
    "腫瘍なし",
    "癌なし",
    "病変なし",
    "정상",
    "음성",
    "배경",
    "비종양",
)
"""Negative words in languages without spaces between words."""
UNSPACED_NOT = ("不正常", "异常", "異常", "非正常", "비정상", "不健康")
