// ---- the race: what is asked for, and the race that runs. Until somebody has raced, a recorded one is there.

const RACE = {kept: "greenlight.race", silence: 3000, unheard: 12_000};  // milliseconds of nothing from the server
const still = matchMedia("(prefers-reduced-motion: reduce)");
let raceKey = "";            // names the race that was asked for last; the browser makes it up, so that it can be stopped at once
let raceStopped = "";        // the one that was told to stop; a word that came before its race did is said again
let raceId = "";             // of the recording of that race, once the server has said it
let raceHeard = 0;
let raceAsked = 0;           // when everything was asked for again

function raceForm() { return document.querySelector("[data-part=race-form]"); }
function raceView() { return viewers.get("race"); }

function raceSay(html) {  // the same again is not said again
  const notice = document.querySelector("[data-slot=race-notice]");
  if (notice.told !== html) notice.innerHTML = notice.told = html;
}

function raceRuns(running) {
  const form = raceForm();
  form.dataset.running = running ? "yes" : "no";
  const go = form.querySelector("[data-action=race-go]"), stop = form.querySelector("[data-action=race-stop]");
  go.disabled = running;
  if (!running && stop === document.activeElement) go.focus({preventScroll: true});
  stop.hidden = !running;
}

function secretKey() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function race() {
  const form = raceForm();
  if (form.dataset.running === "yes") return;
  const values = Object.fromEntries(new FormData(form));
  raceKey = secretKey();
  raceId = "";
  raceHeard = Date.now();
  raceSay("");
  raceRuns(true);
  watchPart.trigger("race", {
    key: raceKey, prompt: values.prompt, k: values.k === "auto" ? "auto" : Number(values.k),
    temperature: values.temperature === "" ? null : Number(values.temperature), length: Number(values.length), dice: form.dice.checked,
  });
}

// {key, id, lanes, ahead, notice, running, verdict, recording}: recording with the first that has one.
onWatch("live", (message) => {
  if (message.key !== raceKey) return;
  raceHeard = Date.now();
  if (message.notice !== undefined) raceSay(message.notice);
  if (message.running && raceStopped === raceKey) look("stop", {key: raceKey});
  const id = message.id ?? message.recording?.id ?? raceId;
  if (id !== raceId) store("sessionStorage", RACE.kept, raceId = id);
  if (message.recording) raceView().open(message.recording);
  if (message.lanes && (raceView().id() !== message.id || !raceView().takeLive(message))) fetchRace(message.id);
  raceRuns(message.running);
});

// A message was lost, so something is missing: everything is fetched, and what was played stays played.
async function fetchRace(id) {
  if (Date.now() - raceAsked < ASK_AGAIN_MS) return;
  raceAsked = Date.now();
  const key = raceKey;
  const found = await openRecording({id});
  if (key !== raceKey) return;
  raceHeard = Date.now();
  raceSay(found.failed ?? "");
  if (found.failed !== undefined) { if (raceView().id() === id) raceView().breakOff(); }
  else if (raceView().id() === id) raceView().takeLive(found);
  else raceView().open(found, {at: Infinity});
  raceRuns(raceKey !== "" && raceView().isLive());
}

// A race of which nothing is heard: the one asked for here, or one that another page, or this one before it was loaded
// again, asked for.
function watchRace() {
  const running = raceForm()?.dataset.running === "yes", silent = Date.now() - raceHeard;
  const id = raceId || (raceView()?.isLive() ? raceView().id() : "");
  if (id && (running || raceView().isLive()) && silent > RACE.silence) fetchRace(id);
  else if (running && !id && silent > RACE.unheard) { raceSay(sentence("watch-unanswered")); raceRuns(false); }
}

function fillRace(words, temperature) {
  const form = raceForm();
  form.prompt.value = words;
  form.temperature.value = temperature ?? form.temperature.defaultValue;
}

// The recorded race, or the one of before the page was loaded again.
let recordedOnce = null;

// The blank page and the race begin with the same one, so it is asked for once.
function recordedRace() {
  return recordedOnce ??= openRecording({shipped: "chat"});
}

async function firstRace() {
  const before = stored("sessionStorage", RACE.kept);
  let found = before ? await openRecording({id: before}) : null;
  if (!found || found.failed !== undefined) found = await recordedRace();
  if (raceKey) return;  // somebody was quicker
  if (found.failed !== undefined) { raceSay(found.failed); return; }
  const runs = found.lanes.some((lane) => lane.phase !== "finished");
  raceView().open(found, {play: runs, at: runs || still.matches ? Infinity : 0});
  if (!raceForm().prompt.value) fillRace(found.user, found.lanes[0].about?.params?.sampling?.temperature);
  if (!runs) playWhenSeen();
}

let raceSeen = false;

// Plays once when the view is first looked at.
function playWhenSeen() {
  if (raceSeen || still.matches || root.dataset.tab !== "race" || !raceView().recording()) return;
  raceSeen = true;
  raceView().setPlaying(true);
}

Object.assign(actions, {
  "race-prompt": (button) => fillRace(button.dataset.prompt, button.dataset.temperature),
  "race-stop": () => look("stop", {key: raceStopped = raceKey}),
  "race-again": (button) => {
    if (raceForm().dataset.running === "yes") { goTo("race"); raceSay(sentence("busy")); return; }
    const {user, lanes} = viewers.get(button.closest(".viewer").dataset.viewer).recording();
    const params = lanes.find((lane) => lane.name === "speculative")?.about?.params;
    fillRace(user, params?.sampling?.temperature);
    raceForm().k.value = button.dataset.k;
    goTo("race");
    race();
    document.querySelector(".race .transport [data-action=play]").focus();  // the button that was pressed goes with its verdict
  },
});

on("submit", (event) => {
  if (event.target !== raceForm()) return;
  event.preventDefault();
  event.stopPropagation();
  race();
});
on("keydown", (event) => {  // as in the chat: Enter sends, Shift+Enter breaks the line
  if (event.target !== raceForm()?.prompt || event.key !== "Enter" || event.shiftKey) return;
  if (event.isComposing || event.keyCode === 229) return;
  event.preventDefault();
  race();
});
on("greenlight:tab", playWhenSeen);
on("greenlight:language", () => {
  const auto = raceForm().querySelector("option[value=auto]");
  auto.textContent = auto.dataset[root.dataset.lang === "zh" ? "zh" : "en"];
});
const raceTimer = setInterval(watchRace, 500);
mount.addEventListener("abort", () => clearInterval(raceTimer));
atStart(firstRace);

// ---- the small one on the blank page

async function firstGlance() {
  const viewer = viewers.get("glance");
  if (!viewer) return;
  const found = await recordedRace();
  if (found.failed !== undefined) { viewer.place.closest(".glance").hidden = true; return; }
  viewer.open(found, {play: !still.matches && root.dataset.tab === "chat", at: still.matches ? Infinity : 0});
}

atStart(firstGlance);
