"""How well a memory is remembered: activation, strength 0 to 100, confidence over time. Pure: no clock, no store.

Two activation formulas, by setting, both from cognitive science:

- `act_r` (default): the ACT-R base-level equation B = ln(sum of t_j ** -d), the log of the summed odds that each past
  use still matters (Anderson & Lebiere 1998, "The Atomic Components of Thought", ch. 4). A memory keeps its last k
  uses, how many there were and when the first was; Petrov (2006, "Computationally efficient approximation of the
  base-level learning equation in ACT-R", ICCM) gives the uses between as one integral.
- `seed`: -0.5 ln(age + 1) + ln(uses + 1) + 2 similarity + noise, the shorter formula of the forgetting design this
  project started from. It knows how often a memory was used but not when: one use long ago counts like one now.

How fast a type fades is a rate a day, half-life = ln 2 / rate (differential decay as in FadeMem). The two meet in the
*equivalent age*: how old a memory never used again would be to have this activation. Strength is exponential (or
linear) decay over the equivalent age: monotone in activation, and with exactly the type's half-life when never used.
Rejected: adding rate and activation as weighted terms, whose weights nobody can check.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import NormalDist
from typing import Literal

from memory_anchor.domain.model import DEFAULT_IMPORTANCE, USAGE_KEPT, Layer, Memory, MemoryType, Strength

DAY_S = 86_400.0
LN2 = math.log(2)
ACT_R_DECAY = 0.5
"""d of the base-level equation; 0.5 is ACT-R's default and fits most human data."""
LEAST_AGE_DAYS = 0.01
"""About 15 minutes: a use younger than this counts as this old, or a use at age 0 would weigh without bound."""
SPREADING_WEIGHT = 2.0
NOISE_SPREAD = 0.02
"""Standard deviation of the noise, in units of activation: 4 % of the equivalent age. The design's 0.25 is 65 %: of two
preferences, both 30 days old, one showed 66 and the other 26."""
NOISE_BOUND = 2.5
"""Standard deviations that no draw exceeds: with the default, 10 % of the equivalent age."""
SHOWN_WEIGHT = 0.2
"""What merely appearing in a result counts, where a use counts 1."""
SHOWN_COUNTED = 10
"""Appearances beyond this add nothing: being found is not being needed."""
VIVID = 80.0
FADING = 40.0
GREATEST = 100.0
MAX_PRIORITY = 200.0
HALF_PRIORITY = 50.0
"""Priority 50 weighs as much as what does not depend on priority."""
MERGE_BONUS = 10.0
"""Priority starts as importance * 100 and rises by this with each merge (the write-back RFC, section 2.7)."""
FAR_AGE_DAYS = 1e9
"""Equivalent ages end here, so that no activation overflows."""

DECAY_RATES: Mapping[MemoryType, float] = {
    MemoryType.INSTRUCTION: 0.01,  # half-life 69 days
    MemoryType.DECISION: 0.01,
    MemoryType.FACT: 0.02,  # 35 days
    MemoryType.BUGFIX: 0.02,
    MemoryType.REFACTOR: 0.03,  # 23 days
    MemoryType.PREFERENCE: 0.03,
    MemoryType.BOOKMARK: 0.03,
    MemoryType.SUMMARY: 0.04,  # 17 days: it outlives the episodes it was made of
    MemoryType.WORKFLOW: 0.05,  # 14 days
    MemoryType.PROJECT_STATE: 0.05,
    MemoryType.DISCOVERY: 0.06,
    MemoryType.NOTE: 0.08,  # 9 days
    MemoryType.EMOTION: 0.08,
    MemoryType.EVENT: 0.10,  # 7 days
    MemoryType.EPISODE: 0.10,
}
"""Fading a day of each type at importance 0.5. The design gives instruction, preference, workflow and episodic; the
others are placed by how long such a thing stays true in a code base."""

_NORMAL = NormalDist()

Formula = Literal["act_r", "seed"]
Decay = Literal["exponential", "linear"]


