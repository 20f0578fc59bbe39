// The page's own script: applies patches from the server to the transcript and the panel.
// It runs as the body of a function whose arguments Gradio supplies: element, trigger, props, watch.
//
// A reply arrives as blocks that never change once sent. A patch says where its blocks begin; what the page already
// has is skipped, what it lacks is appended, and a gap makes the page ask for everything ("sync"). So it does not
// matter if the browser skips a patch, sleeps, or loses the connection for a while.

const KEYS = {conversation: "greenlight.conversation", lang: "greenlight.lang", theme: "greenlight.theme",
              hide: "greenlight.hide"};
const SILENCE_MS = 2500;  // the server speaks at least every second while a reply is written
const ASK_AGAIN_MS = 2000;
const LOADING_MS = 1000;
const NEAR_END_PX = 48;
const MAX_WRITTEN = 100_000;  // characters; a box with much more freezes the browser, and no model here reads as much

const root = document.documentElement;
const log = element.querySelector("[data-part=log]");
const turnsBox = element.querySelector("[data-part=turns]");
const turns = new Map();  // key of a turn -> {node, blocks, foot, have}
let conversation = stored(sessionStorage, KEYS.conversation) || "";
let newest = 0;           // version of the last patch applied
let heard = 0;            // when the last patch came
let asked = 0;            // when "sync" was last asked
let ready = false;
let running = false;
let torn = false;         // a gap was found; the page asks until it has everything
let sent = null;          // the message on its way, until the server has taken it

function stored(storage, key) {
  try { return storage.getItem(key); } catch { return null; }  // storage may be forbidden; the page works without
}

function store(storage, key, value) {
  try { storage.setItem(key, value); } catch { /* not remembered, that is all */ }
}

function sync() {
  asked = Date.now();
  trigger("sync", {conversation, lang: root.dataset.lang});
}

// ---- patches

function apply(packed) {
  const patch = packed ? JSON.parse(packed) : null;
  if (!patch) return;
  if (patch.conversation !== conversation) {
    if (patch.asked !== conversation) return;  // late news of a conversation that was cleared
    adopt(patch.conversation);
  } else if (patch.v <= newest) return;
  heard = Date.now();
  newest = patch.v;
  const before = Math.max(0, ...turns.keys());
  const follow = atEnd() && !selecting();
  const complete = applyTurns(patch);
  setRunning(patch.running);
  if (patch.ready !== undefined) ready = patch.ready;
  applyFigures(patch.figures || {});
  put("loading", patch.loading);
  put("notice", patch.notice);
  put("say", patch.say);
  if (patch.took > before) take();
  if (patch.notice && !patch.running) sent = null;  // refused: it stays in the box
  if (follow) log.scrollTop = log.scrollHeight;
  torn = !complete;
  if (torn && Date.now() - asked > ASK_AGAIN_MS) sync();
}

// The server answers under another id after Clear, and when it no longer knows the one asked for.
function adopt(id) {
  conversation = id;
  store(sessionStorage, KEYS.conversation, id);
}

function applyTurns(patch) {
  const wanted = new Set(patch.keys);
  for (const [key, turn] of turns) {
    if (!wanted.has(key)) { turn.node.remove(); turns.delete(key); }
  }
  const complete = patch.turns.map(applyTurn).every(Boolean);
  element.classList.toggle("empty", patch.keys.length === 0);
  return complete && patch.keys.every((key) => turns.has(key));
}

function applyTurn(part) {
  let turn = turns.get(part.key);
  if (!turn) {
    if (!part.head) return false;
    turn = addTurn(part);
  }
  turn.node.dataset.phase = part.phase;
  if (turn.foot.innerHTML !== part.foot) turn.foot.innerHTML = part.foot;
  if (part.from > turn.have) return false;
  const fresh = part.blocks.slice(turn.have - part.from);
  if (fresh.length) turn.blocks.insertAdjacentHTML("beforeend", fresh.join(""));
  turn.have = Math.max(turn.have, part.from + part.blocks.length);
  return true;
}

