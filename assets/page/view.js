// ---- language, theme, how replies are shown

function tell(name) {
  document.dispatchEvent(new CustomEvent(`greenlight:${name}`));
}

function setLang(lang, remember) {
  root.dataset.lang = lang;
  root.lang = lang === "zh" ? "zh-CN" : "en";
  if (remember) store("localStorage", KEYS.lang, lang);
  trigger("language", {lang});
  tell("language");
}

function firstLang() {
  const fixed = element.querySelector("[data-lang-fixed]").dataset.langFixed;
  return stored("localStorage", KEYS.lang) || fixed || (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
}

function setTheme(theme) {
  document.body.classList.toggle("dark", theme === "dark");
  store("localStorage", KEYS.theme, theme);
  tell("theme");
}

// Three switches: colours or clean reading; wrong guesses shown or hidden; unlikely words shaded.
const SWITCHES = {
  colours: {key: KEYS.view, apply: (on) => { root.dataset.view = on ? "colours" : "reading"; }, usual: true},
  hide: {key: KEYS.hide, apply: (on) => { root.dataset.hide = on ? "yes" : "no"; }, usual: false},
  shade: {key: KEYS.shade, apply: (on) => { root.dataset.shade = on ? "yes" : "no"; }, usual: false},
};

function setSwitch(name, chosen) {
  const bottom = atEnd();
  SWITCHES[name].apply(chosen);
  store("localStorage", SWITCHES[name].key, chosen ? "yes" : "no");
  tell("view");
  if (bottom) log.scrollTop = log.scrollHeight;
}

function startSwitches() {
  for (const [name, {key, usual}] of Object.entries(SWITCHES)) {
    const chosen = (stored("localStorage", key) ?? (usual ? "yes" : "no")) === "yes";
    for (const input of document.querySelectorAll(`[data-switch="${name}"]`)) input.checked = chosen;
    setSwitch(name, chosen);
  }
}

function onChange(event) {
  const name = event.target.dataset?.switch;
  if (name) setSwitch(name, event.target.checked);
}

function fold(button) {
  const open = button.getAttribute("aria-expanded") !== "true";
  button.setAttribute("aria-expanded", String(open));
  document.getElementById("gl-panel").classList.toggle("open", open);
}

// ---- buttons of the page that are not Gradio's

const actions = {
  language: () => setLang(root.dataset.lang === "zh" ? "en" : "zh", true),
  theme: () => setTheme(document.body.classList.contains("dark") ? "light" : "dark"),
  fold,
  copy: (button) => copy(textOf(turnOf(button))).then(() => done(button)),
  again: (button) => write({how: "again", key: turnOf(button).key, seed: "same"}),
  reseed: (button) => write({how: "again", key: turnOf(button).key, seed: "other"}),
  edit: (button) => edit(turnOf(button)),
  "edit-send": (button) => sendEdit(turnOf(button)),
  "edit-cancel": (button) => endEdit(turnOf(button)),
};

let wished = null;  // what was asked of the server last, until it does it

function write(wish) {
  if (running) return;
  wished = wish;
  expect();
  trigger("write", wish);
}

function onClick(event) {
  const button = event.target.closest("[data-action], [data-example]");
  if (!button) return;
  if (button.dataset.example) write({how: "example", index: Number(button.dataset.example)});
  else actions[button.dataset.action]?.(button, event);
}

// ---- editing a message in its place

function edit(turn) {
  if (running || turn.node.querySelector(".editor")) return;
  const form = document.querySelector("[data-text=editor]").firstElementChild.cloneNode(true);
  const field = form.querySelector("textarea");
  turn.node.querySelector(".you").append(form);
  field.value = turn.user;
  field.rows = Math.min(12, turn.user.split("\n").length + 1);
  field.focus();
}

function sendEdit(turn) {
  const written = turn.node.querySelector(".editor textarea").value;
  write({how: "edit", key: turn.key, text: written});
}

function endEdit(turn) {
  turn.node.querySelector(".editor")?.remove();
  turn.node.querySelector("[data-action=edit]")?.focus();
}

function onEditKey(event) {
  const editor = event.target.closest?.(".editor");
  if (!editor) return;
  if (event.isComposing || event.keyCode === 229) return;  // Escape and Enter are the input method's
  const turn = turnOf(editor);
  if (event.key === "Escape" && event.target.value === turn.user) endEdit(turn);  // a change is only given up by Cancel
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) sendEdit(turn);
}

on("click", onClick);
on("change", onChange);
on("keydown", onEditKey);
