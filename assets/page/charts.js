// ---- charts: sections of figures and tables, which the server makes when asked; Plotly draws the figures.
// Colours in a figure are names of variables and words are keys, so a change of theme or language only draws again.

const CHARTS_MS = 500;  // the server is asked at most so often
const CHARTS_LOST_MS = 1000;  // an answer that is not there by then was lost
const CHARTS_LOOK_MS = 100;
const CHARTS_CONFIG = {displayModeBar: false, displaylogo: false, scrollZoom: false, doubleClick: false, showTips: false};

// The chat's section, about its latest reply.
function startCharts() {
  const section = document.querySelector("#gl-charts [data-part=charts]");
  if (!section) return;
  const {give} = chartsIn(section, {moment: latestMoment, request: () => ask("charts")});
  onAnswer("charts", give);
}

// The last turn and how much of it the page has. What the server answers later is as new or newer.
function latestMoment() {
  const turn = turns.get(lastKey());
  return [conversation, lastKey(), turn?.have, turn?.phase].join(" ");
}

// Fills one section. moment(): what it should be about, as a text that changes when there is something new, "" where there
// is nothing to ask about; request() asks the server for that, at most every CHARTS_MS and only while the section can be
// seen. give(answer) takes the answer, {charts: {name: {figure, label, html}}}; it is for the caller to leave out one that
// is about something else, which is then asked for again; one that was not asked for is left out here. look() looks for news now; it also happens by itself.
function chartsIn(section, {moment, request}) {
  const words = JSON.parse(section.dataset.words);
  const failed = section.querySelector(".failed");
  const plots = [...section.querySelectorAll(".plot")];
  let answer = null;   // the latest charts
  let shown = "";      // the moment that they are about
  let waited = "";     // the moment that was asked for and has not been answered
  let owed = 0;        // answers that may still come; others are another section's, about another moment
  let askedAt = 0;
  let drawnFrom = 0;   // number of the answer
  const inSight = new Set();  // only these are drawn; drawing is the dear part

  function visible() {
    return section.open && section.offsetParent !== null && !document.hidden;
  }

  function look() {
    if (!visible()) return;
    const now = moment();
    if (!now || now === shown || Date.now() - askedAt < (waited ? CHARTS_LOST_MS : CHARTS_MS)) return;
    askedAt = Date.now();
    waited = now;
    owed += 1;
    request();
  }

  function draw() {
    if (!answer) return;
    const {lang} = root.dataset;
    const now = [drawnFrom, lang, document.body.classList.contains("dark"), section.clientWidth].join(" ");
    for (const plot of plots) {
      const {figure, label, html} = answer.charts[plot.dataset.of];
      const numbers = plot.nextElementSibling;
      if (numbers.told !== html) numbers.innerHTML = numbers.told = html;
      plot.setAttribute("aria-label", label[lang]);
      plot.hidden = !figure || !failed.hidden;
      if (plot.hidden || plot.drawn === now || !window.Plotly || !visible() || !inSight.has(plot)) continue;
      plot.drawn = now;
      const {data, layout} = resolved(figure, getComputedStyle(section));
      window.Plotly.react(plot, data, layout, CHARTS_CONFIG);
    }
  }

  // A copy with colours and words in place of their names. Plotly writes into what it is given.
  function resolved(part, style) {
    if (Array.isArray(part)) return part.map((one) => resolved(one, style));
    if (part && typeof part === "object")
      return Object.fromEntries(Object.entries(part).map(([name, one]) => [name, resolved(one, style)]));
    if (typeof part !== "string") return part;
    if (part.startsWith("var(--")) return style.getPropertyValue(part.slice(4, -1)).trim();
    return words[part]?.[root.dataset.lang === "zh" ? 1 : 0] ?? part;
  }

  function loaded(there) {
    failed.hidden = there;
    draw();
  }

  function give(charts) {
    if (!owed) return;
    owed -= 1;
    answer = charts;
    drawnFrom += 1;
    if (waited) shown = waited;
    waited = "";
    draw();
  }

  on("toggle", (event) => {
    if (event.target !== section || !section.open) return;
    failed.hidden = true;
    loadPlotly(section.dataset.plotly);
    look();
    draw();
  });
  on("greenlight:plotly", () => loaded(true));
  on("greenlight:no-plotly", () => loaded(false));
  on("greenlight:theme", draw);
  on("greenlight:language", draw);
  const sizes = new ResizeObserver(draw);
  sizes.observe(section);
  const sight = new IntersectionObserver((changes) => {
    for (const {target, isIntersecting} of changes) {
      const plot = target.querySelector(".plot");
      if (isIntersecting) inSight.add(plot);
      else inSight.delete(plot);
    }
    draw();
  });
  for (const plot of plots) sight.observe(plot.parentNode);
  const looking = setInterval(look, CHARTS_LOOK_MS);
  mount.addEventListener("abort", () => {
    clearInterval(looking);
    sizes.disconnect();
    sight.disconnect();
  });
  return {look, give};
}

// Plotly is large: it is loaded when a section is first opened, once for all of them, and again after a failure.
function loadPlotly(address) {
  if (window.Plotly || document.querySelector("script[data-plotly]")) return;
  const script = document.createElement("script");
  script.dataset.plotly = "";
  script.src = new URL(address, document.baseURI);
  script.onload = () => tell("plotly");
  script.onerror = () => {
    script.remove();
    tell("no-plotly");
  };
  document.head.append(script);
}

atStart(startCharts);
