// ---- the channel of the views besides the chat: a component of its own, so that a race does not wait for a chat

const WATCH_TRIES = 3;        // an answer may get lost; it is asked for so often
const WATCH_TRY_MS = 3000;
const WATCH_READ_MS = 0.004;  // for each character of a trace, some times what the server takes: asked twice, it would read it twice
const watchListeners = {};    // by name of what comes
const viewers = new Map();    // by name of the place: "race", "inspect", "glance"

let watchPart = null;         // what Gradio gave that component's script: element, trigger, props, watch
let watchHeard = 0;           // version of the last message

function onWatch(what, listener) { (watchListeners[what] ??= []).push(listener); }

function look(what, args = {}) {
  watchPart.trigger("look", {what, args});
}

function hearWatch(packed) {
  const message = packed ? JSON.parse(packed) : null;
  if (!message || message.v <= watchHeard) return;
  watchHeard = message.v;
  for (const [what, payload] of Object.entries(message)) watchListeners[what]?.forEach((listener) => listener(payload));
}

// Gradio may mount that component again, and then gives new functions.
function joinWatch() {
  const part = window.greenlightWatch;
  if (!part || part === watchPart) return;
  watchPart = part;
  part.watch("value", () => hearWatch(part.props.value));
}

// Asks for a recording: {shipped}, {trace}, {id} or {conversation, key}. Resolves to it, or to {failed: html}.
let openings = 0;
const opening = new Map();    // number -> what to do with the answer

async function openRecording(wanted) {
  const number = ++openings;
  const {trace = ""} = wanted;
  const patience = WATCH_TRY_MS + WATCH_READ_MS * (typeof trace === "string" ? trace : JSON.stringify(trace)).length;
  const answer = new Promise((resolve) => opening.set(number, resolve));
  for (let tries = 0; tries < WATCH_TRIES && opening.has(number); tries++) {
    look("open", {...wanted, number});
    await Promise.race([answer, new Promise((later) => setTimeout(later, patience))]);
  }
  if (opening.delete(number)) return {failed: sentence("watch-unanswered")};
  return answer;
}

onWatch("opened", ({number, recording, failed}) => {
  const resolve = opening.get(number);
  opening.delete(number);
  resolve?.(failed === undefined ? recording : {failed});
});

// A sentence that stands ready in the page, in both languages.
function sentence(name) {
  return document.querySelector(`[data-text="${name}"]`).innerHTML;
}

// The same in the language shown, for attributes.
function wordsOf(name) {
  return document.querySelector(`[data-text="${name}"] .${root.dataset.lang === "zh" ? "zh" : "en"}`).textContent;
}

// Files come by the same way: {number, name, mime, text}.
let watchFile = 0;
let watchButton = null;

onWatch("file", (file) => {
  if (file.number !== watchFile || !watchButton) return;
  saveFile(file);
  done(watchButton);
  watchButton = null;
});

// id(): of the recording, which may get another one meanwhile. Resolves to whether the file came or was no longer wanted.
async function askWatchFile(button, id, form) {
  const number = ++watchFile;
  watchButton = button;
  const open = () => watchButton && watchFile === number;
  for (let tries = 0; tries < WATCH_TRIES && open(); tries++) {
    look("file", {id: id(), form, lang: root.dataset.lang, number});
    await new Promise((later) => setTimeout(later, WATCH_TRY_MS));
  }
  return !open();
}

atStart(() => {
  joinWatch();
  on("greenlight:watch", joinWatch);
});
