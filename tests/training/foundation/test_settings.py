"""Errors in settings: one sentence per error, with the key as written in the file."""

from typing import Annotated, Literal

import pytest
from pydantic import Discriminator, Field, Tag, model_validator

from training.foundation.errors import BadRecipeError
from training.foundation.settings import Section, load_section, parse_section, replace


class Inner(Section):
    share: float = Field(0.5, ge=0, le=1)
    limits: dict[str, Annotated[float, Field(le=1)]] = Field({})

    @model_validator(mode="after")
    def fits(self):
        if self.share == 0.25:
            raise ValueError("a quarter does not fit")
        return self


class Table(Section):
    inner: Inner = Inner()
    form: Annotated[
        Annotated[Literal["none"], Tag("as a word")] | Annotated[Inner, Tag("as a table")],
        Discriminator(lambda value: "as a word" if isinstance(value, str) else "as a table"),
    ] = "none"
    length_px: int


class Whole(Section):
    table: Table


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({}, "here: [table] is missing."),
        ({"table": {}}, "here: [table] length_px is missing."),
        ({"tabel": {}, "table": {"length_px": 1}}, "here: unknown key [tabel]: did you mean `table`?"),
        ({"table": {"length_px": 1, "zzz": 1}}, "here: unknown key [table] zzz: known keys: form, inner, length_px."),
        ({"table": {"length_px": "a"}}, "here: [table] length_px = 'a': Input should be a valid integer"),
        ({"table": {"length_px": 1, "inner": {"shaer": 1}}}, "unknown key [table.inner] shaer: did you mean `share`?"),
        ({"table": {"length_px": 1, "inner": {"share": 2}}}, "here: [table.inner] share = 2: Input should be less"),
        ({"table": {"length_px": 1, "inner": {"share": float("inf")}}}, "[table.inner] share = inf: Input should be"),
        ({"table": {"length_px": 1, "inner": {"share": 0.25}}}, "here: [table.inner]: a quarter does not fit."),
        ({"table": {"length_px": 1, "inner": {"limits": {"share": 2}}}}, "here: [table.inner] limits.share = 2: Input"),
        ({"table": {"length_px": 1, "form": {"shaer": 1}}}, "unknown key [table] form.shaer: did you mean `share`?"),
        ({"table": {"length_px": 1, "form": "all"}}, "here: [table] form = 'all': Input should be 'none'"),
    ],
)
def test_a_finding_names_the_key_as_in_the_file_and_the_remedy(raw, says):
    with pytest.raises(BadRecipeError) as refused:
        parse_section(Whole, raw, where="here")

    assert says in str(refused.value)
    assert "as a " not in str(refused.value)


def test_every_finding_is_said_at_once():
    with pytest.raises(BadRecipeError, match=r"here: \[table\] length_px is missing; unknown key \[table\] zzz: known"):
        parse_section(Whole, {"table": {"zzz": 1}}, where="here")


def test_an_option_that_does_not_fit_is_said_to_come_from_the_command_line():
    with pytest.raises(BadRecipeError, match=r"command line: share = 3: Input should be less than or equal to 1"):
        replace(Inner(), share=3)


def test_options_that_were_not_given_change_nothing():
    assert replace(Inner(share=0.75), share=None) == Inner(share=0.75)


def test_a_missing_file_means_the_default_only_where_there_is_one(tmp_path):
    assert load_section(Inner, tmp_path / "no.toml", default=Inner()) == Inner()
    with pytest.raises(BadRecipeError, match=r"no\.toml: cannot be read: No such file"):
        load_section(Inner, tmp_path / "no.toml")