function addTurn(part) {
  const node = document.createElement("section");
  node.className = "turn";
  node.innerHTML = part.head;
  const later = [...turns.keys()].filter((key) => key > part.key).sort((a, b) => a - b)[0];
  turnsBox.insertBefore(node, later === undefined ? null : turns.get(later).node);
  const turn = {node, blocks: node.querySelector("[data-part=blocks]"),
                foot: node.querySelector("[data-part=foot]"), have: 0};
  turns.set(part.key, turn);
  return turn;
}

function applyFigures(figures) {
  for (const [name, value] of Object.entries(figures)) {
    for (const place of document.querySelectorAll(`[data-figure="${name}"]`)) {
      if (name.startsWith("bar.")) place.style.transform = `scaleX(${value})`;
      else if (place.innerHTML !== value) place.innerHTML = value;
    }
  }
}

function put(name, html) {
  if (html === undefined) return;
  for (const place of document.querySelectorAll(`[data-part="${name}"]`)) {
    if (place.innerHTML !== html) place.innerHTML = html;
  }
}

function setRunning(now) {
  running = now;
  root.dataset.running = now ? "yes" : "no";
}

// The server has taken the message: empty the box, unless the person has already typed something else.
function take() {
  const box = document.querySelector("#gl-box textarea");
  if (sent === null || !box) return;
  log.scrollTop = log.scrollHeight;
  if (box.value === sent) {
    box.value = "";
    box.dispatchEvent(new Event("input", {bubbles: true}));
  }
  sent = null;
}

// ---- reading position

function atEnd() {
  return log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END_PX;
}

function selecting() {
  const selection = document.getSelection();
  return Boolean(selection && !selection.isCollapsed && log.contains(selection.anchorNode));
}

// ---- a round in one line: where the pointer is, where a finger taps, or by the arrow keys

const tip = element.querySelector("[data-part=tip]");
let told = null;  // the round that the line is about

function tell(round) {
  told?.classList.remove("told");
  told = round;
  tip.hidden = !round;
  if (!round) return;
  round.classList.add("told");
  tip.textContent = round.dataset[root.dataset.lang];
  const first = round.getClientRects()[0];
  if (!first) return;
  const room = Math.min(innerWidth, log.getBoundingClientRect().right) - tip.offsetWidth - 8;
  tip.style.left = `${Math.max(8, Math.min(first.left, room))}px`;
  const below = first.bottom + 4;
  tip.style.top = `${below + tip.offsetHeight < innerHeight ? below : first.top - tip.offsetHeight - 4}px`;
}

function onPoint(event) {
  if (event.pointerType !== "mouse" || event.buttons) return;
  const round = event.target.closest?.(".round") ?? null;
  if (round !== told) tell(round);
}

function onTap(event) {
  if (!selecting()) tell(event.target.closest(".round"));
}

// Left and right, while the conversation has the focus; up and down scroll as ever.
function onStep(event) {
  if (event.key === "Escape") tell(null);
  if (event.target !== log || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  const rounds = [...turnsBox.querySelectorAll(".round")];
  const step = event.key === "ArrowRight" ? 1 : -1;
  const next = rounds[told?.isConnected ? rounds.indexOf(told) + step : rounds.length - 1];
  event.preventDefault();
  if (!next) return;
  next.scrollIntoView({block: "nearest"});
  requestAnimationFrame(() => tell(next));  // after the scroll, which takes the line away
}

// Gradio gives every radio button a group of its own, in which the arrow keys have nowhere to go.
function onRadio(event) {
  const step = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1}[event.key];
  if (!step || event.target.type !== "radio") return;
  const all = [...event.target.closest("fieldset, .block").querySelectorAll("input[type=radio]")];
  const next = all[(all.indexOf(event.target) + step + all.length) % all.length];
  event.preventDefault();
  next.focus();
  next.click();
}

// ---- language, theme, switches

function setLang(lang, remember) {
  tell(null);
  root.dataset.lang = lang;
  root.lang = lang === "zh" ? "zh-CN" : "en";
  if (remember) store(localStorage, KEYS.lang, lang);
  trigger("language", {lang});
}

