// ---- start

// What Gradio calls before it sends an event: fills in which conversation this page shows.
function fill(...values) {
  values[0] = conversation;
  return values;
}

function send(...values) {
  sent = values[1];
  sentAfter = lastKey();
  return fill(...values);
}
window.greenlight = {fill, send};

function watchOver() {
  const now = Date.now();
  const silent = running && now - heard > SILENCE_MS;
  const loading = !ready && now - heard > LOADING_MS;
  if ((torn || silent || loading) && now - asked > (loading ? LOADING_MS : ASK_AGAIN_MS)) sync();
}
const timer = setInterval(watchOver, 500);
mount.addEventListener("abort", () => clearInterval(timer));

// Another tab may have gone on with this conversation.
on("visibilitychange", () => { if (!document.hidden && !running) sync(); });

// The header, the panel and the notices are components of their own, which may be mounted after this one.
const PARTS = [".gl-header", "#gl-figures", "#gl-chats [data-part=chats]", "[data-part=notice]", "[data-part=charts]"];

function start() {
  if (window.greenlightOff.signal !== mount) return;
  if (!PARTS.every((place) => document.querySelector(place))) {
    setTimeout(start, 20);
    return;
  }
  const theme = stored(localStorage, KEYS.theme);
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
