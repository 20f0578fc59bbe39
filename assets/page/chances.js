// ---- the mathematics of the tab "Learn": small pure functions, which tests hold against exact values

// Weights as probabilities; even where there are none.
function sharesOf(weights) {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => (total > 0 ? weight / total : 1 / weights.length));
}

// Chance that a guess of each word is kept; 1 for what is never guessed.
function acceptanceOf(draft, target) {
  return draft.map((share, i) => (share > 0 ? Math.min(1, target[i] / share) : 1));
}

// Chance that a guess is kept at all.
function keptOf(draft, target) {
  return draft.reduce((sum, share, i) => sum + Math.min(share, target[i]), 0);
}

// What is drawn from after a rejection; all 0 where both agree, so that nothing is ever rejected.
function residualOf(draft, target) {
  const left = draft.map((share, i) => Math.max(0, target[i] - share));
  const total = left.reduce((sum, share) => sum + share, 0);
  return total > 0 ? left.map((share) => share / total) : left;
}

// The rules, the broken ones too: whether a guess is kept, and what is drawn from if it is not.
const RULES = {
  right: {keeps: acceptanceOf, instead: residualOf},
  always: {keeps: (draft) => draft.map(() => 1), instead: residualOf},
  redraw: {keeps: acceptanceOf, instead: (draft, target) => target},
};

// The distribution of what comes out under a rule.
function comesOutOf(draft, target, rule) {
  const keeps = RULES[rule].keeps(draft, target);
  const instead = RULES[rule].instead(draft, target);
  const lost = draft.reduce((sum, share, i) => sum + share * (1 - keeps[i]), 0);
  return draft.map((share, i) => share * keeps[i] + lost * instead[i]);
}

// The index that u, from 0 to 1, falls on.
function fallsOn(shares, u) {
  let sum = 0;
  let last = 0;
  for (let i = 0; i < shares.length; i++) {
    if (shares[i] > 0) last = i;
    sum += shares[i];
    if (u < sum && shares[i] > 0) return i;
  }
  return last;  // the shares' sum may lie a rounding below 1
}

// How often each word came out in so many trials. random: as Math.random.
function trialsOf(draft, target, rule, count, random) {
  const keeps = RULES[rule].keeps(draft, target);
  const instead = RULES[rule].instead(draft, target);
  const found = draft.map(() => 0);
  for (let trial = 0; trial < count; trial++) {
    const guess = fallsOn(draft, random());
    found[random() < keeps[guess] ? guess : fallsOn(instead, random())] += 1;
  }
  return found;
}

// Pearson's chi-square of counts against probabilities, and its degrees of freedom; Infinity where the impossible happened.
function chiSquareOf(counts, shares) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  let chi = 0;
  for (let i = 0; i < counts.length; i++) {
    const expected = shares[i] * total;
    if (expected > 0) chi += (counts[i] - expected) ** 2 / expected;
    else if (counts[i] > 0) chi = Infinity;
  }
  return {chi, freedom: shares.filter((share) => share > 0).length - 1};
}

// What chance exceeds once in ten thousand times, by degrees of freedom.
const CHI_LIMIT = [0, 15.14, 18.42, 21.11];

// ---- Leviathan et al., arXiv:2211.17192: equation 1 and theorem 3.8; k may be a mean

function tokensOf(alpha, k) {
  return alpha < 1 ? (1 - alpha ** (k + 1)) / (1 - alpha) : k + 1;
}

function speedupOf(alpha, k, c) {
  return tokensOf(alpha, k) / (1 + k * c);
}

function bestKOf(alpha, c, most) {
  let best = 0;
  for (let k = 1; k <= most; k++) if (speedupOf(alpha, k, c) > speedupOf(alpha, best, c) + 1e-12) best = k;
  return best;
}
