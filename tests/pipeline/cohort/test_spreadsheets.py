"""Manifests and other tables as spreadsheets write them: read, or refused with one sentence on how to save them."""

import json
import os
import stat
import unicodedata
import zipfile

import pytest

from pipeline.cohort.manifest import COLUMNS, init_cohort, load_cohort
from pipeline.cohort.pseudonyms import read_map
from pipeline.errors import BadManifestError
from pipeline.evaluation.camelyon_files import read_candidates
from tests.small_trained_project import make_slide

SHA = "ab" * 32
PLAIN = f"path,slide_id,mpp,patient_id,sha256\na.svs,S-1,0.5,Müller,{SHA}\nb.svs,S-2,,Ömer,\n"


def write(tmp_path, data, name="cohort.csv"):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def facts(path):
    return [(e.path, e.slide_id, e.mpp, e.patient_id, e.sha256) for e in load_cohort(path).entries]


def semicolons(text):
    return text.replace(",", ";").replace("0.5", "0,5")


@pytest.mark.parametrize(
    "data",
    [
        PLAIN.encode("utf-8-sig"),
        PLAIN.encode("utf-16"),
        PLAIN.encode("utf-16-le"),
        PLAIN.encode("utf-16-be"),
        PLAIN.encode("utf-32"),
        PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.replace("\n", "\r").encode(),
        semicolons(PLAIN).encode(),
        semicolons(PLAIN).encode("utf-8-sig"),
        semicolons("sep=,\n" + PLAIN).encode(),
        ("SEP=;\r\n" + semicolons(PLAIN)).encode("utf-8-sig"),
        ("sep=\t\n" + PLAIN.replace(",", "\t")).encode("utf-16"),
        PLAIN.replace(",", "\t").encode(),
        PLAIN.replace(",", "|").encode(),
        PLAIN.replace(",0.5,", ',"0,5",').encode(),
        PLAIN.replace("\n", ",,\n").encode() + b",,,,,,\n,,,,,,\n",
        PLAIN.replace(SHA, SHA.upper()).encode(),
        PLAIN.replace("slide_id", " slide_id ").replace("S-1", "S-1 ").encode(),
        ("\n\n" + PLAIN + "\n\n").encode(),
        PLAIN.replace("path", '"path"').replace("a.svs", '"a.svs"').encode(),
        unicodedata.normalize("NFD", PLAIN).encode(),
        ("sep=;;;\n" + semicolons(PLAIN)).encode(),
        ('"sep=;"\r\n' + semicolons(PLAIN)).encode(),
        ('"sep=;";;;;\r\n' + semicolons(PLAIN)).encode(),
        ('"sep=,",,,,\n' + PLAIN).encode(),
        ("sep= ; \n" + semicolons(PLAIN)).encode(),
        ("\n\r\n;;;\nsep=;\n" + semicolons(PLAIN)).encode("utf-8-sig"),
        ("sep=\t\t\t\n" + PLAIN.replace(",", "\t")).encode(),
        ("\ufeff\ufeff" + PLAIN).encode("utf-8-sig"),
        ("\ufeff" + PLAIN).encode("utf-16"),
        ("\ufeffsep=;\n" + semicolons(PLAIN)).encode("utf-8-sig"),
    ],
    ids=range(31),
)
def test_every_spelling_of_a_spreadsheet_gives_the_same_manifest(tmp_path, data):
    assert facts(write(tmp_path, data)) == [
        ("a.svs", "S-1", 0.5, "Müller", SHA),
        ("b.svs", "S-2", None, "Ömer", None),
    ]


