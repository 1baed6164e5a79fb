"""Every measured metric, token by token in plain Python, without the library: slow and obvious.

``reference(data, options)`` takes padded lists and returns id to value, or to None where there is none.
"""

import math
from fractions import Fraction

Data = dict
Options = dict


def mean(values):
    values = list(values)
    return math.fsum(values) / len(values) if values else None


def variance(values):
    values = list(values)
    if not values:
        return None
    middle = mean(values)
    return math.fsum((v - middle) ** 2 for v in values) / len(values)


def spread(id, values, out, stats=("mean", "max", "min")):
    values = list(values)
    known = {
        "mean": mean(values),
        "max": max(values) if values else None,
        "min": min(values) if values else None,
        "var": variance(values),
        "std": math.sqrt(variance(values)) if values else None,
    }
    out.update({f"{id}/{stat}": known[stat] for stat in stats})


def quantiles(id, values, out, of=lambda value: value):
    """Return the values of these ranks, each as the middle of its bin: 3 % apart from both ends."""
    values, width = sorted(values), 1.03 / 0.97
    for percent in (1, 10, 50, 90, 99):
        out[f"{id}/p{percent}"] = None
        if not values:
            continue
        exact = values[max(1, -(-percent * len(values) // 100)) - 1]
        middle = 0.0
        if abs(exact) >= 1e-5:
            steps = min(math.floor(math.log(abs(exact) / 1e-5) / math.log(width)), 422)
            middle = math.copysign(1e-5 * width**steps * 2 * width / (1 + width), exact)
        assert abs(middle - exact) <= max(0.0300001 * abs(exact), 1e-5)
        out[f"{id}/p{percent}"] = of(middle)


def clip(x, low, high):
    return max(low, min(high, x))


class Walk:
    """The valid tokens of padded data."""

    def __init__(self, data):
        self.data = data
        self.rows = range(len(data["response_mask"]))

    def keeps(self, i, t):
        keep = self.data.get("keep")
        if keep is None:
            return True
        return bool(keep[i][t]) if isinstance(keep[i], list) else bool(keep[i])

    def response(self, i):
        return [t for t, m in enumerate(self.data["response_mask"][i]) if m]

    def valid(self, i):
        return [t for t in self.response(i) if self.keeps(i, t)]

    def tokens(self, function):
        return [function(i, t) for i in self.rows for t in self.valid(i)]

    def has(self, *names):
        return all(self.data.get(name) is not None for name in names)

    def at(self, name):
        return lambda i, t: float(self.data[name][i][t])


def reduce(walk, function, options, weights=None, rows=None):
    """Return the mean of a per-token loss by the ``loss`` option."""
    rows = [i for i in (walk.rows if rows is None else rows) if walk.valid(i)]
    how = options.get("loss", "seq-mean-token-mean")
    sums = {i: math.fsum(function(i, t) for t in walk.valid(i)) for i in rows}
    if weights is not None:
        sums = {i: s * float(weights[i]) for i, s in sums.items()}
    if how == "token-sum-norm":  # the mean over updates, each of which has loss_batch sequences
        updates = len(walk.rows) / options["loss_batch"]
        return math.fsum(sums.values()) / options["loss_norm"] / updates if updates else None
    if not rows:
        return None
    if how == "token-mean":
        return math.fsum(sums.values()) / sum(len(walk.valid(i)) for i in rows)
    if how == "seq-mean-token-mean":
        return mean(sums[i] / len(walk.valid(i)) for i in rows)
    if how == "seq-mean-token-sum":
        return mean(sums.values())
    return mean(s / options["loss_norm"] for s in sums.values())


def reference(data, options):
    out = {}
    walk = Walk(data)
    lengths(walk, options, out)
    rewards(walk, options, out)
    old_policy(walk, options, out)
    if walk.has("old_log_probs", "rollout_log_probs"):
        mismatch(walk, options, out)
    policy(walk, options, out)
    value(walk, options, out)
    spreads(walk, out)
    return out


def spreads(walk, out):
    """Return the quantiles of five distributions."""
    gap = lambda a, b: lambda i, t: walk.at(a)(i, t) - walk.at(b)(i, t)  # noqa: E731
    quantiles("tokens/response_length", [len(walk.response(i)) for i in walk.rows], out)
    if walk.has("entropy"):
        quantiles("policy/entropy", walk.tokens(walk.at("entropy")), out)
    if walk.has("advantages"):
        quantiles("reward/advantages", walk.tokens(walk.at("advantages")), out)
    if walk.has("log_probs", "old_log_probs"):
        quantiles("policy/ratio", walk.tokens(gap("log_probs", "old_log_probs")), out, math.exp)
    if walk.has("old_log_probs", "rollout_log_probs"):
        apart = map(abs, walk.tokens(gap("old_log_probs", "rollout_log_probs")))
        quantiles("policy/mismatch/log_prob_difference", apart, out)


def lengths(walk, options, out):
    data = walk.data
    response = [len(walk.response(i)) for i in walk.rows]
    spread("tokens/response_length", response, out)
    spread("tokens/response_length_not_aborted", [n for n in response if n], out)
    out["tokens/aborted"] = mean(n == 0 for n in response)
    if walk.has("prompt_lengths"):
        prompt = [int(n) for n in data["prompt_lengths"]]
        spread("tokens/prompt_length", prompt, out)
        spread("tokens/total_length", [a + b for a, b in zip(response, prompt, strict=True)], out)
        if options.get("max_prompt_length"):
            out["tokens/prompt_truncated"] = mean(n >= options["max_prompt_length"] for n in prompt)
    if walk.has("finished"):
        spread("tokens/terminated_length", [n for n, f in zip(response, data["finished"], strict=True) if f], out)
    if options.get("max_response_length"):
        out["tokens/response_truncated"] = mean(n >= options["max_response_length"] for n in response)
    if walk.has("actions", "eos_ids"):
        ends = [sum(data["actions"][i][t] in data["eos_ids"] for t in walk.response(i)) for i in walk.rows]
        out["tokens/eos_count"] = sum(ends)
        out["tokens/contains_eos"] = mean(n > 0 for n in ends)
    if walk.has("actions"):
        out["tokens/repetition"] = mean(repeats(data["actions"][i], walk.response(i)) for i in walk.rows)
    valid = [len(walk.valid(i)) > 0 for i in walk.rows]
    out |= {"ppo/valid_samples": sum(valid), "ppo/total_samples": len(valid), "ppo/valid_sample_ratio": mean(valid)}
    if walk.has("weights"):
        spread("ppo/sample_weights", map(float, data["weights"]), out)


def repeats(actions, response):
    """Return whether the tokens up to the last of the response repeat a stretch of 1 to 128 tokens."""
    for period in range(1, 129):
        places = range(response[-1] - max(64, 2 * period) + 1, response[-1] + 1) if response else []
        is_response = places and places[0] >= 0 and set(places) <= set(response)
        if is_response and all(actions[t] == actions[t - period] for t in places[period:]):
            return True
    return False


def scores_of(walk, rows):
    """Return one score per episode, the first, or per sequence."""
    data, seen, found = walk.data, set(), []
    for i in rows:
        episode = data["episodes"][i] if data.get("episodes") is not None else i
        if episode not in seen:
            seen.add(episode)
            found.append(float(data["scores"][i]))
    return found


def outcome(walk, options, out):
    """Length of right and of wrong answers, and how length and score go together."""
    pairs = [(len(walk.response(i)), float(walk.data["scores"][i])) for i in walk.rows]
    right = options.get("right_score", 1.0)
    out["tokens/response_length_right/mean"] = mean(n for n, score in pairs if score >= right)
    out["tokens/response_length_wrong/mean"] = mean(n for n, score in pairs if score < right)
    if options.get("max_response_length"):
        cut = [score >= right for n, score in pairs if n >= options["max_response_length"]]
        out["reward/truncated_right"] = mean(cut)
    n, score = mean(n for n, _ in pairs), mean(score for _, score in pairs)
    product = math.fsum((a - n) * (b - score) for a, b in pairs)
    spreads = [math.fsum((a - n) ** 2 for a, _ in pairs), math.fsum((b - score) ** 2 for _, b in pairs)]
    varies = len({n for n, _ in pairs}) > 1 and len({score for _, score in pairs}) > 1
    out["reward/length_correlation"] = product / math.sqrt(spreads[0] * spreads[1]) if varies else None


def rewards(walk, options, out):
    data = walk.data
    some = [i for i in walk.rows if walk.response(i)]
    if walk.has("scores"):
        spread("reward/score", scores_of(walk, walk.rows), out, ("mean", "max", "min", "std"))
        spread("reward/score_not_aborted", scores_of(walk, some), out)
        outcome(walk, options, out)
    if walk.has("rewards"):
        total = {i: math.fsum(float(data["rewards"][i][t]) for t in walk.response(i)) for i in walk.rows}
        spread("reward/shaped", total.values(), out)
        spread("reward/shaped_not_aborted", [total[i] for i in some], out)
    for name in ("advantages", "returns"):
        if walk.has(name):
            spread(f"reward/{name}", walk.tokens(walk.at(name)), out)
    if walk.has("advantages"):
        spread("reward/advantages", walk.tokens(walk.at("advantages")), out, ("std",))
        out["reward/advantages/zero"] = mean(walk.tokens(lambda i, t: walk.at("advantages")(i, t) == 0))
    if walk.has("unclipped_rewards") and options.get("reward_clip"):
        outside = [abs(float(r)) > options["reward_clip"] for r in data["unclipped_rewards"]]
        out["evaluation/reward_clip_fraction"] = mean(outside)
    if walk.has("scores", "groups"):
        groups = {}
        for i in walk.rows:
            groups.setdefault(data["groups"][i], []).append(float(data["scores"][i]))
        right = options.get("right_score", 1.0)
        out["reward/groups/effective_samples"] = sum(len(g) for g in groups.values() if max(g) != min(g))
        out["reward/zero_std_groups"] = mean(max(g) == min(g) for g in groups.values())
        out["reward/groups/solved_none"] = mean(max(g) < right for g in groups.values())
        out["reward/groups/solved_all"] = mean(min(g) >= right for g in groups.values())
        out["reward/groups/solved_some"] = mean(max(g) >= right > min(g) for g in groups.values())
        out["reward/groups/std"] = mean(math.sqrt(variance(g)) for g in groups.values())
        rates = [Fraction(sum(score >= right for score in g), len(g)) for g in groups.values()]
        bins = {
            "0": lambda r: r == 0, "0_25": lambda r: 0 < r <= Fraction(1, 4),
            "25_50": lambda r: Fraction(1, 4) < r <= Fraction(1, 2),
            "50_75": lambda r: Fraction(1, 2) < r <= Fraction(3, 4), "75_100": lambda r: Fraction(3, 4) < r < 1,
            "100": lambda r: r == 1,
        }  # fmt: skip
        for name, holds in bins.items():
            out[f"reward/groups/solve_rate/{name}"] = mean(map(holds, rates))


def old_policy(walk, options, out):
    data = walk.data
    old, ref = walk.at("old_log_probs"), walk.at("ref_log_probs")
    if walk.has("ref_log_probs"):
        out["evaluation/ref_log_prob/mean"] = mean(walk.tokens(ref))
    if walk.has("old_log_probs"):
        out["evaluation/old_log_prob/mean"] = mean(walk.tokens(old))
        out["policy/entropy_sum"] = mean(math.fsum(-old(i, t) for t in walk.valid(i)) for i in walk.rows)
    if walk.has("old_entropy") or walk.has("entropy"):
        out["evaluation/entropy/mean"] = mean(
            walk.tokens(walk.at("old_entropy" if walk.has("old_entropy") else "entropy"))
        )
    if walk.has("old_log_probs", "ref_log_probs"):
        out["policy/ref_kl_k1"] = mean(walk.tokens(lambda i, t: old(i, t) - ref(i, t)))
        kl = {i: math.fsum(old(i, t) - ref(i, t) for t in walk.valid(i)) for i in walk.rows}
        out["policy/ref_kl_k3"] = mean(
            walk.tokens(lambda i, t: math.exp(ref(i, t) - old(i, t)) - (ref(i, t) - old(i, t)) - 1)
        )
        out["policy/ref_kl_sum"] = mean(kl.values())
        if options.get("kl_coef") is not None:
            out["reward/non_score/mean"] = mean(-options["kl_coef"] * k for k in kl.values())
            if walk.has("scores"):
                out["reward/rlhf/mean"] = mean(float(data["scores"][i]) - options["kl_coef"] * k for i, k in kl.items())
    if walk.has("old_values"):
        spread("value/values", walk.tokens(walk.at("old_values")), out)
    if walk.has("old_values", "returns"):
        returns, guess = walk.at("returns"), walk.at("old_values")
        whole = variance(walk.tokens(returns))
        rest = variance(walk.tokens(lambda i, t: returns(i, t) - guess(i, t)))
        out["value/explained_variance"] = 1 - rest / whole if whole else None


def mismatch(walk, options, out):
    old, roll = walk.at("old_log_probs"), walk.at("rollout_log_probs")
    some = [i for i in walk.rows if walk.valid(i)]
    at = "policy/mismatch"
    spread(f"{at}/log_prob_difference", walk.tokens(lambda i, t: abs(old(i, t) - roll(i, t))), out, ("mean", "max"))
    difference = walk.tokens(lambda i, t: abs(math.exp(old(i, t)) - math.exp(roll(i, t))))
    spread(f"{at}/probability_difference", difference, out, ("mean", "max", "std"))
    out[f"{at}/kl_k1"] = mean(walk.tokens(lambda i, t: roll(i, t) - old(i, t)))
    out[f"{at}/kl_k3"] = mean(walk.tokens(lambda i, t: math.exp(old(i, t) - roll(i, t)) - (old(i, t) - roll(i, t)) - 1))
    weights = walk.tokens(lambda i, t: math.exp(old(i, t) - roll(i, t)))
    spread(f"{at}/ratio", weights, out, ("mean", "max", "min", "std"))
    squares = math.fsum(w * w for w in weights)
    out[f"{at}/effective_sample_size"] = math.fsum(weights) ** 2 / (len(weights) * squares) if weights else None
    ratios = [math.exp(math.fsum(old(i, t) - roll(i, t) for t in walk.valid(i))) for i in some]
    spread(f"{at}/importance_ratio", ratios, out)
    nll = {
        name: [mean(-f(i, t) for t in walk.valid(i)) for i in some]
        for name, f in (("training", old), ("rollout", roll))
    }
    for name, values in nll.items():
        out[f"{at}/perplexity/{name}"] = mean(math.exp(v) for v in values)
        out[f"{at}/log_perplexity/{name}"] = mean(values)
    apart = [b - a for a, b in zip(nll["training"], nll["rollout"], strict=True)]
    out[f"{at}/log_perplexity/difference"] = mean(apart)
    out[f"{at}/log_perplexity/abs_difference"] = mean(map(abs, apart))
    out[f"{at}/log_perplexity/difference_max"] = max(apart) if apart else None
    out[f"{at}/log_perplexity/difference_min"] = min(apart) if apart else None
    out[f"{at}/perplexity/ratio"] = mean(
        math.exp(a) / math.exp(b) for a, b in zip(nll["training"], nll["rollout"], strict=True)
    )
    out[f"{at}/chi2_token"] = mean(w * w - 1 for w in weights)
    out[f"{at}/chi2_sequence"] = mean(w * w - 1 for w in ratios)
    if options.get("truncate"):
        truncation(weights, ratios, options["truncate"], out)
    if options.get("reject"):
        rejection(walk, *options["reject"], out)


def truncation(of_tokens, of_sequences, truncate, out):
    level, cap = truncate if isinstance(truncate, tuple) else ("token", truncate)
    weights = of_tokens if level == "token" else of_sequences
    cut = [min(w, cap) for w in weights]
    at = "policy/mismatch/truncated_weight"
    out[f"{at}/mean"] = mean(cut)
    out[f"{at}/deviation"] = mean(abs(w - 1) for w in cut)
    out[f"{at}/clip_fraction"] = mean(w > cap for w in weights)
    squares = math.fsum(w * w for w in cut)
    out[f"{at}/effective_sample_size"] = math.fsum(cut) ** 2 / (len(cut) * squares) if cut else None


def rejection(walk, level, low, high, out):
    old, roll = walk.at("old_log_probs"), walk.at("rollout_log_probs")
    kept, rejected, sequences = [], [], []
    for i in walk.rows:
        tokens = [old(i, t) - roll(i, t) for t in walk.valid(i)]
        if not tokens:
            continue
        whole = math.exp(math.fsum(tokens) / (len(tokens) if level == "geometric" else 1))
        fates = [not low <= (math.exp(d) if level == "token" else whole) <= high for d in tokens]
        sequences.append(any(fates))
        for d, fate in zip(tokens, fates, strict=True):
            (rejected if fate else kept).append(math.exp(d) - d - 1)
    at = "policy/mismatch"
    out[f"{at}/rejected/tokens"] = len(rejected) / (len(kept) + len(rejected)) if sequences else None
    out[f"{at}/rejected/sequences"] = mean(sequences)
    out[f"{at}/kl_k3/kept"] = mean(kept)
    out[f"{at}/kl_k3/rejected"] = mean(rejected)


def sft(walk, lp, options, out):
    out["sft/loss"] = reduce(walk, lambda i, t: -lp(i, t), options)
    if walk.has("scores"):
        for name, chosen in (("positive", True), ("negative", False)):
            rows = [i for i in walk.rows if (float(walk.data["scores"][i]) > 0) == chosen]
            out[f"sft/{name}_loss"] = reduce(walk, lambda i, t: -lp(i, t), options, rows=rows)


def sequence_ratios(walk, id, ratios, band, out, stats):
    """One ratio per sequence: its spread, the shares outside the band, and those that the clip affects."""
    spread(id, ratios.values(), out, stats)
    if band is None:
        return
    low, high = 1 - band[0], 1 + band[1]
    out[f"{id}/above"] = mean(r > high for r in ratios.values())
    out[f"{id}/below"] = mean(r < low for r in ratios.values())
    out[f"{id}/outside"] = mean(not low <= r <= high for r in ratios.values())
    if walk.has("advantages"):
        total = {i: math.fsum(walk.at("advantages")(i, t) for t in walk.valid(i)) for i in ratios}
        over = {i: r > high and total[i] > 0 for i, r in ratios.items()}
        under = {i: r < low and total[i] < 0 for i, r in ratios.items()}
        out[f"{id}/clip_fraction"] = mean(over[i] or under[i] for i in ratios)
        out[f"{id}/clip_fraction/high"] = mean(over.values())
        out[f"{id}/clip_fraction/low"] = mean(under.values())


def clip_band(options):
    band = options.get("clip", (0.2, 0.2))
    return (band, band) if isinstance(band, float) else band


def from_logits(walk, out):
    if walk.has("entropy"):
        out["policy/entropy/mean"] = mean(walk.tokens(walk.at("entropy")))
    if walk.has("exact_kl"):
        out["policy/kl_exact"] = mean(walk.tokens(walk.at("exact_kl")))
    if walk.has("exact_ref_kl"):
        out["policy/ref_kl_exact"] = mean(walk.tokens(walk.at("exact_ref_kl")))
    for id, name, extreme in (("max", "highest_logits", max), ("min", "lowest_logits", min)):
        if walk.has(name):
            out[f"policy/logits/{id}"] = extreme(walk.tokens(walk.at(name)), default=None)


def policy(walk, options, out):
    band = clip_band(options)
    low, high = band or (math.inf, math.inf)
    lp = walk.at("log_probs")
    from_logits(walk, out)
    if not walk.has("log_probs"):
        return
    sft(walk, lp, options, out)
    kl = entropy = None
    if walk.has("ref_log_probs"):
        ref = walk.at("ref_log_probs")
        kl = reduce(walk, lambda i, t: math.exp(ref(i, t) - lp(i, t)) - (ref(i, t) - lp(i, t)) - 1, options)
        out["policy/kl_loss"] = kl
    if walk.has("entropy"):
        entropy = reduce(walk, walk.at("entropy"), options)
    if not walk.has("old_log_probs"):
        return
    old = walk.at("old_log_probs")
    d = lambda i, t: lp(i, t) - old(i, t)  # noqa: E731
    r = lambda i, t: math.exp(d(i, t))  # noqa: E731
    spread("policy/ratio", walk.tokens(r), out, ("mean", "max", "min", "var"))
    if band is not None:
        out["policy/ratio/above"] = mean(walk.tokens(lambda i, t: r(i, t) > 1 + high))
        out["policy/ratio/below"] = mean(walk.tokens(lambda i, t: r(i, t) < 1 - low))
        out["policy/ratio/outside"] = mean(walk.tokens(lambda i, t: not 1 - low <= r(i, t) <= 1 + high))
    out["policy/kl_k1"] = mean(walk.tokens(lambda i, t: -d(i, t)))
    out["policy/kl_k2"] = mean(walk.tokens(lambda i, t: d(i, t) ** 2 / 2))
    out["policy/kl_k3"] = mean(walk.tokens(lambda i, t: math.expm1(d(i, t)) - d(i, t)))
    if options.get("level") == "sequence":
        r = ratios_of_sequences(walk, d, band, out)
    if walk.has("advantages"):
        surrogate(walk, r, kl, entropy, options, out)


def ratios_of_sequences(walk, d, band, out):
    some = [i for i in walk.rows if walk.valid(i)]
    normalised = {i: math.exp(mean(d(i, t) for t in walk.valid(i))) for i in some}
    summed = {i: math.exp(math.fsum(d(i, t) for t in walk.valid(i))) for i in some}
    sequence_ratios(walk, "policy/sequence_ratio", normalised, band, out, ("mean", "max", "min", "std"))
    sequence_ratios(walk, "policy/sequence_ratio_summed", summed, band, out, ("mean", "max", "min"))
    return lambda i, t: normalised[i]


def surrogate(walk, r, kl, entropy, options, out):
    band, data = clip_band(options), walk.data
    low, high = band or (math.inf, math.inf)
    a = walk.at("advantages")
    bound = lambda i, t: clip(r(i, t), 1 - low, 1 + high) * a(i, t)  # noqa: E731
    plain = lambda i, t: min(r(i, t) * a(i, t), bound(i, t))  # noqa: E731
    dual = options.get("dual_clip")
    gain = (lambda i, t: max(plain(i, t), dual * a(i, t)) if a(i, t) < 0 else plain(i, t)) if dual else plain
    if band is not None:
        out["policy/clip_fraction"] = mean(walk.tokens(lambda i, t: bound(i, t) < r(i, t) * a(i, t)))
        out["policy/clip_fraction/high"] = mean(walk.tokens(lambda i, t: r(i, t) > 1 + high and a(i, t) > 0))
        out["policy/clip_fraction/low"] = mean(walk.tokens(lambda i, t: r(i, t) < 1 - low and a(i, t) < 0))
    if dual:
        out["policy/clip_fraction/dual"] = mean(walk.tokens(lambda i, t: a(i, t) < 0 and plain(i, t) < dual * a(i, t)))
    pg = reduce(walk, lambda i, t: -gain(i, t), options)
    out["policy/loss/pg"] = pg
    if walk.has("weights"):
        pg = out["policy/loss/weighted_pg"] = reduce(walk, lambda i, t: -gain(i, t), options, weights=data["weights"])
    terms = [(options.get("kl_loss_coef", 0.0), kl), (-options.get("entropy_coef", 0.0), entropy)]
    incomplete = pg is None or any(c and term is None for c, term in terms)
    out["policy/loss/total"] = None if incomplete else pg + math.fsum(c * term for c, term in terms if c)


def value(walk, options, out):
    v, ret, old = walk.at("values"), walk.at("returns"), walk.at("old_values")
    c = options.get("value_clip")
    if walk.has("old_values"):
        out["value/old/mean"] = mean(walk.tokens(old))
    if walk.has("values"):
        out["value/prediction/mean"] = mean(walk.tokens(v))
    if not walk.has("values", "returns"):
        return
    error = lambda i, t: (v(i, t) - ret(i, t)) ** 2  # noqa: E731
    out["value/error"] = mean(walk.tokens(error))
    if c is None:
        out["value/loss"] = reduce(walk, lambda i, t: error(i, t) / 2, options)
    elif walk.has("old_values"):
        clipped = lambda i, t: (clip(v(i, t), old(i, t) - c, old(i, t) + c) - ret(i, t)) ** 2  # noqa: E731
        out["value/loss"] = reduce(walk, lambda i, t: max(error(i, t), clipped(i, t)) / 2, options)
        out["value/clip_fraction"] = mean(walk.tokens(lambda i, t: clipped(i, t) > error(i, t)))
