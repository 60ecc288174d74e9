"""Activation and strength: the published formulas, one table of values, and the laws they must keep."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_anchor.domain import activation as act
from memory_anchor.domain.model import Layer, Memory, MemoryType, Scope, Usage

T0 = datetime(2026, 1, 1, tzinfo=UTC)
AGES = st.floats(0.02, 3000)
FORMULAS = st.sampled_from(["act_r", "seed"])
SETTINGS = st.builds(
    act.ActivationSettings, formula=FORMULAS, decay=st.sampled_from(["exponential", "linear"]), noise=st.just(0.25)
)


def a_memory(kind: MemoryType = MemoryType.EPISODE, **changes: object) -> Memory:
    memory = Memory("m1", "text", Layer.EVENT_LOG, kind, Scope(), recorded_at=T0, valid_from=T0)
    return replace(memory, **changes)  # type: ignore[arg-type]


def used(*days: float) -> Usage:
    accesses = tuple(T0 + timedelta(days=day) for day in sorted(days))
    return Usage(count=len(days), last_at=accesses[-1] if accesses else None, accesses=accesses[-10:])


TABLE = [
    # type, days since written, days of use, strength, word
    (MemoryType.EPISODE, 0, (), 100, "vivid"),
    (MemoryType.EPISODE, 2, (), 82, "vivid"),
    (MemoryType.EPISODE, 5, (), 61, "fading"),
    (MemoryType.EPISODE, 10, (), 37, "faded"),
    (MemoryType.EPISODE, 30, (), 5, "faded"),
    (MemoryType.EPISODE, 30, (29,), 93, "vivid"),
    (MemoryType.EPISODE, 30, (10, 20), 83, "vivid"),
    (MemoryType.WORKFLOW, 14, (), 50, "fading"),
    (MemoryType.PREFERENCE, 14, (), 66, "fading"),
    (MemoryType.INSTRUCTION, 14, (), 87, "vivid"),
    (MemoryType.INSTRUCTION, 100, (), 37, "faded"),
]


@pytest.mark.parametrize(("kind", "days", "uses", "expected", "word"), TABLE)
def test_strength_follows_the_documented_table(
    kind: MemoryType, days: int, uses: tuple[float, ...], expected: int, word: str
):
    """Rule: one formula; vivid 80-100, fading 40-79, faded below 40."""
    value = act.strength_of(a_memory(kind, usage=used(*uses)), T0 + timedelta(days=days), with_noise=False)

    assert round(value) == expected
    assert act.strength_word(value) == word


def test_the_words_change_exactly_at_80_and_40():
    """Rule: vivid from 80, fading from 40."""
    assert [act.strength_word(v) for v in (100, 80, 79.99, 40, 39.99, 0)] == [
        "vivid",
        "vivid",
        "fading",
        "fading",
        "faded",
        "faded",
    ]


def test_all_fifteen_types_have_a_rate_and_the_given_ones_are_kept():
    """Rule: instruction 0.01, preference 0.03, workflow 0.05, episodic 0.10 a day; no type is without."""
    assert set(act.DECAY_RATES) == set(MemoryType)
    assert [act.DECAY_RATES[MemoryType(t)] for t in ("instruction", "preference", "workflow", "episode")] == [
        0.01,
        0.03,
        0.05,
        0.10,
    ]


def test_base_level_is_the_log_of_summed_power_law_odds():
    """Source: ACT-R base-level learning; ln(1 + 4 ** -0.5) by hand."""
    assert act.base_level([1, 4]) == pytest.approx(math.log(1.5))
    for bad in ([], [0.0], [1.0, -2.0]):
        with pytest.raises(ValueError, match="above 0"):
            act.base_level(bad)


@given(st.lists(AGES, min_size=1, max_size=10))
def test_the_bounded_form_is_exact_when_every_use_is_kept(ages: list[float]):
    """Law: with k == count the approximation is the equation."""
    bounded = act.base_level(ages, count=len(ages), first_age_days=max(ages))

    assert bounded == pytest.approx(act.base_level(ages))


def test_the_bounded_form_stays_close_when_only_ten_of_many_uses_are_kept():
    """Source: Petrov 2006 reports errors of a few per cent for k of 1 and more; here 200 uses over a year, k = 10."""
    ages = [365 * (i + 1) / 200 for i in range(200)]

    bounded = act.base_level(ages[:10], count=200, first_age_days=365)

    assert bounded == pytest.approx(act.base_level(ages), abs=0.05)


def test_the_seed_formula_is_recency_plus_frequency_plus_spreading_plus_noise():
    """Rule: -0.5 ln(age + 1) + ln(uses + 1) + 2 similarity + noise."""
    value = act.seed_activation(8, 3, similarity=0.6, noise=0.1)

    assert value == pytest.approx(-0.5 * math.log(9) + math.log(4) + 1.2 + 0.1)


def test_noise_is_the_same_for_all_of_a_memorys_life_and_has_the_stated_spread():
    """Rule: a fixed draw a memory, since of many draws the first bad one decides; its spread is the setting's."""
    drawn = [act.seeded_noise(f"m{i}", seed=7, spread=0.25) for i in range(4000)]

    assert drawn == [act.seeded_noise(f"m{i}", seed=7, spread=0.25) for i in range(4000)]
    assert drawn[0] != act.seeded_noise("m0", seed=8, spread=0.25)
    assert abs(statistics.median(drawn)) < 0.02
    assert math.sqrt(sum(x * x for x in drawn) / len(drawn)) == pytest.approx(0.25, abs=0.02)
    assert max(map(abs, drawn)) == 0.25 * act.NOISE_BOUND


