"""Several targets of one network: columns, losses, missing values, and predictions for people."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from training.models.heads.losses import INSTANCE_WEIGHT, loss_of_targets
from training.models.heads.predictions import predictions_of_targets
from training.models.heads.targets import Target, check_values, column_slices, output_slices

NAN = float("nan")
SUBTYPE = Target("subtype", "class", 3, weight=2.0, class_weights=(0.5, 1.0, 3.0))
GRADE = Target("grade", "ordinal", 4)
AGE = Target("age", "number", 1, mean=60.0, std=12.0)
RISK = Target("risk", "cox", 1, weight=0.5)
RELAPSE = Target("relapse", "discrete", 3, bounds=(10.0, 20.0, 40.0))
ALL = (SUBTYPE, GRADE, AGE, RISK, RELAPSE)
KNOWN = [2.0, 3.0, 48.0, -0.25, 0.0, 25.0, 1.0]


def outputs(rows=1):
    return torch.randn(rows, 12, generator=torch.Generator().manual_seed(5), dtype=torch.float64, requires_grad=True)


def one(target, output, values):
    return loss_of_targets([target])(torch.tensor([output]), torch.tensor([values]))


def test_targets_stand_side_by_side():
    assert output_slices(ALL) == [slice(0, 3), slice(3, 7), slice(7, 8), slice(8, 9), slice(9, 12)]
    assert column_slices(ALL) == [slice(0, 1), slice(1, 2), slice(2, 3), slice(3, 5), slice(5, 7)]


# --- losses ----------------------------------------------------------------------------------------


def test_the_loss_is_the_weighted_sum_over_targets_and_bags():
    output_no = outputs(2)
    other = [0.0, 0.0, 71.0, 0.5, 0.0, 15.0, 0.0]
    targets_nc = torch.tensor([KNOWN, other], dtype=torch.float64)

    total = loss_of_targets(ALL)(output_no, targets_nc)

    parts = []
    for target, outs, columns in zip(ALL, output_slices(ALL), column_slices(ALL), strict=True):
        alone = loss_of_targets([replace(target, weight=1.0)])
        parts += [target.weight * alone(output_no[[row], outs], targets_nc[[row], columns]) for row in range(2)]
    torch.testing.assert_close(total, torch.stack(parts).sum())


def test_a_class_costs_its_weighted_cross_entropy():
    logits = [0.2, -1.0, 0.7]

    loss = one(SUBTYPE, logits, [2.0])

    assert float(loss) == pytest.approx(2.0 * 3.0 * -math.log(math.exp(0.7) / sum(map(math.exp, logits))), rel=1e-5)


def test_a_grade_costs_a_binary_cross_entropy_per_threshold():
    logits = [1.5, 0.5, -0.5, -1.0]

    loss = one(GRADE, logits, [2.0])

    above = [1 / (1 + math.exp(-logit)) for logit in logits]
    expected = -math.log(above[0]) - math.log(above[1]) - math.log(1 - above[2]) - math.log(1 - above[3])
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_a_grade_may_have_class_weights():
    weighted = Target("grade", "ordinal", 2, class_weights=(1.0, 2.0, 5.0))
    plain = Target("grade", "ordinal", 2)

    for grade, weight in enumerate(weighted.class_weights):
        ratio = one(weighted, [0.3, -0.2], [float(grade)]) / one(plain, [0.3, -0.2], [float(grade)])
        assert float(ratio) == pytest.approx(weight)


def test_a_number_costs_the_huber_loss_of_its_standardised_value():
    assert float(one(AGE, [0.5], [60.0])) == pytest.approx(0.125)
    assert float(one(AGE, [-1.0], [48.0])) == pytest.approx(0)
    assert float(one(AGE, [0.0], [60.0 + 4 * 12])) == pytest.approx(3.5)


def test_a_risk_costs_its_gradient():
    output_no = torch.tensor([[1.7]], requires_grad=True)

    loss = loss_of_targets([RISK])(output_no, torch.tensor([[-0.4, 0.0]]))

    (gradient_no,) = torch.autograd.grad(loss, output_no)
    assert loss.item() == pytest.approx(0.5 * -0.4 * 1.7)
    assert gradient_no.item() == pytest.approx(0.5 * -0.4)


HAZARDS = [1 / (1 + math.exp(-logit)) for logit in (-2.0, 0.3, 1.0)]
LOG = [(math.log(hazard), math.log(1 - hazard)) for hazard in HAZARDS]


@pytest.mark.parametrize(
    ("time", "event", "log_likelihood"),
    [
        (1.0, 1.0, LOG[0][0]),
        (10.0, 1.0, LOG[0][0]),
        (10.5, 1.0, LOG[0][1] + LOG[1][0]),
        (40.0, 1.0, LOG[0][1] + LOG[1][1] + LOG[2][0]),
        (41.0, 1.0, LOG[0][1] + LOG[1][1] + LOG[2][1]),
        (4.9, 0.0, 0.0),
        (5.0, 0.0, LOG[0][1]),
        (14.9, 0.0, LOG[0][1]),
        (29.0, 0.0, LOG[0][1] + LOG[1][1]),
        (30.0, 0.0, LOG[0][1] + LOG[1][1] + LOG[2][1]),
        (99.0, 0.0, LOG[0][1] + LOG[1][1] + LOG[2][1]),
    ],
)
def test_hazards_cost_the_likelihood_of_event_or_censoring(time, event, log_likelihood):
    assert float(one(RELAPSE, [-2.0, 0.3, 1.0], [time, event])) == pytest.approx(-log_likelihood, abs=1e-5)


@given(st.lists(st.booleans(), min_size=5, max_size=5), st.sampled_from([0, 1]))
def test_a_missing_target_contributes_exactly_nothing(is_missing, half):
    """Of a time and its event, one that is missing is enough."""
    values = torch.tensor([KNOWN], dtype=torch.float64)
    for missing, target, columns in zip(is_missing, ALL, column_slices(ALL), strict=True):
        if missing:
            only_time = target.kind == "cox"  # in training its second column is 0
            values[0, columns][0 if only_time else half % target.num_columns] = NAN
    output_no = outputs()

    loss = loss_of_targets(ALL)(output_no, values)
    (gradient_no,) = torch.autograd.grad(loss, output_no)

    known = [
        (t, o, c) for t, o, c, m in zip(ALL, output_slices(ALL), column_slices(ALL), is_missing, strict=True) if not m
    ]
    expected = sum(loss_of_targets([t])(output_no[:, o], values[:, c]).item() for t, o, c in known)
    assert loss.item() == pytest.approx(expected)
    for missing, columns in zip(is_missing, output_slices(ALL), strict=True):
        assert bool(gradient_no[:, columns].eq(0).all()) == missing


def test_a_bag_without_targets_costs_nothing_but_has_a_graph():
    output_no = outputs()

    loss = loss_of_targets(ALL)(output_no, torch.full((1, 7), NAN))

    assert loss.item() == 0
    assert torch.equal(torch.autograd.grad(loss, output_no)[0], torch.zeros(1, 12))


# --- CLAM ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1, 8])
def test_the_instance_loss_judges_the_tiles_of_the_true_class_and_rejects_those_of_others(k):
    generator = torch.Generator().manual_seed(k)
    output_1o = torch.randn(1, 3 + 3 * 2 * k, generator=generator, requires_grad=True)
    label = torch.tensor([[1.0]])

    whole = loss_of_targets([SUBTYPE], num_instance_classes=3)(output_1o, label)
    slide = loss_of_targets([SUBTYPE])(output_1o[:, :3], label)

    most_ck, least_ck = output_1o[0, 3:].view(3, 2, k).unbind(1)
    bce = functional.binary_cross_entropy_with_logits
    evidence = torch.cat([most_ck[1], -least_ck[1]])
    parts = [bce(evidence, torch.ones(2 * k))] + [bce(most_ck[c], torch.zeros(k)) for c in (0, 2)] if k else []
    expected = sum(part.item() for part in parts) / 3 * INSTANCE_WEIGHT * SUBTYPE.weight
    assert (whole - slide).item() == pytest.approx(expected, abs=1e-5)
    (gradient_1o,) = torch.autograd.grad(whole, output_1o)
    gradient_c2k = gradient_1o[0, 3:].view(3, 2, k)
    assert gradient_c2k[[0, 2], 1].eq(0).all(), "other classes do not judge the least attended tiles"


def test_without_a_class_no_tile_is_judged():
    output_1o = torch.randn(1, 3 + 3 * 2 * 4, requires_grad=True)

    loss = loss_of_targets([SUBTYPE], num_instance_classes=3)(output_1o, torch.tensor([[NAN]]))

    assert loss.item() == 0
    assert torch.autograd.grad(loss, output_1o)[0].eq(0).all()


# --- predictions -----------------------------------------------------------------------------------


def test_predictions_have_the_units_of_people():
    logits = [0.0, math.log(2), math.log(5), 0.0, 0.0, 0.0, 0.0, -0.5, 1.25, 0.0, math.log(3), math.log(1 / 3)]

    found = predictions_of_targets(ALL, torch.tensor([[*logits, 9.0, 9.0]]))

    assert found["subtype"][0].tolist() == pytest.approx([1 / 8, 2 / 8, 5 / 8])
    assert found["grade"][0].tolist() == pytest.approx([0.5, 0, 0, 0, 0.5])
    assert found["age"].tolist() == [54.0]
    assert found["risk"].tolist() == [1.25]
    assert found["relapse"][0].tolist() == pytest.approx([1 / 2, 1 / 8, 3 / 32])


@given(st.lists(st.floats(-60, 60), min_size=4, max_size=4))
def test_grades_have_probabilities_however_the_logits_rise_and_fall(logits):
    probabilities = predictions_of_targets([GRADE], torch.tensor([logits]))["grade"][0]

    assert (probabilities >= 0).all()
    assert float(probabilities.sum()) == pytest.approx(1)
    first_above = 1 / (1 + math.exp(-logits[0]))
    assert float(probabilities[1:].sum()) == pytest.approx(first_above, abs=1e-6)


@pytest.mark.parametrize("target", [SUBTYPE, GRADE, AGE, RELAPSE], ids=lambda target: target.kind)
def test_a_loss_falls_towards_the_prediction_of_the_truth(target):
    """Outputs trained on one row predict that row."""
    column = dict(zip((target.name for target in ALL), column_slices(ALL), strict=True))[target.name]
    values = torch.tensor([KNOWN])[:, column]
    output_1o = torch.zeros(1, target.num_outputs, requires_grad=True)
    optimizer = torch.optim.SGD([output_1o], lr=0.5)
    for _ in range(200):
        optimizer.zero_grad()
        loss_of_targets([target])(output_1o, values).backward()
        optimizer.step()

    found = predictions_of_targets([target], output_1o)[target.name][0]
    if target.kind in ("class", "ordinal"):
        assert int(found.argmax()) == int(values[0, 0])
    elif target.kind == "number":
        assert float(found) == pytest.approx(48.0, abs=0.1)
    else:
        assert found.tolist() == pytest.approx([1, 1, 0], abs=0.05)


# --- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("a", "colour", 1), "kind must be one of class, ordinal, number, cox, discrete, got 'colour'"),
        (("a", "class", 1), 'kind "class" has 2 outputs or more, got 1'),
        (("a", "number", 2), 'kind "number" has 1 output, got 2'),
        (("a", "ordinal", 0), 'kind "ordinal" has 1 outputs or more, got 0'),
        (("a", "cox", 1, -1.0), "weight must be 0 or more, got -1.0"),
        (("a", "cox", 1, NAN), "weight must be 0 or more, got nan"),
        (("a", "class", 2, 1.0, (1.0,)), "class_weights must have 2 entries, got 1"),
        (("a", "ordinal", 2, 1.0, (1.0, -1.0, 1.0)), "class_weights must be 0 or more"),
        (("a", "cox", 1, 1.0, (1.0,)), "class_weights must have 0 entries, got 1"),
        (("a", "discrete", 2), "needs 2 bounds of time bins, got 0"),
        (("a", "discrete", 2, 1.0, None, (5.0, 5.0)), "must rise from above 0"),
        (("a", "discrete", 1, 1.0, None, (0.0,)), "must rise from above 0"),
        (("a", "discrete", 1, 1.0, None, (math.inf,)), "must rise from above 0 and be finite"),
        (("a", "cox", 1, 1.0, None, (5.0,)), "needs 0 bounds of time bins, got 1"),
        (("a", "number", 1, 1.0, None, (), 0.0, 0.0), "std above 0, got 0.0 and 0.0"),
        (("a", "number", 1, 1.0, None, (), NAN, 1.0), "mean must be finite"),
    ],
)
def test_a_target_that_contradicts_itself_is_refused(fields, message):
    with pytest.raises(ValueError, match=f'target "a": .*{message}'):
        Target(*fields)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (0, 3.0, r'target "subtype": row 1 has \[3.0\], which must be a whole number from 0 to 2'),
        (1, 1.5, r'"grade": row 1 has \[1.5\], which must be a whole number from 0 to 4'),
        (1, -1.0, '"grade": row 1'),
        (2, math.inf, '"age": row 1 .* a finite number'),
        (3, 0.0, r'"risk": row 1 has \[0.0, 1.0\], which must be a finite time above 0 and an event of 0 or 1'),
        (6, 2.0, '"relapse": row 1'),
    ],
)
def test_an_impossible_value_is_refused_by_target_and_row(column, value, message):
    values_nc = torch.tensor([[NAN] * 7, [2.0, 4.0, 48.0, 9.0, 1.0, 25.0, 0.0]])
    check_values(ALL, values_nc)
    values_nc[1, column] = value

    with pytest.raises(ValueError, match=message):
        check_values(ALL, values_nc)


def test_columns_of_other_targets_are_refused():
    loss = loss_of_targets([SUBTYPE, AGE])
    with pytest.raises(ValueError, match=r"outputs \(n, 4\) and targets \(n, 2\), got \(1, 5\) and \(1, 2\)"):
        loss(torch.zeros(1, 5), torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"got \(1, 4\) and \(2, 2\)"):
        loss(torch.zeros(1, 4), torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"outputs \(n, 4\) or wider, got \(1, 3\)"):
        predictions_of_targets([SUBTYPE, AGE], torch.zeros(1, 3))
    with pytest.raises(ValueError, match=r"have 2 columns, got values \(4, 3\)"):
        check_values([SUBTYPE, AGE], torch.zeros(4, 3))


def test_targets_need_names_of_their_own_and_clam_a_class():
    with pytest.raises(ValueError, match="different names, got age more than once"):
        loss_of_targets([AGE, AGE])
    with pytest.raises(ValueError, match="needs one target or more"):
        loss_of_targets([])
    with pytest.raises(ValueError, match="3 instance classes, but there is no class target"):
        loss_of_targets([AGE], num_instance_classes=3)
    with pytest.raises(ValueError, match='2 instance classes, but target "subtype" has 3'):
        loss_of_targets([AGE, SUBTYPE], num_instance_classes=2)
