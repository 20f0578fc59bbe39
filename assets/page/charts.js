// ---- charts: a section of the panel. The server makes figures and tables when asked; Plotly draws the figures.
// Colours in a figure are names of variables and words are keys, so a change of theme or language only draws again.

const CHARTS_MS = 500;  // the server is asked at most so often
const CHARTS_LOST_MS = 1000;  // an answer that is not there by then was lost
const CHARTS_LOOK_MS = 100;
const CHARTS_CONFIG = {displayModeBar: false, displaylogo: false, scrollZoom: false, doubleClick: false, showTips: false};

function startCharts() {
  const section = document.querySelector("[data-part=charts]");
  if (!section) return;
  const words = JSON.parse(section.dataset.words);
  const failed = section.querySelector(".failed");
  const plots = [...section.querySelectorAll(".plot")];
  let answer = null;   // the latest charts
  let shown = "";      // the moment of the conversation that they are about
  let waited = "";     // the moment that was asked for and has not been answered
  let askedAt = 0;
  let drawnFrom = 0;   // number of the answer
  const inSight = new Set();  // only these are drawn; drawing is the dear part

  // The last turn and how much of it the page has. What the server answers later is as new or newer.
  function moment() {
    const key = Math.max(0, ...turns.keys());
    const turn = turns.get(key);
    return [conversation, key, turn?.have, turn?.phase].join(" ");
  }

  function visible() {
    return section.open && section.offsetParent !== null && !document.hidden;
  }

  function look() {
    if (!visible() || moment() === shown) return;
    if (Date.now() - askedAt < (waited ? CHARTS_LOST_MS : CHARTS_MS)) return;
    askedAt = Date.now();
    waited = moment();
    ask("charts", {});
  }

  function draw() {
    if (!answer) return;
    const {lang} = root.dataset;
    const now = [drawnFrom, lang, document.body.classList.contains("dark"), section.clientWidth].join(" ");
    for (const plot of plots) {
      const {figure, label, html} = answer.charts[plot.parentNode.dataset.chart];
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

  // Plotly is large: it is loaded when the section is first opened, and again after a failure.
  function load() {
    if (window.Plotly || document.querySelector("script[data-plotly]")) return;
    const script = document.createElement("script");
    script.dataset.plotly = "";
    script.src = new URL(section.dataset.plotly, document.baseURI);
    script.onload = draw;
    script.onerror = () => {
      script.remove();
      failed.hidden = false;
      draw();
    };
    failed.hidden = true;
    document.head.append(script);
  }

  on("toggle", (event) => {
    if (event.target !== section || !section.open) return;
    load();
    look();
    draw();
  });
  onAnswer("charts", (charts) => {
    answer = charts;
    drawnFrom += 1;
    if (waited) shown = waited;
    waited = "";
    draw();
  });
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
}

atStart(startCharts);