HOW = 'Save it as "CSV UTF-8'


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (PLAIN.encode("cp1252"), rf"line 2: the byte 0xFC is not UTF-8.*{HOW}"),
        (PLAIN.encode("mac-roman"), HOW),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), rf"a spreadsheet \(\.xls\).*{HOW}"),
        (b"<html><table></table></html>", f"HTML.*{HOW}"),
        ("path,slide_id;label\na.svs,x;y\n", f"commas and semicolons.*{HOW}"),
        ("path\tslide_id,mpp\na.svs\tx,1\n", "tabs and commas"),
        ("path,slide_id\na.svs;x\n", "line 2: the number of fields.*semicolons"),
        ("path,slide_id\na.svs\n", "line 2: the number of fields"),
        ("path,exclude\na.svs,FALSE\n", "line 2: `exclude` = 'FALSE': is not a reason.*empty the cell to keep"),
        ("path;exclude\na.svs;0\n", "line 2: `exclude` = '0': is not a reason"),
        ("path,slide_id,,\na.svs,x,,stray\n", r"line 2: the number of fields differs from the header's \(4, not 2\)"),
        ("path,,slide_id\na.svs,stray,x\n", "line 2: column 2 has no name, but holds 'stray'"),
        ('path,site\na.svs,"x\nb.svs,y\nc.svs,z\n', "cannot be read as a UTF-8 CSV"),
        ('path,site\na.svs,"x"y\n', "cannot be read as a UTF-8 CSV"),
        ("path,slide_id,path\na.svs,x,b.svs\n", "`path` appears 2 times"),
        ("path;slide_id;path\na.svs;x;b.svs\n", "`path` appears 2 times"),
        ("path,patient_id\na.svs,1.23457E+11\n", "line 2: column 2 holds '1.23457E.11', which a spreadsheet"),
        ("path;patient_id\na.svs;1,23457E+11\n", "which a spreadsheet"),
        ("path,patient_id\na.svs,#NAME?\n", "which a spreadsheet"),
        ('path,patient_id\na.svs,"=""0012"""\n', "which a spreadsheet"),
        ('path,mpp\na.svs,"1.234,5"\n', "`mpp` = '1.234,5'"),
        ('path,exclude\n"a.svs","two\nlines"\nb.svs,y,z\n', "line 4: the number of fields"),
        ("sep=;\npath;site\na.svs;x;y\n", "line 3: the number of fields"),
        ("\n\nsep=;\n\npath;site\na.svs;x;y\n", "line 6: the number of fields"),
        ("sep=;,,\npath,site\na.svs,x\n", "its line 'sep=;,,' does not name one separator. Write it as in `sep=;`"),
        ("sep=\r\npath;site\na.svs;x\n", "its line 'sep=' does not name one separator"),
        ("\nsep=\npath;site\na.svs;x\n", "its line 'sep=' does not name one separator"),
        ("sep=semicolon\npath;site\na.svs;x\n", "its line 'sep=semicolon' does not name one separator"),
    ],
)
def test_what_cannot_be_told_is_refused_with_the_way_out(tmp_path, data, says):
    with pytest.raises(BadManifestError, match=says):
        load_cohort(write(tmp_path, data))


MISSING = r"NA N/A n/a nan NaN null NULL None none <NA> n.a. N.A. - -- – — − . #NA (null) \N NaT"


@pytest.mark.parametrize("column", COLUMNS)
def test_a_cell_that_stands_for_a_missing_value_is_refused_in_every_column(tmp_path, column):
    for text in MISSING.split():
        if (column, text.lower()) != ("label", "none"):
            row = dict.fromkeys(["path", column], "a.svs") | {column: text}
            says = rf"line 2: `{column}` = '.*': stands for a missing value: empty the cell"
            with pytest.raises(BadManifestError, match=says):
                load_cohort(write(tmp_path, ",".join(row) + "\n" + ",".join(row.values()) + "\n"))


ERRORS = (
    "#WERT! #BEZUG! #ZAHL! #ÜBERLAUF! #NV #N/A #N/D #¡REF! #¿NOMBRE? #NOM? #SPILL! #CALC! #FIELD! #Н/Д #ИМЯ? #SAKNAS! "
    '# ##### Err:502 Err:504 Fehler:502 Błąd:502 Ошибка:502 =A1 =A1&"x" =SUMME(A1) 1.23457E+11 #nv #GETTING_DATA'
)


@pytest.mark.parametrize("column", ["path", "patient_id", "site", "label", "exclude"])
@pytest.mark.parametrize("text", [*ERRORS.split(), "#REF !", "=A1\nB2"])
def test_a_spreadsheet_s_errors_and_formulas_are_refused_in_every_language(tmp_path, column, text):
    row = dict.fromkeys(["path", column], "a.svs") | {column: '"' + text.replace('"', '""') + '"'}
    with pytest.raises(BadManifestError, match=r"line 2: column [12] holds .* which a spreadsheet.*empty the cell"):
        load_cohort(write(tmp_path, ",".join(row) + "\n" + ",".join(row.values()) + "\n"))


