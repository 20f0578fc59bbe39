// ---- the tab "When to use": the advisor, which answers while the form is filled in, and the experiments. Its own channel,
// so that an experiment does not wait for a chat. Each message says everything about what it is about, so it may get lost.

const WHEN = {session: "greenlight.lab", answers: "greenlight.advise", silence: 3000, tries: 3, again: 3000};
const experiments = new Map();  // name -> {node, shown, settled, give}: what is on the page, and what a cancelled run falls back to

let whenPart = null;     // what Gradio gave the component's script: element, trigger, props, watch
const whenHeard = new Map();  // what it was about -> version of the last message; those of two runs may cross
let whenAsked = 0;       // number of the last question
let labSession = "";     // the visitor's secret name, under which the server keeps results
let labRun = null;       // {key, name, heard, missed} of the experiment that runs; missed: how often the server did not know of it
let labFile = null;      // {number, button} of the file that was asked for
const whenAnswers = new Map();  // "results", "advice" -> number of the question that is open

function slotOf(node, name) { return node.querySelector(`[data-slot="${name}"]`); }

// Gradio may mount that component again, and then gives new functions.
function joinWhen() {
  const part = window.greenlightWhen;
  if (!part || part === whenPart) return;
  whenPart = part;
  part.watch("value", () => hearWhen(part.props.value));
}

function hearWhen(packed) {
  const message = packed ? JSON.parse(packed) : null;
  if (!message) return;
  const subject = message.lab?.key ?? Object.keys(message).filter((name) => name !== "v").sort().join();
  if (message.v <= (whenHeard.get(subject) ?? 0)) return;
  whenHeard.set(subject, message.v);
  if (message.lab) takeLab(message.lab);
  if (message.results) takeResults(message.results);
  if (message.advice) takeAdvice(message.advice);
  if (message.file) takeFile(message.file);
}

// Asks until there is an answer, a few times. The latest question of a kind is the one that counts.
async function askWhen(what, answer, args = {}) {
  const number = ++whenAsked;
  whenAnswers.set(answer, number);
  for (let tries = 0; tries < WHEN.tries && whenAnswers.get(answer) === number; tries++) {
    whenPart.trigger("ask", {what, args: {...args, session: labSession, number}});
    await new Promise((later) => setTimeout(later, WHEN.again));
  }
  if (whenAnswers.get(answer) !== number) return;
  whenAnswers.delete(answer);
  slotOf(document.querySelector(".view.when"), "when-notice").innerHTML = sentence("when-unanswered");
}

function answeredWhen(answer, number) {
  if (whenAnswers.get(answer) !== number) return false;
  whenAnswers.delete(answer);
  slotOf(document.querySelector(".view.when"), "when-notice").innerHTML = "";
  return true;
}

// ---- the advisor

function adviseForm() { return document.querySelector("[data-part=advise-form]"); }

function advise() {
  const answers = Object.fromEntries(new FormData(adviseForm()));
  store("sessionStorage", WHEN.answers, JSON.stringify(answers));
  askWhen("advise", "advice", {answers});
}

function takeAdvice({number, html, rules}) {
  if (!answeredWhen("advice", number)) return;
  slotOf(adviseForm().parentNode, "advice").innerHTML = html;
  slotOf(adviseForm().parentNode, "rules").innerHTML = rules;
}

// What was answered before the page was loaded again.
function fillAdvise() {
  let before = {};
  try { before = JSON.parse(stored("sessionStorage", WHEN.answers)) ?? {}; } catch { /* as it comes */ }
  for (const input of adviseForm().querySelectorAll("input"))
    if (before[input.name] !== undefined) input.checked = input.value === before[input.name];
}

// ---- the experiments

// An experiment of which nobody has a result.
function blank(node) {
  const nothing = {figure: null, label: {en: "", zh: ""}, html: ""};
  const charts = Object.fromEntries([...node.querySelectorAll(".plot")].map((plot) => [plot.dataset.of, nothing]));
  return {version: "blank", source: slotOf(node, "source").innerHTML, says: "", charts};
}

function startExperiments() {
  for (const node of document.querySelectorAll("[data-experiment]")) {
    const one = {node, shown: null, settled: blank(node), give: null};
    one.give = chartsIn(node.querySelector("[data-part=lab-charts]"), {
      moment: () => one.shown?.version ?? "",
      request: () => one.give({charts: one.shown.charts}),  // it is all here already
    }).give;
    experiments.set(node.dataset.experiment, one);
  }
}

function showResult(one, shown) {
  one.shown = shown;
  slotOf(one.node, "source").innerHTML = shown.source;
  const says = slotOf(one.node, "says");
  if (says.told !== shown.says) says.innerHTML = says.told = shown.says;
  slotOf(one.node, "saves").hidden = !shown.says;
}

