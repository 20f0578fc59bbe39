// ---- a viewer plays a recording: one or two lanes side by side, each on its own clock. What a block took is in its row,
// so playing, stepping and slow motion need neither server nor model, and a live race is a recording that grows.

const SPEED_OF = {live: Infinity, real: 1, slow: 1 / 4, slower: 1 / 16};  // seconds of the lanes' clocks in one of ours
const SOON = 1e-9;           // clocks are sums of rounded numbers
const LEAST_TOKENS = 8;      // a ratio of fewer says nothing
const TAIL_PX = 24;
const DONE = new Set(["stop", "stop_string", "length", "context"]);  // ends of a lane that ran its course

// The reply's tokens and seconds of compute that a block added.
function costOf(row) {
  if (row.e === "prompt") return {tokens: row.tok ? 1 : 0, seconds: row.s[0]};
  if (row.e === "round") return {tokens: (row.ok ?? 0) + (row.last ? 1 : 0), seconds: row.s[3]};
  return {tokens: 0, seconds: 0};
}

function makeViewer(place) {
  const slot = (name) => place.querySelector(`[data-slot="${name}"]`);
  const name = place.dataset.viewer;
  const speeds = [...place.querySelectorAll(`[name="gl-speed-${name}"]`)];
  let recording = null;      // {id, title, user, made, lanes, verdict, ...} as the server shows it
  let lanes = [];            // {name, node, part, rows, ends, sums, shown, phase, ...}
  let clock = 0;             // own seconds played
  let playing = false;
  let speed = "real";
  let live = false;
  let ticked = 0;            // when the last frame was drawn
  let frame = 0;
  let chosen = null;         // {lane, block, piece}: the token looked into
  let asking = 0;
  let panes = new Map();    // panes that have come, by place
  const lost = slot("lost").innerHTML;

  // ---- filling

  function open(shown, {play = true, at = 0} = {}) {
    recording = shown;
    live = shown.lanes.some((lane) => lane.phase !== "finished");
    clock = at;
    chosen = null;
    panes = new Map();
    slot("lanes").replaceChildren();
    lanes = shown.lanes.map(addLane);
    tellWhat();
    if (slot("round")) slot("round").innerHTML = hint;
    if (slot("saves")) slot("saves").hidden = true;
    warn("");
    setSpeed(live ? "live" : speed === "live" ? "real" : speed);
    place.dataset.state = live ? "live" : "whole";
    for (const lane of shown.lanes) grow(lane);
    draw();
    setPlaying(play);
  }

  function addLane(shown) {
    const node = document.querySelector("[data-text=lane]").firstElementChild.cloneNode(true);
    const part = (what) => node.querySelector(`[data-lane="${what}"]`);
    node.classList.add(shown.name);
    part("name").innerHTML = sentence(`lane-${shown.name}`);
    const text = node.querySelector(".lane-text");
    text.setAttribute("aria-label", wordsOf(`lane-${shown.name}`));
    slot("lanes").append(node);
    // ends[n]: the clock after n blocks; sums[n]: the tokens
    return {name: shown.name, node, part, text, rows: [], ends: [0], sums: [0], first: null, shown: 0, phase: "", foot: "",
            most: shown.about?.params?.max_new_tokens ?? 0};
  }

  // Blocks never change, so what is here already is skipped; false if something is missing before them.
  function grow({name: which, from = 0, blocks, phase, foot}) {
    const lane = lanes.find((one) => one.name === which);
    if (!lane || from > lane.rows.length) return false;
    for (const block of blocks.slice(lane.rows.length - from)) {
      const {tokens, seconds} = costOf(block[1]);
      lane.rows.push(block);
      lane.ends.push(lane.ends.at(-1) + seconds);
      lane.sums.push(lane.sums.at(-1) + tokens);
      if (block[1].e === "prompt") lane.first = {seconds: lane.ends.at(-1), tokens: lane.sums.at(-1)};
    }
    lane.phase = phase;
    if (foot !== undefined) lane.foot = foot;
    return true;
  }

  // A message about a race that is running. False: something is missing, so everything should be fetched.
  function takeLive(message) {
    const complete = message.lanes.map(grow).every(Boolean);
    live = lanes.some((lane) => lane.phase !== "finished");
    place.dataset.state = live ? "live" : "whole";
    if (message.verdict) recording.verdict = message.verdict;
    const followed = playing && speed === "live";
    if (!live && speed === "live") setSpeed("real", false);
    if (!live && followed) toEnd();
    else if (playing) wake();
    else draw();
    return complete;
  }

  // Nobody will add to it any more, though no lane said that it has ended: it is played and saved as far as it came.
  function breakOff() {
    takeLive({lanes: lanes.map(({name, rows}) => ({name, from: rows.length, blocks: [], phase: "finished"}))});
  }

  // A sentence under the lanes; "" takes it away.
  function warn(html) {
    slot("lost").innerHTML = html;
    slot("lost").hidden = !html;
  }

  function tellWhat() {
    const {title, user, made} = recording;
    const words = document.createElement("div");
    if (title?.en) words.innerHTML = `<p class="title">${both(title)}</p>`;
    const prompt = document.createElement("p");
    prompt.className = "asked";
    prompt.dir = "auto";
    prompt.textContent = user;
    prompt.title = user;
    words.append(prompt);
    if (made && made !== new Date().toISOString().slice(0, 10)) words.insertAdjacentHTML("beforeend", `<p class="made">${sentence("watch-recorded")} ${escapeText(made)}</p>`);
    slot("what").replaceChildren(words);
  }

  // ---- the clock

  // How far it can be played: while lanes run, to where all of them have been.
  function edge() {
    const running = lanes.filter((lane) => lane.phase !== "finished");
    const ends = (running.length ? running : lanes).map((lane) => lane.ends.at(-1));
    return running.length ? Math.min(...ends) : Math.max(0, ...ends);
  }

  function setPlaying(wanted) {
    if (wanted && !live && clock >= edge() - SOON && edge() > 0) clock = 0;
    playing = wanted;
    place.dataset.playing = playing ? "yes" : "no";
    ticked = 0;
    if (playing) wake();
    draw();
  }

  function setSpeed(wanted, byHand = true) {
    speed = wanted;
    for (const input of speeds) input.checked = input.value === wanted;
    ticked = 0;
    if (byHand && playing) wake();
    showMode();
  }

  function wake() {
    frame ||= requestAnimationFrame(tick);
  }

  function tick(now) {
    frame = 0;
    if (!playing || !place.isConnected) return;
    const rate = SPEED_OF[speed];
    const passed = ticked ? Math.min(now - ticked, 250) / 1000 : 0;  // a page that was away goes on where it was
    ticked = now;
    clock = rate === Infinity ? edge() : Math.min(edge(), clock + passed * rate);
    draw();
    if (!live && clock >= edge() - SOON) { playing = false; place.dataset.playing = "no"; showMode(); return; }
    if (rate !== Infinity || !live) wake();  // a live race wakes it with each message
  }

  function toEnd() {
    clock = edge();
    playing = live;
    place.dataset.playing = playing ? "yes" : "no";
    draw();
  }

  // To where the next round of the lane with guesses ends, or the one before; of the other lane, once that is over.
  function step(way) {
    setPlaying(false);
    const lane = lanes.find((one) => one.name !== "plain" && stepOf(one, way) !== null) ?? lanes.find((one) => stepOf(one, way) !== null);
    if (lane) clock = Math.min(stepOf(lane, way), live ? edge() : Infinity);
    draw();
    if (lane) chooseLatest(lane);
  }

  function stepOf(lane, way) {
    const ends = lane.ends.slice(1).filter((end, i, all) => end !== all[i - 1]);
    const found = way > 0 ? ends.find((end) => end > clock + SOON) : ends.filter((end) => end < clock - SOON).at(-1) ?? (clock > 0 ? 0 : undefined);
    return found ?? null;
  }

  // ---- drawing

  function draw() {
    for (const lane of lanes) drawLane(lane);
    drawGain();
    const over = !live && lanes.length > 0 && clock >= edge() - SOON;
    place.dataset.over = over ? "yes" : "no";
    const verdict = slot("verdict");
    if (verdict) {
      const html = over ? recording?.verdict ?? "" : "";
      if (verdict.told !== html) verdict.innerHTML = verdict.told = html;
    }
    if (slot("saves")) slot("saves").hidden = live || !recording;
    markFirst(over);
    showMode();
  }

  function drawLane(lane) {
    const {text, part} = lane;
    let upto = lane.shown;
    while (upto < lane.rows.length && lane.ends[upto + 1] <= clock + SOON) upto += 1;
    while (upto > 0 && lane.ends[upto] > clock + SOON) upto -= 1;
    if (upto !== lane.shown) {
      const follow = text.scrollHeight - text.scrollTop - text.clientHeight < TAIL_PX && !selectingIn(text);
      const blocks = part("blocks");
      if (upto > lane.shown) blocks.insertAdjacentHTML("beforeend", lane.rows.slice(lane.shown, upto).map(([html]) => html).join(""));
      else while (blocks.childElementCount > upto) blocks.lastElementChild.remove();
      if (chosen?.lane === lane.name && !tokenAt(chosen)) forget();
      if (follow) text.scrollTop = text.scrollHeight;
      lane.shown = upto;
    }
    const whole = lane.phase === "finished" && upto === lane.rows.length;
    lane.node.dataset.phase = whole ? "finished" : upto ? "running" : "waiting";
    const speedNow = speedOf(lane);
    setText(part("speed"), speedNow === null ? "–" : figure(speedNow));
    setText(part("tokens"), String(lane.sums[upto]));
    setText(part("clock"), `${(whole ? lane.ends[upto] : Math.min(clock, lane.ends[upto])).toFixed(2)} s`);
    const most = Math.max(...lanes.map((one) => (one.phase === "finished" ? one.sums.at(-1) : one.most)), 1);
    part("bar").style.transform = `scaleX(${Math.min(1, lane.sums[upto] / most)})`;
    const foot = whole ? lane.foot : "";
    if (part("foot").told !== foot) part("foot").innerHTML = part("foot").told = foot;
  }

  // Tokens a second of decoding, after the first token: what was measured up to here.
  function speedOf(lane) {
    const seconds = lane.ends[lane.shown] - (lane.first?.seconds ?? 0);
    const tokens = lane.sums[lane.shown] - (lane.first?.tokens ?? 0);
    return tokens > 0 && seconds > 0 ? tokens / seconds : null;
  }

  function drawGain() {
    const plain = lanes.find((lane) => lane.name === "plain"), spec = lanes.find((lane) => lane.name === "speculative");
    slot("gain").hidden = !plain || !spec;
    if (!plain || !spec) return;
    const enough = [plain, spec].every((lane) => lane.sums[lane.shown] >= LEAST_TOKENS && speedOf(lane));
    setText(slot("speedup"), enough ? `${(speedOf(spec) / speedOf(plain)).toFixed(2)}×` : "–");
  }

  function markFirst(over) {
    const ends = lanes.map((lane) => lane.ends.at(-1));
    lanes.forEach((lane, i) => {
      const first = lanes.length === 2 && DONE.has(lane.rows.at(-1)?.[1].reason) && lane.shown === lane.rows.length
        && ends[i] < ends[1 - i] && (over || clock >= ends[i] - SOON) && lane.sums.at(-1) > 0;
      lane.node.querySelector(".winner").hidden = !first;
    });
  }

  function showMode() {
    const over = !live && lanes.length && clock >= edge() - SOON;
    const mode = over ? "done" : playing ? speed : live ? "held" : "paused";
    for (const words of slot("mode").children) words.hidden = words.dataset.mode !== mode;
    place.dataset.mode = mode;
  }

  function setText(node, words) {
    if (node.textContent !== words) node.textContent = words;
  }

  // ---- looking into a round

  const hint = slot("round")?.innerHTML ?? "";

  function tokenAt({lane, block, piece}) {
    const found = lanes.find((one) => one.name === lane);
    return found?.part("blocks").children[block]?.querySelector(`[data-i="${piece}"]`) ?? null;
  }

  function choose(lane, block, piece, say = false) {
    forget();
    chosen = {lane, block, piece, say};
    tokenAt(chosen)?.classList.add("told");
    if (slot("round")) fillRound(WATCH_TRIES);
  }

  function forget() {
    if (chosen) tokenAt(chosen)?.classList.remove("told");
    clearTimeout(asking);
    chosen = null;
  }

  function fillRound(tries) {
    const key = [chosen.lane, chosen.block, chosen.piece].join("/");
    if (panes.has(key)) {
      const held = slot("round").contains(document.activeElement) && (document.activeElement.dataset.action ?? "token");
      slot("round").innerHTML = panes.get(key);
      const same = [`[data-action="${held}"]:enabled`, "[data-piece][aria-current]", "[data-piece]"];  // the best that there is
      if (held) same.map((one) => slot("round").querySelector(one)).find(Boolean)?.focus();
      if (chosen.say) slot("say").textContent = slot("round").querySelector(".says")?.innerText ?? "";
    } else if (tries) {
      look("round", {id: recording.id, lane: chosen.lane, block: chosen.block, piece: chosen.piece});
      asking = setTimeout(() => fillRound(tries - 1), 900);
    }
  }

  function takeRound({id, lane, block, piece, html}) {
    if (id !== recording?.id || !html) return;
    const key = [lane, block, piece].join("/");
    panes.set(key, html);
    if (chosen && key === [chosen.lane, chosen.block, chosen.piece].join("/")) { clearTimeout(asking); fillRound(0); }
  }

  function chooseLatest(lane) {
    if (!slot("round")) return;
    for (let block = lane.shown - 1; block >= 0; block--) {
      const token = lane.part("blocks").children[block].querySelector("[data-i]");
      if (token) { choose(lane.name, block, Number(token.dataset.i), true); return; }
    }
  }

  function chooseToken(token, say) {
    const lane = lanes.find((one) => one.node.contains(token));
    if (!lane) return;
    choose(lane.name, [...lane.part("blocks").children].indexOf(token.closest(".round")), Number(token.dataset.i), say);
  }

  // Through the tokens of a lane; through the rounds with up and down.
  function walk(lane, way, byRound) {
    const tokens = [...lane.part("blocks").querySelectorAll(byRound ? ".round > [data-i]:first-child" : "[data-i]")];
    const here = chosen?.lane === lane.name ? tokenAt(chosen) : null;
    let at = here ? tokens.indexOf(byRound ? here.closest(".round").querySelector("[data-i]") : here) : way > 0 ? -1 : tokens.length;
    at = Math.max(0, Math.min(tokens.length - 1, at + way));
    if (!tokens[at]) return;
    tokens[at].scrollIntoView({block: "nearest"});
    chooseToken(tokens[at], true);
  }

  function stepRound(way) {
    const lane = lanes.find((one) => one.name === chosen?.lane) ?? lanes.at(-1);
    if (lane) walk(lane, way, true);
  }

  // ---- buttons and keys of this viewer

  const buttons = {
    play: () => setPlaying(!playing),
    restart: () => { clock = 0; if (speed === "live") setSpeed("real", false); setPlaying(!matchMedia("(prefers-reduced-motion: reduce)").matches); },
    back: () => step(-1),
    step: () => step(1),
    end: toEnd,
    "round-prev": () => stepRound(-1),
    "round-next": () => stepRound(1),
    "save-trace": (button) => save(button, "trace"),
    "save-page": (button) => save(button, "page"),
  };

  async function save(button, form) {
    warn("");
    if (!await askWatchFile(button, () => recording.id, form) && slot("lost").hidden) warn(sentence("watch-unanswered"));
  }

  place.addEventListener("click", (event) => {
    const button = event.target.closest("[data-action]");
    if (button && buttons[button.dataset.action]) { buttons[button.dataset.action](button); return; }
    const other = event.target.closest("[data-slot=round] [data-piece]");
    if (other && chosen) { choose(chosen.lane, Number(other.dataset.block ?? chosen.block), Number(other.dataset.piece)); return; }
    const token = event.target.closest(".lane .t[data-i]");
    if (token && !selectingIn(place)) chooseToken(token, false);
  }, {signal: mount});
  place.addEventListener("change", (event) => {
    if (speeds.includes(event.target)) setSpeed(event.target.value);
  }, {signal: mount});
  place.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    const lane = lanes.find((one) => one.text === event.target);
    const way = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1}[event.key];
    if (!lane || !way) return;
    event.preventDefault();
    walk(lane, way, event.key === "ArrowDown" || event.key === "ArrowUp");
  }, {signal: mount});

  const charts = chartsOf(place, {
    moment: () => recording && [recording.id, ...lanes.map((lane) => lane.shown)].join(" "),
    request: () => recording && look("charts", {id: recording.id, upto: Object.fromEntries(lanes.map((lane) => [lane.name, lane.shown]))}),
  });

  return {
    name, place, open, step, setPlaying, takeRound, choose, breakOff,
    takeLive,
    id: () => recording?.id ?? null,
    recording: () => recording,
    isLive: () => live,
    giveCharts: ({id, charts: made}) => { if (id === recording?.id) charts?.give({charts: made}); },
    // Under another id from here on; null: it is not to be had.
    renew: (id) => {
      if (id === null) { warn(lost); return; }
      recording.id = id;
      if (chosen) fillRound(WATCH_TRIES);
    },
    // What a file would hold, without the top lists that only the server has.
    trace: () => recording && {
      greenlight_trace: 1, made: recording.made ?? "", title: [recording.title?.en ?? "", recording.title?.zh ?? ""],
      system: recording.system ?? "", user: recording.user,
      lanes: recording.lanes.map((shown) => ({name: shown.name, about: shown.about,
        rows: lanes.find((lane) => lane.name === shown.name).rows.map(([, row]) => row)})),
    },
    relang: () => lanes.forEach((lane) => lane.text.setAttribute("aria-label", wordsOf(`lane-${lane.name}`))),
  };
}