@dataclass(frozen=True, slots=True)
class ActivationSettings:
    """How strength is computed, by the user's settings under `lifecycle`.

    priority_factors: agent -> what the priority of its memories keeps of itself a day without use; 1 if not named.
    """

    formula: Formula = "act_r"
    decay: Decay = "exponential"
    act_r_decay: float = ACT_R_DECAY
    rates: Mapping[MemoryType, float] = field(default_factory=lambda: DECAY_RATES)
    noise: float = NOISE_SPREAD
    seed: int = 0
    priority_factors: Mapping[str, float] = field(default_factory=dict)
    confidence_half_life_days: float = 365.0
    verify_grace_days: float = 90.0
    verify_below: float = 0.7


DEFAULTS = ActivationSettings()


def settings_named(name: Literal["seed", "act_r", "linear"]) -> ActivationSettings:
    """Return the settings behind the one word a user may choose; `linear` is ACT-R use with linear decay."""
    if name == "linear":
        return ActivationSettings(decay="linear")
    return ActivationSettings(formula=name)


def base_level(
    recent_ages_days: Sequence[float],
    *,
    count: float | None = None,
    first_age_days: float | None = None,
    decay: float = ACT_R_DECAY,
) -> float:
    """Return base-level activation ln(sum of age ** -decay); unitless, any sign.

    recent_ages_days: ages of the k most recent uses, each > 0 days, at least one; the first writing counts as a use.
    count: all uses, at least k (None: k). first_age_days: of the first of them (None: the oldest given). The count - k
    uses between are taken as spread evenly from the first to the oldest of the recent.
    Raises ValueError: no ages, an age <= 0, fewer uses than ages, or a first age below the oldest recent one.
    Source: ACT-R base-level learning (Anderson & Lebiere, 1998); with uses between, Petrov (2006), equation 5.

    >>> round(base_level([1, 4]), 3), base_level([1, 4], count=2, first_age_days=4) == base_level([1, 4])
    (0.405, True)
    """
    if not recent_ages_days or min(recent_ages_days) <= 0:
        raise ValueError("base_level needs at least one age, each above 0 days")
    oldest, uses = max(recent_ages_days), len(recent_ages_days)
    first, rest = (oldest if first_age_days is None else first_age_days), (uses if count is None else count) - uses
    if rest < 0 or first < oldest:
        raise ValueError("base_level needs count >= the ages given and first_age_days >= the oldest of them")
    odds = sum(age**-decay for age in recent_ages_days)
    return math.log(odds + rest * _mean_odds(oldest, first, decay)) if rest > 0 else math.log(odds)


def _mean_odds(near: float, far: float, decay: float) -> float:
    """Return the mean of t ** -decay over near <= t <= far."""
    if math.isclose(near, far, rel_tol=1e-9):
        return math.pow(far, -decay)
    if decay == 1.0:
        return (math.log(far) - math.log(near)) / (far - near)
    return float((far ** (1 - decay) - near ** (1 - decay)) / ((1 - decay) * (far - near)))


def seed_activation(age_days: float, uses: float, *, similarity: float = 0.0, noise: float = 0.0) -> float:
    """Return -0.5 ln(age + 1) + ln(uses + 1) + 2 similarity + noise.

    age_days: since the memory was learned, >= 0. uses: >= 0, without the first writing. similarity: cosine to what is
    asked, 0 when nothing is.

    >>> seed_activation(0, 0), round(seed_activation(3, 1, similarity=0.5), 3)
    (0.0, 1.0)
    """
    return -0.5 * math.log(age_days + 1) + math.log(uses + 1) + SPREADING_WEIGHT * similarity + noise


def seeded_noise(memory_id: str, *, seed: int = 0, spread: float = NOISE_SPREAD) -> float:
    """Return Gaussian noise of one memory, at most `NOISE_BOUND` spreads, the same for all its life.

    It lets some rare memories outlive the fixed schedule of decay. Rejected: a new draw each night, where the first bad
    draw decides: 16 days of life became 11.
    """
    if not spread:
        return 0.0
    digest = hashlib.blake2b(f"{seed}|{memory_id}".encode(), digest_size=8).digest()
    # 53 bits, as many as a float holds, so that the share is above 0 and below 1.
    draw = _NORMAL.inv_cdf(((int.from_bytes(digest, "big") >> 11) + 0.5) / 2**53)
    return spread * max(-NOISE_BOUND, min(NOISE_BOUND, draw))