function takeResults({number, experiments: found, running: goes, over, about}) {
  if (!answeredWhen("results", number)) return;
  for (const [name, said] of Object.entries(about)) slotOf(experiments.get(name).node, "seconds").innerHTML = said;
  const ended = labRun && over.includes(labRun.key);  // its last message was lost; what it came to is among these
  for (const [name, shown] of Object.entries(found)) {
    const one = experiments.get(name);
    one.settled = shown;
    if (labRun?.name !== name) showResult(one, shown);
  }
  if (!labRun || goes === labRun.key) return;
  labRun.missed += 1;  // it may not have begun yet, on a busy machine
  if (ended || labRun.missed > WHEN.tries) {
    if (!ended) slotOf(experiments.get(labRun.name).node, "notice").innerHTML = sentence("when-unanswered");
    endRun();
    advise();
  }
}

function takeLab({key, name, notice, running: goes, shown, progress, done, total}) {
  if (labRun?.key !== key) return;
  const one = experiments.get(name);
  if (notice !== undefined) slotOf(one.node, "notice").innerHTML = notice;
  labRun.heard = Date.now();
  labRun.missed = 0;
  if (progress !== undefined) slotOf(one.node, "left").innerHTML = progress;
  const bar = slotOf(one.node, "bar");
  if (total) { bar.max = total; bar.value = done; }
  if (shown && goes) showResult(one, shown);
  if (goes) return;
  if (shown) one.settled = shown;
  endRun();
  if (shown) advise();  // its numbers are the reader's from now on
}

function endRun() {
  const one = experiments.get(labRun.name);
  labRun = null;
  showResult(one, one.settled);
  for (const {node} of experiments.values()) {
    const notice = slotOf(node, "notice");
    if (notice.dataset.busy) notice.innerHTML = notice.dataset.busy = "";
  }
  showRunning(one, false);
}

function showRunning(one, goes) {
  const focused = document.activeElement?.closest?.("[data-action=lab-run], [data-action=lab-stop]");
  one.node.dataset.running = goes ? "yes" : "no";
  one.node.querySelector("[data-action=lab-run]").hidden = goes;
  one.node.querySelector("[data-action=lab-stop]").hidden = !goes;
  slotOf(one.node, "going").hidden = !goes;
  slotOf(one.node, "bar").removeAttribute("value");
  if (focused && one.node.contains(focused)) one.node.querySelector(`[data-action=${goes ? "lab-stop" : "lab-run"}]`).focus();
}

function runLab(button) {
  const name = button.closest("[data-experiment]").dataset.experiment;
  const one = experiments.get(name);
  const busy = labRun !== null;  // the server says so too, to another tab
  const notice = slotOf(one.node, "notice");
  notice.innerHTML = busy ? sentence("lab-busy") : "";
  notice.dataset.busy = busy ? "yes" : "";
  if (busy) return;
  labRun = {key: secretKey(), name, heard: Date.now(), missed: 0};
  slotOf(one.node, "left").innerHTML = "";
  showRunning(one, true);
  const prompt = one.node.querySelector("[data-part=lab-prompt]")?.value ?? "";
  whenPart.trigger("lab", {session: labSession, key: labRun.key, name, prompt});
}

function watchLab() {
  if (!labRun || Date.now() - labRun.heard < WHEN.silence || whenAnswers.has("results")) return;
  labRun.heard = Date.now();
  askWhen("results", "results");
}

// ---- files

function saveLab(button) {
  labFile = {number: ++whenAsked, button};
  const name = button.closest("[data-experiment]").dataset.experiment;
  whenPart.trigger("ask", {what: "file", args: {name, form: button.dataset.form, session: labSession, number: labFile.number}});
}

function takeFile(file) {
  if (file.number !== labFile?.number) return;
  saveFile(file);
  done(labFile.button);
  labFile = null;
}

Object.assign(actions, {
  "lab-run": runLab,
  "lab-stop": () => whenPart.trigger("ask", {what: "stop", args: {session: labSession}}),
  "lab-save": saveLab,
  "copy-command": (button) => copy(button.closest("p").nextElementSibling.textContent).then(() => done(button)),
});

on("change", (event) => { if (adviseForm()?.contains(event.target)) advise(); });
on("submit", (event) => { if (event.target === adviseForm()) event.preventDefault(); });

// To an experiment, in this view or from another one, by its heading so that the keyboard goes on from there.
on("click", (event) => {
  const link = event.target.closest("[data-lab-link]");
  if (!link) return;
  event.preventDefault();
  goTo("when");
  const {node} = experiments.get(link.dataset.labLink);
  node.scrollIntoView({block: "start"});
  node.focus({preventScroll: true});
});

let whenSeen = false;

// Nothing is asked and nothing drawn until somebody looks.
function whenOpened() {
  if (root.dataset.tab !== "when" || whenSeen) return;
  whenSeen = true;
  loadPlotly(document.querySelector("[data-part=lab-charts]").dataset.plotly);
  askWhen("results", "results");
  advise();
}

function startWhen() {
  joinWhen();
  on("greenlight:when", joinWhen);
  labSession = stored("sessionStorage", WHEN.session) || secretKey();
  store("sessionStorage", WHEN.session, labSession);
  startExperiments();
  fillAdvise();
  on("greenlight:tab", whenOpened);
  whenOpened();
}

const labTimer = setInterval(watchLab, 500);
mount.addEventListener("abort", () => clearInterval(labTimer));
atStart(startWhen);