FALSE = "0 0.0 0,0 00 -0 FALSE F n no FAŁSZ nej FALSK FALSKT NEPRAVDA HAMIS YANLIŞ ЛОЖЬ não нет keep Include ΨΕΥΔΗΣ"


def test_no_word_for_false_is_a_reason_to_leave_a_slide_out(tmp_path):
    for text in FALSE.split():
        for form in ("NFC", "NFD"):
            cell = unicodedata.normalize(form, text)
            with pytest.raises(BadManifestError, match=r"line 2: `exclude` = '.*': is not a reason.*empty the cell"):
                load_cohort(write(tmp_path, f"path;exclude\na.svs;{cell}\n"))


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("label", "None"), ("label", "F"), ("label", "no"), ("label", "#1"), ("label", "HER2 -"), ("label", "0"),
        ("patient_id", "0"), ("patient_id", "F"), ("patient_id", "NA-1"), ("patient_id", "12E5"), ("site", "No"),
        ("exclude", "no tissue"), ("exclude", "NA stain"), ("exclude", "1"), ("exclude", "x"), ("mpp", "2.5e-1"),
    ],
)  # fmt: skip
def test_a_value_that_only_resembles_a_missing_one_is_kept(tmp_path, column, text):
    (entry,) = load_cohort(write(tmp_path, f"path,{column}\na.svs,{text}\n")).entries
    assert str(getattr(entry, column)) == (text if column != "mpp" else "0.25")


def test_a_patient_s_number_that_another_program_shortened_is_refused(tmp_path):
    with pytest.raises(BadManifestError, match=r"line 2: `patient_id` = '1.23457e[+]11': is a long number"):
        load_cohort(write(tmp_path, "path,patient_id\na.svs,1.23457e+11\n"))


def test_a_new_manifest_of_files_with_odd_names_is_read(tmp_path):
    for name in ("=a.tiff", "NA.tiff", "none.tiff", "=a.geojson"):
        (tmp_path / name).touch()

    cohort = init_cohort(tmp_path, tmp_path / "cohort.csv")

    assert [(e.path, e.slide_id) for e in cohort.entries] == [
        ("./=a.tiff", "a"), ("NA.tiff", "slide-NA"), ("none.tiff", "slide-none"),
    ]  # fmt: skip
    assert all(cohort.slide_path(entry).is_file() for entry in cohort.entries)


def test_candidates_in_short_numbers_are_read(tmp_path):
    assert read_candidates(write(tmp_path, "9e-1,1.0e+01,2e+01\n"), (100, 100)).tolist() == [[0.9, 10, 20]]


