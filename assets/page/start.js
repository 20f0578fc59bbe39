// ---- start

// What Gradio calls before it sends an event: fills in which conversation this page shows.
function fill(...values) {
  values[0] = conversation;
  return values;
}

function send(...values) {
  sent = values[1];
  sentAfter = lastKey();
  expect();
  return fill(...values);
}
window.greenlight = {fill, send};

// What was asked for makes a turn. A short reply is a single patch, and that may be lost like any other: where no turn
// comes the page asks, a few times, since the server may also have turned it away.
const EXPECT_TRIES = 3;
let expected = null;  // {after: key of the last turn before it, at, tries}

function expect() {
  expected = {after: lastKey(), at: Date.now(), tries: 0};
}

onPatch((patch) => {
  if (expected && (lastKey() > expected.after || patch.notice)) expected = wished = null;
});

function watchOver() {
  const now = Date.now();
  const silent = running && now - heard > SILENCE_MS;
  const loading = !ready && now - heard > LOADING_MS;
  const lost = expected && expected.tries < EXPECT_TRIES && now - expected.at > SILENCE_MS * (expected.tries + 1);
  if (lost) expected.tries += 1;
  if ((torn || silent || loading || lost) && now - asked > (loading ? LOADING_MS : ASK_AGAIN_MS)) sync();
}
const timer = setInterval(watchOver, 500);
mount.addEventListener("abort", () => clearInterval(timer));

// Another tab may have gone on with this conversation.
on("visibilitychange", () => { if (!document.hidden && !running) sync(); });

// The header, the panel and the notices are components of their own, which may be mounted after this one.
const CHANNELS = ["greenlightWatch", "greenlightLearn", "greenlightWhen", "greenlightModels"];
const PARTS = [".gl-header", "#gl-figures", "#gl-chats [data-part=chats]", "[data-part=notice]", "[data-part=charts]"];

function start() {
  if (window.greenlightOff.signal !== mount) return;
  if (!CHANNELS.every((name) => window[name]) || !PARTS.every((place) => document.querySelector(place))) {
    setTimeout(start, 20);
    return;
  }
  const theme = stored("localStorage", KEYS.theme);
  if (theme) setTheme(theme);
  startSwitches();
  setLang(firstLang(), false);
  starters.forEach((starter) => starter());
  watch("value", () => apply(props.value));
  apply(props.value);
  sync();
}

setRunning(false);
start();