// The charts of a viewer, where it has some.
function chartsOf(place, asks) {
  const section = place.querySelector("[data-part=charts]");
  return section ? chartsIn(section, asks) : null;
}

function figure(value) {
  return value >= 99.95 ? value.toFixed(0) : value.toFixed(1);
}

function both({en, zh}) {
  return `<span class="en" lang="en">${escapeText(en)}</span><span class="zh" lang="zh">${escapeText(zh)}</span>`;
}

function escapeText(words) {
  const node = document.createElement("span");
  node.textContent = words;
  return node.innerHTML;
}

function selectingIn(place) {
  const selection = document.getSelection();
  return Boolean(selection && !selection.isCollapsed && place.contains(selection.anchorNode));
}

onWatch("round", (round) => viewers.forEach((viewer) => viewer.takeRound(round)));
onWatch("charts", (charts) => viewers.forEach((viewer) => viewer.giveCharts(charts)));
onWatch("forgot", (id) => viewers.forEach((viewer) => { if (viewer.id() === id) recover(viewer); }));

// A server that was started again has forgotten it. The page has all but the lists of likeliest tokens, and gives that back.
const recovering = new Set();  // ids: each is given back once, however often it is missed
async function recover(viewer) {
  const id = viewer.id();
  if (viewer.isLive() || recovering.has(`${viewer.name} ${id}`)) return;
  recovering.add(`${viewer.name} ${id}`);
  const found = await openRecording({trace: viewer.trace()});
  if (viewer.id() === id) viewer.renew(found.failed === undefined ? found.id : null);
}

atStart(() => {
  for (const place of document.querySelectorAll("[data-viewer]")) viewers.set(place.dataset.viewer, makeViewer(place));
  on("greenlight:language", () => viewers.forEach((viewer) => viewer.relang()));
});
