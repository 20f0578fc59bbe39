// The page's own script applies patches from the server to the transcript and the panel. All files of this folder are
// joined into the body of one function whose arguments Gradio supplies: element, trigger, props, watch.
//
// A reply arrives as blocks that never change once sent. A patch says where its blocks begin; what the page already
// has is skipped, what it lacks is appended, and a gap makes the page ask for everything ("sync"). So it does not
// matter if the browser skips a patch, sleeps, or loses the connection for a while.

const KEYS = {conversation: "greenlight.conversation", lang: "greenlight.lang", theme: "greenlight.theme",
              view: "greenlight.view", hide: "greenlight.hide", shade: "greenlight.shade", chats: "greenlight.chats"};
const SILENCE_MS = 2500;  // the server speaks at least every second while a reply is written
const ASK_AGAIN_MS = 2000;
const LOADING_MS = 1000;

const root = document.documentElement;
const log = element.querySelector("[data-part=log]");
const turnsBox = element.querySelector("[data-part=turns]");
const turns = new Map();  // key of a turn -> {key, node, blocks, foot, have, rows, user, about, phase}
let conversation = stored("sessionStorage", KEYS.conversation) || "";
let newest = 0;           // version of the last patch applied
let heard = 0;            // when the last patch came
let asked = 0;            // when "sync" was last asked
let ready = false;
let running = false;
let torn = false;         // a gap was found; the page asks until it has everything
let sent = null;          // the message on its way, until the server has taken it
let sentAfter = 0;        // key of the last turn when it was sent; a later one means that it was taken

// The component may be mounted again; listeners of an earlier mount are taken off first.
window.greenlightOff?.abort();
window.greenlightOff = new AbortController();
const mount = window.greenlightOff.signal;

function on(type, listener) {
  document.addEventListener(type, listener, {capture: true, signal: mount});
}

// storage: "localStorage" or "sessionStorage", whose mere mention may be forbidden; the page works without.
function stored(storage, key) {
  try { return window[storage].getItem(key); } catch { return null; }
}

function store(storage, key, value) {
  try { window[storage].setItem(key, value); } catch { /* not remembered, that is all */ }
}

// ---- what other parts of this script hang in

const turnListeners = [];     // called with a turn after each patch that touched it
const patchListeners = [];    // called with each patch of the conversation shown, once it is applied
const foreignListeners = [];  // called with patches of other conversations
const answerListeners = {};   // by name of what was asked for
const starters = [];          // called once when all parts of the page are there

function onTurn(listener) { turnListeners.push(listener); }
function onPatch(listener) { patchListeners.push(listener); }
function onForeign(listener) { foreignListeners.push(listener); }
function onAnswer(what, listener) { answerListeners[what] = listener; }
function atStart(starter) { starters.push(starter); }

// Asks the server for something that is only wanted now and then; it comes as a patch with an entry of that name.
// An answer may get lost: whoever still wants it asks again.
function ask(what, args = {}) {
  trigger("ask", {conversation, what, args});
}

function sync(id = conversation) {
  if (id === conversation) asked = Date.now();
  trigger("sync", {conversation: id, lang: root.dataset.lang});
}

// ---- applying

function apply(packed) {
  const patch = packed ? JSON.parse(packed) : null;
  if (!patch) return;
  if (patch.conversation !== conversation) {
    // Only an answer to the question for a new conversation may change which one is shown.
    if (conversation !== "" || patch.asked !== "") {
      foreignListeners.forEach((listener) => listener(patch));
      return;
    }
    adopt(patch.conversation);
  } else if (patch.v <= newest) return;
  heard = Date.now();
  newest = patch.v;
  if (patch.unknown) { unknown(); return; }
  const follow = atEnd() && !selecting();
  const complete = applyTurns(patch);
  if (patch.running !== undefined) setRunning(patch.running);
  if (patch.ready !== undefined) root.dataset.ready = (ready = patch.ready) ? "yes" : "no";
  applyFigures(patch.figures || {});
  put("loading", patch.loading);
  put("notice", patch.notice);
  put("say", patch.say);
  // Taken by a later turn with these words; another tab may have written other ones.
  if (sent !== null && lastKey() > sentAfter && turnList().at(-1).user === sent) take();
  if (patch.notice && !patch.running) sent = null;  // refused: it stays in the box
  if (patch.taken_back && !box()?.value) fillBox(patch.taken_back);  // what is typed already is worth more
  if (patch.came_back && box()?.value === patch.came_back) fillBox("");
  if (follow && turns.size) log.scrollTop = log.scrollHeight;
  torn = !complete || (!running && turnList().some((turn) => turn.phase !== "finished"));
  if (torn && Date.now() - asked > ASK_AGAIN_MS) sync();
  for (const part of patch.turns) if (turns.has(part.key)) turnListeners.forEach((listener) => listener(turns.get(part.key)));
  for (const [what, listener] of Object.entries(answerListeners)) if (what in patch) listener(patch[what]);
  patchListeners.forEach((listener) => listener(patch));
}

