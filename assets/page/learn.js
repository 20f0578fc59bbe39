// ---- the tab "Learn": its channel, the lessons that the engine measures, and the glossary that opens anywhere

const LESSON_SILENCE_MS = 3000;
let learnPart = null;         // what Gradio gave that component's script
let learnHeard = 0;           // version of the last message
const lessons = new Map();    // key -> {form, heard}: those that run

function joinLearn() {
  const part = window.greenlightLearn;
  if (!part || part === learnPart) return;
  learnPart = part;
  part.watch("value", () => hearLearn(part.props.value));
}

function hearLearn(packed) {
  const message = packed ? JSON.parse(packed) : null;
  if (!message || message.v <= learnHeard) return;
  learnHeard = message.v;
  if (message.lesson) takeLesson(message.lesson);
  if (message.pane) takePane(message.pane);
  if ("point" in message) usePoint(message.point);
}

function learnAsk(what, args) { learnPart.trigger("ask", {what, args}); }

// ---- lessons

function lessonForm(key) { return document.querySelector(`[data-lesson][data-key="${CSS.escape(key)}"]`); }

function startLesson(form) {
  if (form.dataset.running === "yes") return;
  const values = Object.fromEntries(new FormData(form));
  const key = secretKey();
  form.dataset.key = key;
  lessons.set(key, {form, heard: Date.now(), tries: 0});
  lessonRuns(form, true);
  form.querySelector(".notice").innerHTML = "";
  learnPart.trigger("lesson", {key, name: form.dataset.lesson, prompt: values.prompt ?? null, example: Number(values.example ?? 0)});
}

function lessonRuns(form, running) {
  form.dataset.running = running ? "yes" : "no";
  form.querySelector("[type=submit]").disabled = running;
  form.querySelector("[data-action=lesson-stop]").hidden = !running;
  const bar = form.querySelector("progress");
  bar.hidden = !running;
  if (!running) { bar.value = 0; form.querySelector(".left").innerHTML = ""; }
}

function takeLesson({key, html, notice, running, share, left, lost, id, place}) {
  const lesson = lessons.get(key);
  if (!lesson) return;
  const {form} = lesson;
  lesson.heard = Date.now();
  lesson.tries = 0;
  const shown = form.querySelector(".shown");
  if (html !== undefined && shown.told !== html) shown.innerHTML = shown.told = html;
  if (id !== undefined) Object.assign(shown.dataset, {id, block: place[0], piece: place[1]});
  if (notice !== undefined) form.querySelector(".notice").innerHTML = notice;
  if (lost) form.querySelector(".notice").innerHTML = sentence("learn-unanswered");
  if (share !== undefined) form.querySelector("progress").value = share;
  if (left !== undefined) form.querySelector(".left").innerHTML = left === null ? "" : filled("left", {left});
  if (running) return;
  lessons.delete(key);
  lessonRuns(form, false);
}

// A running lesson speaks every second. Where it does not, what it said last is asked for.
function watchLessons() {
  for (const [key, lesson] of lessons) {
    if (Date.now() - lesson.heard < LESSON_SILENCE_MS) continue;
    lesson.heard = Date.now();
    if (lesson.tries++ < 5) { learnAsk("again", {key}); continue; }
    lessons.delete(key);
    lesson.form.querySelector(".notice").innerHTML = sentence("learn-unanswered");
    lessonRuns(lesson.form, false);
  }
}

on("submit", (event) => {
  const form = event.target.closest("[data-lesson]");
  if (!form) return;
  event.preventDefault();
  startLesson(form);
});

// ---- rounds of the reader's sentence

function askPane(shown, args) {
  const {id, block, piece} = shown.dataset;
  learnAsk("pane", {id, block: Number(block), piece: Number(piece), ...args});
}

function takePane({id, block, piece, html}) {
  const shown = document.querySelector("[data-shown=verify]");
  if (shown.dataset.id !== id) return;
  if (!html) { shown.closest("form").querySelector(".notice").innerHTML = sentence("learn-lost"); return; }
  const origin = shown.querySelector(".origin");
  const focus = shown.contains(document.activeElement) ? document.activeElement.dataset.action : null;
  shown.innerHTML = html;
  shown.told = null;
  if (origin) shown.append(origin);
  Object.assign(shown.dataset, {block, piece});
  if (focus) shown.querySelector(`[data-action="${focus}"]`)?.focus();
}

on("click", (event) => {
  const shown = event.target.closest("[data-shown=verify]");
  const button = shown && event.target.closest("[data-action^=round-], [data-piece]");
  if (!button) return;
  if (button.dataset.action) askPane(shown, {way: button.dataset.action === "round-next" ? 1 : -1});
  else askPane(shown, {block: Number(button.dataset.block), piece: Number(button.dataset.piece)});
});

Object.assign(actions, {
  "lesson-stop": (button) => learnAsk("stop", {key: button.closest("[data-lesson]").dataset.key}),
  "own-point": () => learnAsk("point", {conversation}),
});

// ---- the glossary: an entry opens where its word was pressed

function openTerm(name) {
  const entry = document.getElementById(`glossary-${name}`);
  if (!entry) return false;
  const dialog = termDialog();
  const copy = entry.cloneNode(true);
  copy.removeAttribute("id");
  copy.querySelector("h4").id = "gl-term-name";
  dialog.querySelector(".entry").replaceChildren(copy);
  dialog.querySelector("[data-term-place]").href = `?tab=learn#glossary-${name}`;
  dialog.showModal();
  return true;
}

// Made once, in a place that no view hides.
function termDialog() {
  const there = document.getElementById("gl-term");
  if (there) return there;
  const dialog = document.createElement("dialog");
  dialog.id = "gl-term";
  dialog.setAttribute("aria-labelledby", "gl-term-name");
  dialog.innerHTML = `<div class="entry"></div><p class="fields"><button type="button" class="act" data-action="term-close">${sentence("learn-glossary.close")}</button>
    <a data-term-place>${sentence("learn-glossary.all")}</a></p>`;
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("a, [data-action=term-close]")) dialog.close();
  });
  document.querySelector(".gradio-container").append(dialog);
  return dialog;
}

function plainClick(event) { return !(event.ctrlKey || event.metaKey || event.shiftKey || event.button); }

on("click", (event) => {
  const term = event.target.closest("[data-term]");
  if (!term || !plainClick(event)) return;
  if (openTerm(term.dataset.term)) event.preventDefault();
});

// Links into the tab: to a step, or to an entry of the glossary.
on("click", (event) => {
  const link = event.target.closest('a[href^="?tab=learn#"]:not([data-term])');
  if (!link || !plainClick(event)) return;
  event.preventDefault();
  document.getElementById("gl-term")?.close();  // first, for it gives the focus back to where it was opened
  goTo("learn");
  showPlace(link.hash);
  history.replaceState(null, "", link.href);
});

function showPlace(hash) {
  const place = hash.length > 1 ? document.getElementById(decodeURIComponent(hash.slice(1))) : null;
  if (!place?.closest("#gl-learn")) return;
  place.scrollIntoView({block: "start"});
  place.focus({preventScroll: true});
}

const learnTimer = setInterval(watchLessons, 500);
mount.addEventListener("abort", () => clearInterval(learnTimer));
atStart(() => {
  joinLearn();
  on("greenlight:learn", joinLearn);
  for (const draw of Object.values(DRAWN)) draw();
  requestAnimationFrame(() => { if (root.dataset.tab === "learn") showPlace(location.hash); });
});