@pytest.mark.parametrize("days", [7, 30, 90])
def test_two_of_one_kind_and_age_show_about_the_same_strength(days: int):
    """Rule: noise spreads the night in which memories of a kind go, and what people are shown hardly."""
    now = T0 + timedelta(days=days)
    preferences = [replace(a_memory(kind=MemoryType.PREFERENCE), id=f"m{i}") for i in range(500)]

    shown = [act.strength_of(memory, now) for memory in preferences]

    assert max(shown) - min(shown) <= 10
    assert len({round(strength, 3) for strength in shown}) > 100


@given(st.floats(0.5, 5000))
def test_half_life_and_rate_are_one_thing(half_life: float):
    """Law: rate = ln 2 / half-life; both decays are at 50 after one half-life."""
    rate = act.rate_of_half_life(half_life)

    assert act.half_life_of_rate(rate) == pytest.approx(half_life)
    assert act.strength(half_life, rate) == pytest.approx(50)
    assert act.strength(half_life, rate, "linear") == pytest.approx(50)


@given(SETTINGS, st.lists(st.floats(0, 300), max_size=15), st.floats(300, 2000), st.floats(0, 2000))
def test_strength_never_rises_with_age_alone(
    settings: act.ActivationSettings, uses: list[float], day: float, more: float
):
    """Law: activation and strength fall with age."""
    memory = a_memory(usage=used(*uses))
    early, late = T0 + timedelta(days=day), T0 + timedelta(days=day + more)

    assert act.activation_of(memory, late, settings) <= act.activation_of(memory, early, settings) + 1e-9
    assert act.strength_of(memory, late, settings) <= act.strength_of(memory, early, settings) + 1e-9


@given(SETTINGS, st.lists(st.floats(0, 300), max_size=9), st.floats(0, 300), st.integers(0, 5))
def test_a_further_use_never_weakens_a_memory(
    settings: act.ActivationSettings, uses: list[float], another: float, shown: int
):
    """Law: activation rises with use, and appearing in a result never lowers it."""
    now = T0 + timedelta(days=300)
    before = a_memory(usage=used(*uses))
    after = a_memory(usage=used(*uses, another))
    seen = a_memory(usage=replace(used(*uses), shown=shown))

    assert act.activation_of(after, now, settings) > act.activation_of(before, now, settings)
    assert act.strength_of(after, now, settings) >= act.strength_of(before, now, settings)
    assert act.activation_of(seen, now, settings) >= act.activation_of(before, now, settings)


@given(FORMULAS, st.floats(-12, 6), st.floats(0, 6))
def test_strength_is_monotone_in_activation(formula: act.Formula, activation: float, more: float):
    """Law: the more active, the stronger, within 0 to 100."""
    low, high = (
        act.strength(act.equivalent_age_days(a, formula=formula), 0.05) for a in (activation, activation + more)
    )

    assert 0 <= low <= high <= 100


