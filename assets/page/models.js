// ---- the tab "Models". Its channel is asked for news time and again, by every page that somebody sees: whoever asked for it,
// a change of the models concerns them all. An answer says everything, so it may get lost; one that would say what this
// page has seen does not come.

const MODELS = {session: "greenlight.models", form: "greenlight.models.form", recent: "greenlight.pairs", most: 8,
                busy: 500, open: 3000, calm: 6000, again: 3000, lost: 12_000};  // milliseconds, but for the first four

let modelsPart = null;     // what Gradio gave the component's script: element, trigger, props, watch
let modelsSession = "";    // the visitor's secret name
let modelsHeard = 0;       // version of the last message
let modelsAsked = 0;       // when news were asked for
let modelsSeen = "";       // what the last message said, in a few characters
let modelsPair = null;     // {start, number, wish, title} of the pair in use, as far as this page knows
let modelsWish = null;     // {what, number, at, sent} of a check or load that the server has not taken yet
let modelsBusy = false;    // a check or a change is under way
let modelsNumber = 0;      // of the latest check or load, as the server knows it
let modelsFilled = false;
let modelsPressed = false;   // "Load" here: the change that comes of it is brought into view

function modelsForm() { return document.querySelector("[data-part=models-form]"); }
function modelsSlot(name) { return document.querySelector(`.view.models [data-slot="models-${name}"]`); }

// Gradio may mount that component again, and then gives new functions.
function joinModels() {
  const part = window.greenlightModels;
  if (!part || part === modelsPart) return;
  modelsPart = part;
  part.watch("value", () => hearModels(part.props.value));
}

function askModels(what, args = {}) {
  modelsAsked = Date.now();
  // Somebody who waits for an answer gets one in any case.
  modelsPart.trigger("ask", {what, args: {...args, session: modelsSession, seen: modelsWish ? "" : modelsSeen}});
}

function hearModels(packed) {
  const message = packed ? JSON.parse(packed) : null;
  if (!message || message.v <= modelsHeard) return;
  modelsHeard = message.v;
  takeModels(message.models);
}

function fillSlot(name, html) {  // what stays the same is not said again
  const place = modelsSlot(name);
  if (place.told !== html) place.innerHTML = place.told = html;
}

function takeModels({token, start: begun, pair, change, check, presets, notice}) {
  modelsSeen = token;
  modelsNumber = Math.max(modelsNumber, check.number);
  const answered = modelsWish && check.number >= modelsWish.number;
  if (answered) modelsWish = null;
  modelsBusy = check.going || Boolean(change?.going) || pair === null;
  if (!modelsWish) { fillSlot("notice", notice); fillSlot("card", check.html); }  // not what was said of another pair
  fillSlot("presets", presets);
  takeChange(change);
  if (pair) takePair(pair, begun);
  // Not "disabled": whoever pressed it by key would lose their place.
  modelsForm().querySelector("[data-action=models-load]").ariaDisabled = String(Boolean(change?.going) || check.going);
  if (answered) modelsSlot("card").scrollIntoView({block: "nearest"});  // the form may fill the window
}

function takePair({number, html, announced, wish, title, embedded}, begun) {
  root.dataset.embedded = embedded ? "yes" : "no";
  fillSlot("pair", html);
  const before = modelsPair;
  modelsPair = {start: begun, number, wish, title};
  if (wish) rememberPair({wish, title});
  if (!modelsFilled) fillModels(keptForm() ?? wish ?? {});
  if (!before || (before.start === begun && before.number === number)) return;
  sync();  // the chip, the drafters to choose from, the context
  put("notice", announced);
}

// Its buttons stay where they are, so that whoever has one of them in focus keeps it.
function takeChange(change) {
  const place = document.querySelector("[data-part=models-change]");
  const [cancel, close] = ["cancel", "close"].map((name) => place.querySelector(`[data-action=models-${name}]`));
  const focused = place.contains(document.activeElement);
  place.hidden = !change;
  if (!change) { fillSlot("title", ""); return; }
  place.dataset.going = change.going ? "yes" : "no";
  const bar = modelsSlot("bar");
  bar.hidden = !change.going;
  if (change.bar === null) bar.removeAttribute("value");
  else bar.value = change.bar;
  for (const name of ["title", "far", "while"]) fillSlot(name, change[name]);
  if (modelsPressed && change.going) { modelsPressed = false; place.scrollIntoView({block: "nearest"}); }
  cancel.hidden = !change.going || !change.mine;
  close.hidden = change.going;
  if (focused && !place.contains(document.activeElement)) (change.going ? cancel : close).focus();
}

// ---- the form, which a page that is loaded again finds as it was

function wishOf(form) { return Object.fromEntries(new FormData(form)); }

function fillModels(wish) {
  const form = modelsForm();
  modelsFilled = true;
  for (const field of form.elements) {
    if (!field.name) continue;
    const value = wish[field.name] ?? (field.name === "target" ? "" : "auto");
    field.value = value;
    if (field.tagName === "SELECT" && field.value !== value) field.value = "auto";  // nothing that this page knows
  }
  if (["drafter_device", "compute"].some((name) => form.elements[name].value !== "auto")) form.querySelector("details").open = true;
}

