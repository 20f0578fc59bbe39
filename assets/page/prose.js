// ---- clean reading: replies as Markdown. The server renders them in pieces when asked; a piece that has not changed is
// left alone, and of one that has, only what differs is replaced. So what is selected and scrolled stays.
// Until a reply has its first piece, its tokens are shown.

const PROSE_MS = 500;        // a reply that is being written is asked for at most so often
const PROSE_LOST_MS = 1500;  // an answer that is not there by then was lost
const PROSE_LOOK_MS = 100;

const proses = new WeakMap();  // turn -> {box, html, shown, askedAt}
const nearby = new Set();      // elements of turns that are in view, or nearly
let proseWaited = null;        // {turn, moment, at}: one answer at a time

function proseOf(turn) {
  if (!proses.has(turn)) {
    const box = document.createElement("div");
    box.className = "gl-prose";
    box.dataset.part = "prose";
    box.dir = "auto";
    turn.blocks.after(box);
    proses.set(turn, {box, html: [], shown: "", askedAt: 0});
  }
  return proses.get(turn);
}

// How much of a reply the page has. What the server answers later is as new or newer.
function momentOf(turn) {
  return `${turn.have} ${turn.phase}`;
}

function wantsProse(turn) {
  if (!turn.have || !nearby.has(turn.node)) return false;
  const {shown, askedAt} = proseOf(turn);
  return shown !== momentOf(turn) && (turn.phase === "finished" || Date.now() - askedAt >= PROSE_MS);
}

function lookForProse() {
  if (root.dataset.view !== "reading" || document.hidden) return;
  if (proseWaited && Date.now() - proseWaited.at < PROSE_LOST_MS) return;
  const turn = turnList().find(wantsProse);
  if (!turn) return;
  const prose = proseOf(turn);
  prose.askedAt = Date.now();
  proseWaited = {turn, moment: momentOf(turn), at: prose.askedAt};
  ask("prose", {key: turn.key, from: Math.max(0, prose.html.length - 1)});
}

onAnswer("prose", (answer) => {
  const turn = turns.get(answer.key);
  const waited = proseWaited;
  if (!turn || waited?.turn !== turn) return;
  proseWaited = null;
  const prose = proseOf(turn);
  if (answer.from > prose.html.length) return;
  prose.shown = waited.moment;
  steadily(() => {
    answer.chunks.forEach((html, i) => showPiece(prose, answer.from + i, html));
    prose.html.length = answer.total;
    while (prose.box.children.length > answer.total) prose.box.lastChild.remove();
    if (prose.html.some(Boolean)) turn.node.dataset.prose = "yes";
  });
  lookForProse();
});

function showPiece({box, html: known}, index, html) {
  if (known[index] === html) return;
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  if (!box.children[index]) box.append(document.createElement("div"));
  renew(box.children[index], fresh.content);
  known[index] = html;
}

// Makes the content of `place` equal to that of `fresh`; what is equal already stays the very same.
function renew(place, fresh) {
  const old = [...place.childNodes];
  const wanted = [...fresh.childNodes];
  wanted.forEach((node, i) => {
    const was = old[i];
    if (!was) place.append(node);
    else if (was.isEqualNode(node)) return;
    else if (was.nodeType === Node.TEXT_NODE && node.data?.startsWith(was.data)) was.appendData(node.data.slice(was.length));
    else if (was.nodeType === Node.ELEMENT_NODE && was.cloneNode(false).isEqualNode(node.cloneNode(false))) renew(was, node);
    else was.replaceWith(node);
  });
  old.slice(wanted.length).forEach((node) => node.remove());
}

// The turn that is being read stays where it is, whatever grows or shrinks above it; the end stays the end.
function steadily(change) {
  const follow = atEnd() && !selecting();
  const top = log.getBoundingClientRect().top;
  const read = turnList().find(({node}) => node.getBoundingClientRect().bottom > top)?.node;
  const before = read?.getBoundingClientRect().top;
  change();
  if (follow) log.scrollTop = log.scrollHeight;
  else if (read && read.getBoundingClientRect().top !== before) log.scrollTop += read.getBoundingClientRect().top - before;
}

actions["copy-code"] = (button) => copy(button.closest(".code").querySelector("code").textContent).then(() => {
  done(button);
  put("say", button.querySelector(".done").innerHTML);
});

const sight = new IntersectionObserver((seen) => {
  for (const {target, isIntersecting} of seen) nearby[isIntersecting ? "add" : "delete"](target);
  lookForProse();
}, {root: log, rootMargin: "400px 0px"});

onTurn((turn) => {
  sight.observe(turn.node);  // a second time does nothing
  lookForProse();
});
on("greenlight:view", lookForProse);
const proseTimer = setInterval(lookForProse, PROSE_LOOK_MS);
mount.addEventListener("abort", () => {
  clearInterval(proseTimer);
  sight.disconnect();
});
