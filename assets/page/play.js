// ---- what is tried out in the tab "Learn" without the server: rejection sampling, a round's tokens, the arithmetic

const TRIALS = 10000;
let ownPoint = null;         // {alpha, k, c, speedup} of the reader's chat

function playForm(name) { return document.querySelector(`[data-play="${name}"]`); }

// A sentence that stands ready, with its places filled in. Values are numbers, or words of the page's own.
function filled(name, values) {
  return sentence(`learn-${name}`).replace(/\{(\w+)\}/g, (whole, place) => (place in values ? escapeText(String(values[place])) : whole));
}

function percentOf(share) { return `${(share * 100).toFixed(1)} %`; }

// ---- rejection sampling

function weightsOf(form, side) {
  return sharesOf([...form.querySelectorAll(`[name=${side}]`)].map((input) => Number(input.value)));
}

function drawRule() {
  const form = playForm("rule");
  const draft = weightsOf(form, "draft"), target = weightsOf(form, "target");
  const rule = new FormData(form).get("rule");
  const instead = rule === "always" ? draft.map(() => 0) : RULES[rule].instead(draft, target);
  const columns = {draft, target, accept: RULES[rule].keeps(draft, target), residual: instead, emitted: comesOutOf(draft, target, rule)};
  for (const [side, shares] of [["draft", draft], ["target", target]])
    form.querySelectorAll(`[name=${side}]`).forEach((input, i) => { input.nextElementSibling.textContent = shares[i].toFixed(2); });
  form.querySelectorAll("tbody tr").forEach((row, i) => {
    for (const cell of row.querySelectorAll("[data-cell]")) cell.textContent = columns[cell.dataset.cell][i].toFixed(2);
    row.classList.toggle("off", Math.abs(columns.emitted[i] - target[i]) > 0.0005);
  });
  const kept = rule === "always" ? 1 : keptOf(draft, target);
  form.querySelector(".kept").innerHTML = filled("rule.kept", {kept: `${(kept * 100).toFixed(0)} %`});
  form.querySelectorAll(".histogram li").forEach((bar, i) => { bar.querySelector("i").style.left = percentOf(target[i]).replace(" ", ""); });
  drawTrials(form, target, null);
}

function runTrials() {
  const form = playForm("rule");
  const draft = weightsOf(form, "draft"), target = weightsOf(form, "target");
  const rule = new FormData(form).get("rule");
  drawTrials(form, target, trialsOf(draft, target, rule, TRIALS, Math.random), rule);
}

function drawTrials(form, target, counts, rule) {
  form.querySelectorAll(".histogram li").forEach((bar, i) => {
    bar.querySelector(".track span").style.width = counts ? percentOf(counts[i] / TRIALS).replace(" ", "") : "0";
    bar.querySelector(".prob").textContent = counts ? `${counts[i]} · ${percentOf(counts[i] / TRIALS)}` : "–";
  });
  const result = form.querySelector(".result");
  result.innerHTML = counts ? judged(form, counts, target, rule) : "";
  result.dataset.lands = counts ? (landed(counts, target) ? "yes" : "no") : "";
}

function landed(counts, target) {
  const {chi, freedom} = chiSquareOf(counts, target);
  return chi <= CHI_LIMIT[freedom];
}

function judged(form, counts, target, rule) {
  const {chi, freedom} = chiSquareOf(counts, target);
  const gaps = counts.map((count, i) => Math.abs(count / TRIALS - target[i]));
  const worst = gaps.indexOf(Math.max(...gaps));
  const values = {
    most: (gaps[worst] * 100).toFixed(1), chi: chi === Infinity ? "∞" : chi.toFixed(1), limit: CHI_LIMIT[freedom].toFixed(0),
    word: form.querySelectorAll("tbody th")[worst].textContent, got: percentOf(counts[worst] / TRIALS), want: percentOf(target[worst]),
  };
  if (!landed(counts, target)) return filled("rule.misses", values);
  return filled("rule.lands", values) + (rule === "right" ? "" : ` ${filled("rule.equal", {})}`);
}

// ---- at least one token