function keptForm() {
  try { return JSON.parse(stored("sessionStorage", MODELS.form)); } catch { return null; }
}

function keepForm() { store("sessionStorage", MODELS.form, JSON.stringify(wishOf(modelsForm()))); }

function useWish(wish) {
  fillModels(wish);
  keepForm();
  const field = modelsForm().elements.target;
  field.scrollIntoView({block: "center"});
  field.focus({preventScroll: true});
}

function wishModels(what) {
  const wish = wishOf(modelsForm());
  fillSlot("notice", wish.target.trim() ? "" : sentence("models-empty"));
  if (!wish.target.trim()) { modelsForm().elements.target.focus(); return; }
  fillSlot("card", "");
  keepForm();
  modelsWish = {what, number: modelsNumber + 1, at: Date.now(), sent: Date.now(), wish};
  modelsBusy = true;
  modelsPressed = what === "load";
  askModels(what, {number: modelsWish.number, wish});
}

// ---- pairs that were used in this browser before

function recentPairs() {
  try {
    const kept = JSON.parse(stored("localStorage", MODELS.recent));
    return Array.isArray(kept) ? kept.filter((one) => one?.wish?.target && one.title).slice(0, MODELS.most) : [];
  } catch { return []; }
}

function rememberPair(pair) {
  const same = (one) => Object.keys(pair.wish).every((field) => one.wish[field] === pair.wish[field]);
  const before = recentPairs();
  if (before.length && same(before[0]) && before[0].title === pair.title) return;
  store("localStorage", MODELS.recent, JSON.stringify([pair, ...before.filter((one) => !same(one))].slice(0, MODELS.most)));
  drawRecent();
}

function drawRecent() {
  const pairs = recentPairs();
  const place = document.querySelector("[data-part=models-recent]");
  place.hidden = pairs.length < 2;  // the one in use alone is no choice
  place.querySelector("p").replaceChildren(...pairs.map(({wish, title}) => {
    const button = document.createElement("button");
    Object.assign(button, {type: "button", className: "pick", textContent: [title, ...settingsOf(wish)].join(", ")});
    button.dataset.action = "models-recent";
    button.wish = wish;
    return button;
  }));
}

// Of a pair's settings those that tell it from another of the same models.
function settingsOf(wish) {
  return ["quant", "device"].map((field) => wish[field]).filter((value) => value && value !== "auto");
}

// ---- when news are asked for

function watchModels() {
  const now = Date.now(), seen = root.dataset.tab === "models";
  if (!modelsPart || (document.hidden && !modelsBusy)) return;
  if (modelsWish && now - modelsWish.at > MODELS.lost) {
    modelsWish = null;
    modelsBusy = false;
    fillSlot("notice", sentence("models-unanswered"));
  }
  if (modelsWish && now - modelsWish.sent > MODELS.again) {
    modelsWish.sent = now;
    askModels(modelsWish.what, {number: modelsWish.number, wish: modelsWish.wish});
    return;
  }
  if (running && !seen && !modelsBusy) return;  // the models stay until the reply is written
  if (now - modelsAsked >= (modelsBusy ? MODELS.busy : seen ? MODELS.open : MODELS.calm)) askModels("news");
}

Object.assign(actions, {
  "models-load": (button) => { if (button.ariaDisabled !== "true") wishModels("load"); },
  "models-cancel": () => askModels("cancel"),
  "models-close": () => askModels("close"),
  "models-recent": (button) => useWish(button.wish),
  "models-use": ({dataset: {target, drafter, quant, drafterQuant, device}}) =>
    useWish({target, drafter, quant, drafter_quant: drafterQuant, device}),
});

on("submit", (event) => {
  if (event.target !== modelsForm()) return;
  event.preventDefault();
  event.stopPropagation();
  wishModels("check");
});
on("input", (event) => { if (modelsForm()?.contains(event.target)) keepForm(); });
on("greenlight:language", () => {
  for (const option of modelsForm().querySelectorAll("option[data-en]"))
    option.textContent = option.dataset[root.dataset.lang === "zh" ? "zh" : "en"];
});
on("visibilitychange", () => { if (!document.hidden && modelsPart) askModels("news"); });
on("greenlight:tab", () => {
  if (root.dataset.tab !== "models" || !modelsPart) return;
  modelsSeen = "";  // what is free may have changed meanwhile
  askModels("news");
});

function startModels() {
  joinModels();
  on("greenlight:models", joinModels);
  modelsSession = stored("sessionStorage", MODELS.session) || secretKey();
  store("sessionStorage", MODELS.session, modelsSession);
  const kept = keptForm();
  if (kept) fillModels(kept);
  drawRecent();
  askModels("news");
}

const modelsTimer = setInterval(watchModels, 250);
mount.addEventListener("abort", () => clearInterval(modelsTimer));
atStart(startModels);