@given(SETTINGS, st.floats(0, 4000), st.floats(0, 1), st.sampled_from(list(MemoryType)))
def test_strength_stays_between_0_and_100_for_every_type(
    settings: act.ActivationSettings, days: float, importance: float, kind: MemoryType
):
    """Law: 0 <= strength <= 100."""
    value = act.strength_of(a_memory(kind, importance=importance), T0 + timedelta(days=days), settings)

    assert 0 <= value <= 100


@pytest.mark.parametrize("formula", ["act_r", "seed"])
def test_a_memory_never_used_again_fades_by_its_types_half_life(formula: act.Formula):
    """Rule: with either formula the type's rate is the true one where nothing reinforced the memory."""
    now = T0 + timedelta(days=act.half_life_of_rate(0.10))

    value = act.strength_of(a_memory(), now, act.ActivationSettings(formula=formula, noise=0))

    assert value == pytest.approx(50)


def test_the_one_word_of_the_settings_chooses_formula_and_decay():
    """Rule: `lifecycle.activation` is seed, act_r or linear."""
    chosen = [(act.settings_named(n).formula, act.settings_named(n).decay) for n in ("seed", "act_r", "linear")]

    assert chosen == [("seed", "exponential"), ("act_r", "exponential"), ("act_r", "linear")]


def test_importance_doubles_or_halves_the_half_life_and_an_own_half_life_wins():
    """Rule: importance-weighted rates; `half_life_days` of a memory is taken as it is."""
    now = T0 + timedelta(days=10)
    calm = act.ActivationSettings(noise=0)
    by_importance = [act.strength_of(a_memory(importance=i, priority=100 * i), now, calm) for i in (0.0, 0.5, 1.0)]

    assert by_importance == pytest.approx([100 * math.exp(-x) for x in (2.0, 1.0, 0.5)])
    own = a_memory(importance=0.0, priority=0.0, half_life_days=10.0)
    assert act.strength_of(own, now, calm) == pytest.approx(50)


def test_appearing_in_results_counts_less_than_being_used_and_is_bounded():
    """Rule: mere appearance counts less, and however often it happens never beats a few uses."""
    now = T0 + timedelta(days=30)
    seen, seen_always, fetched = (
        act.activation_of(a_memory(usage=usage), now) for usage in (Usage(shown=1), Usage(shown=10_000), used(15))
    )

    assert act.activation_of(a_memory(), now) < seen < fetched
    assert seen_always == act.activation_of(a_memory(usage=Usage(shown=10)), now)


def test_a_pinned_memory_does_not_fade():
    """Rule: pinned memories are exempt."""
    assert act.strength_of(a_memory(pinned=True), T0 + timedelta(days=5000)) == 100


def test_priority_decays_by_a_factor_for_each_day_without_access():
    """Rule: priority * factor ** days since last access, within 0 to 200."""
    settings, week = act.ActivationSettings(priority_factors={"codex": 0.9}), T0 + timedelta(days=7)
    of_codex = a_memory(scope=Scope(agent="codex"), priority=100.0)
    begun = 50 + act.first_priority(of_codex)

    assert act.priority_bonus(of_codex, week, settings) == pytest.approx((50 + 100 * 0.9**7) / begun)
    assert act.priority_bonus(replace(of_codex, priority=500.0), T0, settings) == pytest.approx(250 / begun)
    assert act.priority_bonus(replace(of_codex, scope=Scope()), week, settings) == pytest.approx(150 / begun)


def test_only_facts_lose_confidence_and_only_after_the_grace_period_are_they_to_verify():
    """Rule: L3 confidence halves since last corroborated; below 0.7 after the grace period it is to be verified."""
    settings = act.ActivationSettings(confidence_half_life_days=100, verify_grace_days=60, verify_below=0.7)
    fact = a_memory(MemoryType.FACT, layer=Layer.VERIFIED_FACT, confidence=0.9)
    at = lambda days: T0 + timedelta(days=days)  # noqa: E731

    assert act.confidence_of(fact, at(100), settings) == pytest.approx(0.45)
    assert act.confidence_of(a_memory(confidence=0.9), at(100), settings) == 0.9
    assert [act.needs_verifying(fact, at(d), settings) for d in (30, 59, 60, 300)] == [False, False, True, True]
    assert not act.needs_verifying(replace(fact, corroborated_at=at(290)), at(300), settings)
    assert not act.needs_verifying(replace(fact, pinned=True), at(300), settings)
    assert not act.needs_verifying(a_memory(confidence=0.1), at(300), settings)