function drawLeast() {
  const form = playForm("least");
  const right = new FormData(form).get("right");
  for (const row of form.querySelectorAll("[data-right]")) {
    if (row.dataset.right === right) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
  }
}

// ---- the arithmetic

function drawSums() {
  const form = playForm("sums");
  const [alpha, k, c] = ["alpha", "k", "c"].map((name) => Number(form[name].value));
  for (const name of ["alpha", "k", "c"]) form[name].nextElementSibling.textContent = name === "k" ? String(k) : Number(form[name].value).toFixed(2);
  const rows = [...form.querySelectorAll("[data-k]")];
  const gains = rows.map((row) => speedupOf(alpha, Number(row.dataset.k), c));
  const best = bestKOf(alpha, c, rows.length - 1);
  const longest = Math.max(...gains, ownPoint?.speedup ?? 0);
  rows.forEach((row, i) => {
    const [tokens, gain] = row.querySelectorAll("td");
    tokens.textContent = tokensOf(alpha, i).toFixed(2);
    gain.querySelector("b").textContent = `${gains[i].toFixed(2)}×`;
    gain.querySelector(".track span").style.width = `${gains[i] / longest * 100}%`;
    gain.querySelector(".track i").style.left = `${100 / longest}%`;
    row.classList.toggle("best", i === best);
    if (i === k) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
    markOwn(gain.querySelector(".track"), ownPoint && Math.round(ownPoint.k) === i ? ownPoint.speedup / longest : null);
  });
  const now = {tokens: tokensOf(alpha, k).toFixed(2), cost: (1 + k * c).toFixed(2), speedup: speedupOf(alpha, k, c).toFixed(2)};
  form.querySelector(".now").innerHTML = filled("sums.result", now);
  form.querySelector(".best").innerHTML = best ? filled("sums.best", {k: best, speedup: gains[best].toFixed(2)}) : sentence("learn-sums.never");
}

// The reader's own measured point, on the bar of its K.
function markOwn(track, share) {
  track.querySelector(".own")?.remove();
  if (share === null) return;
  const mark = document.createElement("em");
  mark.className = "own";
  mark.textContent = "◆";
  mark.style.left = `${share * 100}%`;
  track.append(mark);
}

// The chat's figures into the sliders, and its measured speed-up beside what the formula says.
function usePoint(point) {
  const form = playForm("sums");
  ownPoint = point;
  if (point) {
    form.alpha.value = point.alpha;
    form.k.value = Math.max(1, Math.round(point.k));
    form.c.value = point.c;
  }
  const told = point && {
    alpha: point.alpha.toFixed(2), k: point.k.toFixed(1), c: point.c.toFixed(2),
    predicted: speedupOf(point.alpha, point.k, point.c).toFixed(2), measured: point.speedup.toFixed(2),
  };
  form.querySelector(".point").innerHTML = told
    ? `${filled("sums.point", told)} ${sentence("learn-sums.point.why")}` : sentence("learn-sums.own.none");
  drawSums();
}

const DRAWN = {rule: drawRule, least: drawLeast, sums: drawSums};

for (const type of ["input", "change"]) {
  on(type, (event) => DRAWN[event.target.closest?.("[data-play]")?.dataset.play]?.());
}
on("submit", (event) => {
  const form = event.target.closest("[data-play]");
  if (!form) return;
  event.preventDefault();
  if (form.dataset.play === "rule") runTrials();
});

// ---- stories: tables that are there whole, and can be stepped through

function tellStory(box, upto) {
  const last = Number(box.dataset.story);
  box.dataset.told = upto;
  for (const part of box.querySelectorAll("[data-at]")) part.classList.toggle("later", Number(part.dataset.at) > upto);
  box.querySelector("[data-action=story]").innerHTML = sentence(upto < last ? "learn-story.next" : "learn-story.again");
}

Object.assign(actions, {
  story: (button) => {
    const box = button.closest("[data-story]");
    const told = Number(box.dataset.told ?? box.dataset.story);
    tellStory(box, told < Number(box.dataset.story) ? told + 1 : 0);
  },
});