function firstLang() {
  const fixed = element.querySelector("[data-lang-fixed]").dataset.langFixed;
  return stored(localStorage, KEYS.lang) || fixed || (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
}

function setTheme(theme) {
  document.body.classList.toggle("dark", theme === "dark");
  store(localStorage, KEYS.theme, theme);
}

function setHidden(hidden) {
  root.dataset.hide = hidden ? "yes" : "no";
  store(localStorage, KEYS.hide, root.dataset.hide);
}

function fold(button) {
  const open = button.getAttribute("aria-expanded") !== "true";
  button.setAttribute("aria-expanded", String(open));
  document.getElementById("gl-panel").classList.toggle("open", open);
}

const actions = {
  language: () => setLang(root.dataset.lang === "zh" ? "en" : "zh", true),
  theme: () => setTheme(document.body.classList.contains("dark") ? "light" : "dark"),
  fold,
};

function onClick(event) {
  const button = event.target.closest("[data-action], [data-example]");
  if (!button) return;
  if (button.dataset.action) actions[button.dataset.action](button);
  else if (!running) trigger("example", {index: Number(button.dataset.example)});
}

function onChange(event) {
  if (event.target.dataset.switch === "hide") setHidden(event.target.checked);
}

// Enter while an input method composes chooses a word and must not send. Some browsers end the composition before
// the key event and say so only by its code, 229. Gradio listens to keypress, so both events are held back.
let composing = false;

function onKey(event) {
  if (event.key !== "Enter" || !event.target.closest("#gl-box")) return;
  if (event.type === "keydown") composing = event.isComposing || event.keyCode === 229;
  if (composing || event.isComposing) event.stopImmediatePropagation();
}

// A paste or drop that is far too long is turned away before the browser lays it out, which can take minutes.
function onBeforeInput(event) {
  const box = event.target;
  if (box.tagName !== "TEXTAREA") return;
  const added = (event.data ?? event.dataTransfer?.getData("text/plain") ?? "").length;
  if (added < 2 || box.value.length - (box.selectionEnd - box.selectionStart) + added <= MAX_WRITTEN) return;
  event.preventDefault();
  put("notice", document.querySelector("[data-text=paste]").innerHTML);
}

// ---- start

// What Gradio calls before it sends an event: fills in which conversation this page shows.
function fill(...values) {
  values[0] = conversation;
  return values;
}

function send(...values) {
  sent = values[1];
  return fill(...values);
}
window.greenlight = {fill, send};

// The component may be mounted again; listeners of an earlier mount are taken off first.
window.greenlightOff?.abort();
window.greenlightOff = new AbortController();
const mount = window.greenlightOff.signal;
const on = (type, listener) =>
  document.addEventListener(type, listener, {capture: true, signal: mount});
on("click", onClick);
on("change", onChange);
on("keydown", onKey);
on("keypress", onKey);
on("beforeinput", onBeforeInput);
on("pointerover", onPoint);
on("click", onTap);
on("keydown", onStep);
on("keydown", onRadio);
log.addEventListener("scroll", () => tell(null), {signal: mount});

function watchOver() {
  const now = Date.now();
  const silent = running && now - heard > SILENCE_MS;
  const loading = !ready && now - heard > LOADING_MS;
  if ((torn || silent || loading) && now - asked > (loading ? LOADING_MS : ASK_AGAIN_MS)) sync();
}
const timer = setInterval(watchOver, 500);
mount.addEventListener("abort", () => clearInterval(timer));

// The header, the panel and the notices are components of their own, which may be mounted after this one.
function start() {
  if (window.greenlightOff.signal !== mount) return;
  if (![".gl-header", "#gl-figures", "[data-part=notice]"].every((place) => document.querySelector(place))) {
    setTimeout(start, 20);
    return;
  }
  const theme = stored(localStorage, KEYS.theme);
  if (theme) setTheme(theme);
  setHidden(stored(localStorage, KEYS.hide) === "yes");
  document.querySelector("[data-switch=hide]").checked = root.dataset.hide === "yes";
  setLang(firstLang(), false);
  watch("value", () => apply(props.value));
  apply(props.value);
  sync();
}

setRunning(false);
start();