// The server names each conversation; the page keeps the name while its tab lives.
function adopt(id) {
  conversation = id;
  store("sessionStorage", KEYS.conversation, id);
}

// Shows another conversation ("": a new one). What is being written elsewhere goes on.
function show(id) {
  adopt(id);
  for (const turn of turns.values()) turn.node.remove();
  turns.clear();
  newest = 0;
  torn = false;
  sent = null;
  setRunning(false);
  put("notice", "");
  sync();
}

function applyTurns(patch) {
  const wanted = new Set(patch.keys);
  for (const [key, turn] of turns) {
    if (!wanted.has(key)) { turn.node.remove(); turns.delete(key); }
  }
  const complete = patch.turns.map(applyTurn).every(Boolean);
  element.classList.toggle("empty", patch.keys.length === 0);
  root.dataset.undo = patch.undo ? "yes" : "no";
  root.dataset.redo = patch.redo ? "yes" : "no";
  return complete && patch.keys.every((key) => turns.has(key));
}

function applyTurn(part) {
  let turn = turns.get(part.key);
  if (!turn) {
    if (!part.head) return false;
    turn = addTurn(part);
  }
  turn.phase = turn.node.dataset.phase = part.phase;
  if (turn.foot.innerHTML !== part.foot) turn.foot.innerHTML = part.foot;
  if (turn.between.innerHTML !== part.between) turn.between.innerHTML = part.between;
  if (part.about !== undefined) turn.about = part.about;  // another pair may have written it than it was asked of
  if (part.from > turn.have) return false;
  const fresh = part.blocks.slice(turn.have - part.from);
  if (fresh.length) {
    turn.blocks.insertAdjacentHTML("beforeend", fresh.map(([html]) => html).join(""));
    for (const [, row] of fresh) turn.rows.push(row);
  }
  turn.have = Math.max(turn.have, part.from + part.blocks.length);
  return true;
}

function addTurn(part) {
  const node = document.createElement("section");
  node.className = "turn";
  node.dataset.key = part.key;
  node.innerHTML = part.head;
  const later = [...turns.keys()].filter((key) => key > part.key).sort((a, b) => a - b)[0];
  turnsBox.insertBefore(node, later === undefined ? null : turns.get(later).node);
  const turn = {key: part.key, node, blocks: node.querySelector("[data-part=blocks]"), user: part.user, about: part.about,
                foot: node.querySelector("[data-part=foot]"), between: node.querySelector("[data-part=between]"), have: 0, rows: [], phase: part.phase};
  turns.set(part.key, turn);
  return turn;
}

function turnOf(node) {
  return turns.get(Number(node.closest(".turn")?.dataset.key));
}

function lastKey() {
  return Math.max(0, ...turns.keys());
}

// In the order in which they are read.
function turnList() {
  return [...turns.values()].sort((a, b) => a.key - b.key);
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

// A sentence that stands ready in the page, above the message box.
function notify(name) {
  put("notice", document.querySelector(`[data-text="${name}"]`).innerHTML);
}

function setRunning(now) {
  running = now;
  root.dataset.running = now ? "yes" : "no";
}

// The server has taken the message: empty the box, unless the person has already typed something else.
function take() {
  log.scrollTop = log.scrollHeight;
  if (box()?.value === sent) fillBox("");
  sent = null;
}

function box() {
  return document.querySelector("#gl-box textarea");
}

function fillBox(written) {
  const field = box();
  if (!field) return;
  field.value = written;
  field.dispatchEvent(new Event("input", {bubbles: true}));
}
