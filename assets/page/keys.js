// ---- keyboard and paste

const MAX_WRITTEN = 100_000;  // characters; a box with much more freezes the browser, and no model here reads as much

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
  const field = event.target;
  if (field.tagName !== "TEXTAREA") return;
  const added = (event.data ?? event.dataTransfer?.getData("text/plain") ?? "").length;
  if (added < 2 || field.value.length - (field.selectionEnd - field.selectionStart) + added <= MAX_WRITTEN) return;
  event.preventDefault();
  notify("paste");
}

// Gradio gives every radio button a group of its own, in which the arrow keys have nowhere to go.
function onRadio(event) {
  const step = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1}[event.key];
  if (!step || event.target.type !== "radio") return;
  const all = [...event.target.closest("fieldset, .block").querySelectorAll("input[type=radio]")].filter(isShown);
  const next = all[(all.indexOf(event.target) + step + all.length) % all.length];
  event.preventDefault();
  next.focus();
  next.click();
}

// How much of the model's context the message being written would take, asked when typing pauses.
const PAUSE_MS = 400;
let pause = 0;

function onInput(event) {
  if (event.target !== box()) return;
  clearTimeout(pause);
  pause = setTimeout(() => { if (ready) ask("meter", {text: box()?.value ?? ""}); }, PAUSE_MS);
}

onAnswer("meter", (html) => put("meter", html));
on("keydown", onKey);
on("keypress", onKey);
on("beforeinput", onBeforeInput);
on("keydown", onRadio);
on("input", onInput);