def rate_of_half_life(half_life_days: float) -> float:
    """Return the rate a day of a half-life: ln 2 / half-life. Raises ValueError: not above 0.

    >>> round(rate_of_half_life(69.3147), 4), round(half_life_of_rate(0.01), 1)
    (0.01, 69.3)
    """
    if half_life_days <= 0:
        raise ValueError("a half-life must be above 0 days")
    return LN2 / half_life_days


def half_life_of_rate(rate: float) -> float:
    """Return the half-life in days of a rate a day: ln 2 / rate. Raises ValueError: not above 0."""
    if rate <= 0:
        raise ValueError("a decay rate must be above 0")
    return LN2 / rate


def decay_rate(
    kind: MemoryType,
    *,
    importance: float = DEFAULT_IMPORTANCE,
    half_life_days: float | None = None,
    rates: Mapping[MemoryType, float] = DECAY_RATES,
) -> float:
    """Return the fading a day of a memory: its own half-life's, else its type's, weighted by importance 0 to 1.

    The half-life doubles at importance 1, halves at 0 and is the type's at 0.5; one set by hand is taken as it is.

    >>> decay_rate(MemoryType.EPISODE), decay_rate(MemoryType.EPISODE, importance=1.0)
    (0.1, 0.05)
    """
    if half_life_days is not None:
        return rate_of_half_life(half_life_days)
    return rates.get(kind, DECAY_RATES[kind]) * math.pow(2.0, 1.0 - 2.0 * importance)


def equivalent_age_days(activation: float, *, formula: Formula = "act_r", act_r_decay: float = ACT_R_DECAY) -> float:
    """Return how old a memory never used again would be to have this activation; falls as activation rises.

    >>> round(equivalent_age_days(base_level([9])), 6), round(equivalent_age_days(0.0, formula="seed"), 6)
    (9.0, 0.0)
    """
    slope = 0.5 if formula == "seed" else act_r_decay
    exponent = min(-activation / slope, math.log(FAR_AGE_DAYS))
    age = math.exp(exponent)
    return max(0.0, age - 1.0) if formula == "seed" else age


def strength(age_days: float, rate: float, decay: Decay = "exponential") -> float:
    """Return strength 0 to 100 at an equivalent age >= 0 for a rate a day.

    Both decays reach 50 at the half-life; linear loses the same points every day and ends at 0.

    >>> [round(strength(days, 0.10)) for days in (0, 2, 7, 14, 23, 46)]
    [100, 82, 50, 25, 10, 1]
    >>> [round(strength(days, 0.10, "linear")) for days in (0, 2, 7, 14)]
    [100, 86, 50, 0]
    """
    if decay == "linear":
        return max(0.0, GREATEST - 50.0 * age_days / half_life_of_rate(rate))
    return GREATEST * math.exp(-rate * age_days)


def strength_word(value: float) -> Strength:
    """Return vivid (80 and above), fading (40 to below 80) or faded (below 40)."""
    if value >= VIVID:
        return "vivid"
    return "fading" if value >= FADING else "faded"


def relative_importance(memory: Memory) -> float:
    """Return how much more important than the default a memory is, -1 to 1."""
    return 2 * (memory.importance - DEFAULT_IMPORTANCE)


def first_priority(memory: Memory) -> float:
    """Return the priority a memory starts with, 0 to 100."""
    return round(memory.importance * 100, 1)


def merged_priority(priority: float, repeat: Memory | None = None) -> float:
    """Return the priority, 0 to 200, of a memory that was said again.

    >>> merged_priority(195)
    200.0
    """
    return min(MAX_PRIORITY, max(priority, first_priority(repeat) if repeat is not None else 0.0) + MERGE_BONUS)


def with_highest_importance(memory: Memory, sources: Iterable[Memory]) -> Memory:
    """Return the memory with the highest importance among these."""
    return replace(memory, importance=max(source.importance for source in sources))