def test_a_workbook_is_refused_by_every_verb_in_one_sentence(gemslide, tmp_path):
    book = tmp_path / "cohort.xlsx"
    with zipfile.ZipFile(book, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")

    for verb in (("cohort", "check"), ("ingest",), ("tile",)):
        done = gemslide(*verb, book, "--project", tmp_path)
        assert (done.code, HOW in done.err) == (1, True), done.err


def test_other_lists_are_read_in_the_same_spellings(tmp_path):
    (entry,) = load_cohort(write(tmp_path, semicolons("PATIENT,FILENAME,,\nMüller,a.svs,,\n").encode("utf-16"))).entries
    assert (entry.patient_id, entry.path) == ("Müller", "a.svs")


def test_a_map_of_pseudonyms_that_a_spreadsheet_saved_is_read(tmp_path):
    path = write(tmp_path, "kind;original;pseudonym;path;\r\npatient;Müller;patient-1;;\r\n".encode("utf-8-sig"))
    assert read_map(path).pseudonym("patient", unicodedata.normalize("NFD", "Müller")) == "patient-1"


@pytest.mark.parametrize(
    "text", ["0.9,10,20\n", "0.9;10;20\r\n", "sep=;\n0,9;10;20\n", "0.9\t10\t20\n", "\ufeff0.9,10,20"]
)
def test_candidates_are_read_in_the_same_spellings(tmp_path, text):
    assert read_candidates(write(tmp_path, text), (100, 100)).tolist() == [[0.9, 10, 20]]


def test_candidates_with_two_kinds_of_separators_are_refused(tmp_path):
    with pytest.raises(BadManifestError, match="commas and semicolons"):
        read_candidates(write(tmp_path, "0,9;10;20\n"), (100, 100))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_no_line_names_a_file_however_the_manifest_is_written(gemslide, tmp_path, encoding, separator):
    text = separator.join(["path", "slide_id"]) + "\n" + separator.join(["Müller-Jane-1950.svs", "S-1"]) + "\n"
    path = write(tmp_path, text.encode(encoding))

    done = gemslide("ingest", path, "--project", tmp_path / "project", "--json")

    assert done.code == 1
    assert "Jane" not in done.out


def test_a_new_manifest_is_its_owner_s_alone_and_names_what_links_are_called(tmp_path):
    people, links = tmp_path / "Jane Doe", tmp_path / "slides"
    people.mkdir()
    links.mkdir()
    for name in ("Müller.tiff", "b.tiff"):
        make_slide(people / name, 1)
    (links / "S-1.tiff").symlink_to(people / "Müller.tiff")
    (tmp_path / "all").symlink_to(people)

    init_cohort(links, tmp_path / "cohort.csv")
    init_cohort(tmp_path / "all", tmp_path / "linked.csv")

    assert "Jane" not in (tmp_path / "cohort.csv").read_text() + (tmp_path / "linked.csv").read_text()
    assert [e.path for e in load_cohort(tmp_path / "cohort.csv").entries] == ["slides/S-1.tiff"]
    assert [e.path for e in load_cohort(tmp_path / "linked.csv").entries] == ["all/Müller.tiff", "all/b.tiff"]
    assert stat.S_IMODE(os.stat(tmp_path / "cohort.csv").st_mode) == 0o600


def test_a_manifest_in_a_linked_folder_leads_to_its_slides(tmp_path):
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.tiff").touch()
    (tmp_path / "out").symlink_to(tmp_path / "deep/er")

    cohort = init_cohort(tmp_path / "in", tmp_path / "out/cohort.csv")

    assert cohort.slide_path(cohort.entries[0]).exists()


def test_annotation_files_of_every_program_are_found_beside_slides(tmp_path):
    for name in ("a.ndpi", "a.ndpi.ndpa", "b.svs", "b.annotations", "c.svs", "c.svs.geojson", "d.svs"):
        (tmp_path / name).touch()

    cohort = init_cohort(tmp_path, tmp_path / "cohort.csv")

    assert [e.annotations for e in cohort.entries] == ["a.ndpi.ndpa", "b.annotations", "c.svs.geojson", None]


def test_annotation_files_are_found_in_any_capitals_and_unicode_form(tmp_path):
    names = ["Müller.tif", unicodedata.normalize("NFD", "Müller.geojson"), "S4.tif", "S4.GeoJSON", "S5.TIF", "s5.XML"]
    for name in [*names, unicodedata.normalize("NFD", "Ö6.svs"), "ö6.SVS.json", "S7.svs", "S70.json"]:
        (tmp_path / name).touch()
    (tmp_path / "S7.json").mkdir()

    cohort = init_cohort(tmp_path, tmp_path / "cohort.csv")

    found = {e.slide_id: cohort.annotations_path(e) for e in cohort.entries}
    assert [path and path.name for path in found.values()] == [names[1], "ö6.SVS.json", "S4.GeoJSON", "s5.XML", None]
    assert all(path is None or path.is_file() for path in found.values())


@pytest.mark.parametrize("second", ["S4.GeoJSON", "s4.geojson"])
def test_annotation_files_that_differ_only_in_capitals_are_refused(tmp_path, second):
    for name in ("S4.tif", "S4.geojson", second):
        (tmp_path / name).touch()

    with pytest.raises(BadManifestError, match=r"several annotation files.*'S4\.geojson'.*Keep one"):
        init_cohort(tmp_path, tmp_path / "cohort.csv")
    assert not (tmp_path / "cohort.csv").exists()


@pytest.mark.data
def test_the_field_cases_of_spreadsheets_are_read(real_slides):
    cases = real_slides / "field_cases"
    assert [(e.path, e.slide_id) for e in load_cohort(cases / "F4_excel_empty_columns.csv").entries] == [
        ("ok_1.tif", "a")
    ]
    (entry,) = load_cohort(cases / "F4_excel_semicolon.csv").entries
    assert (entry.path, entry.slide_id, entry.mpp) == ("ok_1.tif", "a", 0.5)


def test_json_lines_of_a_check_say_which_line_is_wrong(gemslide, tmp_path):
    done = gemslide("cohort", "check", write(tmp_path, "path;mpp\na.svs;x\n"), "--project", tmp_path, "--json")
    assert (done.code, "line 2" in json.loads(done.out.splitlines()[-1])["message"]) == (1, True)


KEPT = """
use|Use|USE THIS SLIDE|please use|keep|keep!|to be included|should be included|usable|slide is usable|ok|OK.
ok for training|okay|not excluded|Not excluded yet|do not exclude|don't exclude|don\u2019t exclude|never exclude
no exclusion|not to be left out|exclusion not needed|exclude: no|excluded = false|no exclusion criteria met
exclusion criteria not met|good|Good quality|good quality scan|quality: good|high quality|excellent|fine|looks fine
all good|passed QC|QC passed|in focus|sharp|none needed|not needed|no need|no reason|no reason to exclude
nothing to exclude|no issues|no problems|nothing wrong|not blurred|no artefacts|no pen marks|good, no folds|not failed
ok but blurred|use with caution|keep S-2|include|Included in cohort|retain|accepted|nicht ausschließen|verwenden
kein Ausschluss|gute Qualität|ne pas exclure|bonne qualité|ｕｓｅ
"""
REASONS = """
out of focus|blurred|blurry|no tissue|no tumour|no consent|no label|no good|not good|not good enough|quality not good
not ok|not usable|unusable|do not use|don't use|not to be used|not in focus|used in training|was in training
poor quality|bad scan|exclude|excluded|please exclude|exclude this slide|excluded, no consent|exclude: not H&E
exclusion criteria met|failed QC|inclusion criteria not met|QC failed|rejected by the pathologist|duplicate of S-2
duplicate, keep S-2|wrong stain|fine needle|good tissue but no consent|pen|pen marks|folds|artefacts|damaged
reason unknown|withdrawn|yes|x|1|TRUE|no longer needed|too small|nicht auswertbar|kein Gewebe|flou|NA stain
training set|test|high background|not sharp|without tissue|error|problem with focus
"""


def cells_in(text):
    return [cell for line in text.strip().splitlines() for cell in line.split("|")]


@pytest.mark.parametrize("cell", cells_in(KEPT))
def test_a_text_that_says_that_a_slide_stays_does_not_leave_it_out(tmp_path, cell):
    with pytest.raises(
        BadManifestError, match=r"line 2: `exclude` = .*: (can mean that the slide stays|is not a reason)"
    ):
        load_cohort(write(tmp_path, f'path,exclude\na.svs,"{cell}"\n'))


@pytest.mark.parametrize("cell", cells_in(REASONS))
def test_a_reason_leaves_a_slide_out(tmp_path, cell):
    assert load_cohort(write(tmp_path, f'path,exclude\na.svs,"{cell}"\n')).included == ()


@pytest.mark.parametrize(
    "row",
    [
        "Total,,", "TOTAL:,,", "Sum,12,", "Total 12 slides,,", "Grand total,,", ",Total,12", "12,Total,", "Summe,,",
        "Gesamt,,", "Total général,,", "Итого,,", "合計,,", "Subtotal,,", "Average,,0.25", "n,Sum,",
    ],
)  # fmt: skip
@pytest.mark.parametrize("after", ["", "\nb.svs,P-2,"])
def test_a_row_of_totals_is_no_slide(tmp_path, row, after):
    with pytest.raises(BadManifestError, match=r"line 3: '.*' looks like a row of totals, not like a slide. Delete"):
        load_cohort(write(tmp_path, f"path,patient_id,site\na.svs,P-1,\n{row}{after}\n"))


def test_a_slide_that_is_called_total_is_a_slide(tmp_path):
    (tmp_path / "Total").mkdir()
    rows = ["total.svs,P-1,", "Total,P-2,", "b.svs,Total,", "sum-1.tiff,P-4,Sum"]
    assert len(load_cohort(write(tmp_path, "\n".join(["path,patient_id,site", *rows]) + "\n")).entries) == 4


def test_a_row_of_totals_below_another_program_s_list_is_no_slide(tmp_path):
    with pytest.raises(BadManifestError, match=r"line 3: 'Total' looks like a row of totals"):
        load_cohort(write(tmp_path, "case_id,slide_id,label\nP-1,a,tumour\n,Total,12\n"))
