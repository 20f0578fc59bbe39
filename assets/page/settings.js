// ---- settings: presets, the seed's buttons, what is remembered, what is corrected

const KEEP_MS = 200;  // typing and dragging change a setting many times a second; the last one counts

const settingsTable = {defaults: {}, presets: []};  // from the server
let settingsHeld = {};      // the values of all controls, as last heard
let settingsWanted = {};    // values on their way into the controls
let settingsOpened = false; // until what was remembered is back in its place, nothing is remembered
let settingsKept = 0;
let settingsSaid = "";      // the words about the last correction
let settingsUnsaid = "";    // those about what was remembered,
let settingsTalk = false;   // for when the conversation is there

const settingNames = () => Object.keys(settingsTable.defaults);

function fillSettings(values) {
  settingsWanted = values;
  trigger("settings");
}

// What Gradio calls in the browser: outputs that are undefined stay as they are.
window.greenlightSettings = {
  wanted: () => settingNames().map((name) => settingsWanted[name]),

  async keep(...values) {
    settingsHeld = Object.fromEntries(settingNames().map((name, i) => [name, values[i]]));
    markSettings();
    if (!settingsOpened || !settingNames().length) return undefined;
    const turn = ++settingsKept;
    await new Promise((done) => setTimeout(done, KEEP_MS));
    return turn === settingsKept ? chosenSettings() : undefined;
  },

  say(words) {
    const place = document.querySelector("[data-part=notice]");
    if (words || place.innerHTML === settingsSaid) put("notice", words);
    settingsSaid = words ? place.innerHTML : "";
  },

  opened(words) {
    settingsOpened = true;
    settingsUnsaid = words;
    if (settingsTalk) sayUnsaid();
  },
};

// A page that opens first finds its conversation, which wipes the place for notices.
function sayUnsaid() {
  settingsTalk = true;
  if (settingsUnsaid) window.greenlightSettings.say(settingsUnsaid);
  settingsUnsaid = "";
}

onPatch(sayUnsaid);

// What somebody chose: only that is remembered, so that other defaults of a later start still count.
function chosenSettings() {
  const {defaults} = settingsTable;
  return Object.fromEntries(Object.entries(settingsHeld).filter(([name, value]) => value !== null && value !== defaults[name]));
}

// ---- presets: the one that says most of those that fit

function presetThatFits() {
  const fits = ({values}) => Object.entries(values).every(([name, value]) => settingsHeld[name] === value);
  const size = ({values}) => Object.keys(values).length;
  return settingsTable.presets.filter(fits).sort((a, b) => size(b) - size(a))[0];
}

function markSettings() {
  const fitting = presetThatFits()?.name;
  for (const button of document.querySelectorAll("[data-preset]"))
    button.setAttribute("aria-pressed", String(button.dataset.preset === fitting));
  document.querySelector("[data-action=lock]")?.setAttribute("aria-pressed", String(seedHeld() !== ""));
  for (const fold of document.querySelectorAll("#gl-settings .label-wrap"))  // Gradio leaves this to the eye
    fold.setAttribute("aria-expanded", String(fold.classList.contains("open")));
}

// A preset also takes back what the one before it had set.
actions.preset = (button) => {
  const {defaults, presets} = settingsTable;
  const left = Object.keys(presetThatFits()?.values ?? {}).map((name) => [name, defaults[name]]);
  const {values} = presets.find(({name}) => name === button.dataset.preset);
  fillSettings({...Object.fromEntries(left), ...values});
};

actions["reset-settings"] = () => fillSettings(settingsTable.defaults);

// ---- the seed

const seedHeld = () => String(settingsHeld.seed ?? "").trim();
const seedDrawn = () => String(crypto.getRandomValues(new Uint32Array(1))[0]);
const seedOfLastReply = () => [...turns.values()].at(-1)?.rows?.find((row) => row?.seed !== undefined)?.seed;

actions.dice = () => fillSettings({seed: seedDrawn()});
actions.lock = () => fillSettings({seed: seedHeld() ? "" : String(seedOfLastReply() ?? seedDrawn())});

// ---- corrections: what was typed is checked as soon as a field is left, before Gradio quietly changes it

let settingEntered = null;  // what the field held when it was entered

function settingTyped(field) {
  const name = field.closest?.("#gl-settings [id^=gl-set-]")?.id.slice("gl-set-".length);
  const typed = field.type === "number" || name === "seed" || name === "stop";
  return typed ? name : undefined;
}

function checkSetting(field) {
  const name = settingTyped(field);
  if (!name || field.value === settingEntered) return;
  settingEntered = field.value;
  const value = field.type !== "number" ? field.value : field.value === "" ? null : Number(field.value);
  trigger("check", {name, value});
}

on("focus", (event) => { if (event.target !== document) settingEntered = event.target.value; });
on("blur", (event) => { if (event.target !== document) checkSetting(event.target); });
on("keydown", (event) => { if (event.key === "Enter" && event.target.tagName !== "TEXTAREA") checkSetting(event.target); });

// ---- start

atStart(function startSettings() {
  const [data, pane] = [document.querySelector("[data-settings]"), document.querySelector("#gl-settings")];
  if (!data || !pane) { setTimeout(startSettings, 20); return; }
  Object.assign(settingsTable, JSON.parse(data.dataset.settings));
  if (!Object.keys(settingsHeld).length) settingsHeld = {...settingsTable.defaults};
  // What is folded is made when it is opened.
  new MutationObserver(markSettings).observe(pane, {childList: true, subtree: true, attributeFilter: ["class"]});
  markSettings();
});