def priority_bonus(memory: Memory, now: datetime, settings: ActivationSettings = DEFAULTS) -> float:
    """Return what strength is multiplied by: 1 for a memory as it was written, more where it was said again.

    Half of the multiplier is its priority, 0 to 200, relative to the first one; where its agent's settings say so,
    priority fades to priority * factor ** days without use.
    """
    priority, factor = memory.priority, settings.priority_factors.get(memory.scope.agent, 1.0)
    if factor < 1.0:
        priority *= math.pow(factor, age_days(last_used_at(memory), now))
    return (HALF_PRIORITY + min(MAX_PRIORITY, priority)) / (HALF_PRIORITY + first_priority(memory))


def age_days(since: datetime, now: datetime) -> float:
    """Return days from `since` to `now`, never below 0, even where a clock went back."""
    return max(0.0, (now - since).total_seconds() / DAY_S)


def fades_from(memory: Memory) -> datetime:
    """Return when a memory begins to fade: when it was learned, or what it plans is to happen, if that is later."""
    return max(memory.learned_at, memory.when or memory.learned_at)


def last_used_at(memory: Memory) -> datetime:
    """Return when the memory was last used, or began to fade if it never was."""
    return max(fades_from(memory), memory.usage.last_at or memory.learned_at)


def activation_of(memory: Memory, now: datetime, settings: ActivationSettings = DEFAULTS) -> float:
    """Return the activation of a memory at `now` by the formula of the settings, without noise or spreading."""
    usage, born = memory.usage, age_days(fades_from(memory), now)
    shown = SHOWN_WEIGHT * min(usage.shown, SHOWN_COUNTED)
    if settings.formula == "seed":
        return seed_activation(born, usage.count + shown)
    first = max(born, LEAST_AGE_DAYS)
    recent = [min(first, max(LEAST_AGE_DAYS, age_days(at, now))) for at in usage.accesses[-USAGE_KEPT:]]
    # The writing itself is the first use; appearances have no instants and go to the evenly spread part.
    between = max(0.0, usage.count - len(recent)) + shown
    ages = [*recent, first]
    return base_level(ages, count=len(ages) + between, first_age_days=first, decay=settings.act_r_decay)


def strength_of(
    memory: Memory, now: datetime, settings: ActivationSettings = DEFAULTS, *, with_noise: bool = True
) -> float:
    """Return the strength 0 to 100 of a memory at `now`: shown to users, and what decides whether it is archived.

    A pinned one does not fade. with_noise: False for ranking, which noise would only blur.
    """
    if memory.pinned:
        return GREATEST
    noise = seeded_noise(memory.id, seed=settings.seed, spread=settings.noise) if with_noise else 0.0
    activation = activation_of(memory, now, settings) + noise
    age = equivalent_age_days(activation, formula=settings.formula, act_r_decay=settings.act_r_decay)
    rate = decay_rate(
        memory.type, importance=memory.importance, half_life_days=memory.half_life_days, rates=settings.rates
    )
    return min(GREATEST, strength(age, rate, settings.decay) * priority_bonus(memory, now, settings))


def confidence_of(memory: Memory, now: datetime, settings: ActivationSettings = DEFAULTS) -> float:
    """Return the confidence of a memory at `now`: an L3 fact's halves since last corroborated, others keep theirs."""
    if memory.layer is not Layer.VERIFIED_FACT or memory.pinned:
        return memory.confidence
    since = age_days(memory.corroborated_at or memory.learned_at, now)
    return memory.confidence * math.pow(0.5, since / settings.confidence_half_life_days)


def needs_verifying(memory: Memory, now: datetime, settings: ActivationSettings = DEFAULTS) -> bool:
    """Return whether a fact is past its grace period and its confidence has fallen below the bound.

    Such a fact is marked and ranks lower; it is never archived for it.
    """
    if memory.layer is not Layer.VERIFIED_FACT or memory.pinned:
        return False
    if age_days(memory.corroborated_at or memory.learned_at, now) < settings.verify_grace_days:
        return False
    return confidence_of(memory, now, settings) < settings.verify_below
