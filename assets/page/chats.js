// ---- what is kept of the chats, and when; replies that are written while another chat is shown; giving a chat back

const KEEP_LETTERS = 60;  // of the first message, for a title
const AWAY = "greenlight.away";

const away = new Map();      // id of a chat whose reply is being written while another is shown -> when it was last heard of
const unsent = new Map();    // id of a chat that was left with its message still on its way -> that message
const forgotten = new Set(); // deleted here: what still comes of them is not kept
let keptAs = "";             // as much of the chat shown was kept last
let changed = 0;             // when a turn shown here last changed
let resend = false;          // what was asked for met a server that did not know the chat: once more, when it does
let unreadable = "";         // the sentence about a chat that was given back and refused
let pressed = null;          // what was in the box when it was last told to go
let carried = null;          // what was in the box when the page was loaded anew, and whether it was on its way: {text, sent}

function titleOf(message) {
  const line = message.split("\n").map((each) => each.trim()).find(Boolean) ?? "";
  const letters = [...line];
  return letters.length > KEEP_LETTERS ? `${letters.slice(0, KEEP_LETTERS).join("").trimEnd()}…` : line;
}

// A message is kept as soon as it is sent, so that no crash loses it; its reply when it is finished, in place of an older one.
function keep(id, kept, unfinished) {
  if (forgotten.has(id)) return;
  changeChat(id, (old) => {
    if (unfinished && (old?.turns.length ?? 0) >= kept.length) return undefined;
    if (old && JSON.stringify(old.turns) === JSON.stringify(kept)) return undefined;  // only looked at: it keeps its place
    const title = old?.named ? old.title : titleOf(kept[0].user);
    return {greenlight_chat: 1, id, title, at: Date.now(), named: Boolean(old?.named), turns: kept};
  });
}

function turnsShown() {
  return turnList().map(({key, user, about, rows}) => ({key, user, about, rows: [...rows]}));
}

// broken: the server has gone silent, or the page is about to go: also what there is of a reply.
function keepShown(broken = false) {
  const list = turnList();
  const mark = [conversation, running, broken, ...list.map((turn) => (running && !broken ? "" : `${turn.key}.${turn.have}`))].join();
  if (torn || mark === keptAs || !list.length) return;
  keptAs = mark;
  keep(conversation, turnsShown(), running && !broken);
}

onTurn(() => { changed = Date.now(); });
onPatch((patch) => {
  if (torn) return;
  keepShown();
  if (!patch.keys.length && patch.redo && !patch.running && !forgotten.has(conversation)) {
    keptAs = "";
    changeChat(conversation, (old) => (old ? null : undefined));  // an undo took back its only message; a redo brings it back
  }
  if (patch.ready === undefined) return;
  if (unreadable) put("notice", unreadable);
  unreadable = "";
  if (carried) deliver();
  if (resend) sendOnceMore();
  else if (!expected) wished = null;  // from before the page was loaded anew
});

// ---- the chat is not known to the server: it was started again, or has forgotten the oldest

async function unknown() {
  const id = conversation;
  const own = turns.size ? {greenlight_chat: 1, id, turns: turnsShown()} : null;
  torn = true;  // the page goes on asking until it has everything
  asked = Date.now();
  if (sent !== null || carried?.sent || wished) resend = true;
  sentAfter = Infinity;  // whatever comes back was there before it
  const kept = await readChat(id).catch(() => undefined);
  if (id !== conversation) return;
  // What another tab has kept since is newer than what is shown here.
  const record = own && !(kept?.at > changed) ? own : kept;
  if (record) ask("restore", {record});
  else startNew();
}

function startNew() {
  const [message, again] = [sent, resend];
  keptAs = "";
  show("");
  [sent, resend] = [message, again];
}

// A message that was on its way is still in the box; any other wish is repeated as it was, since turns keep their keys.
function sendOnceMore() {
  resend = false;
  if (running) return;
  if (sent === null && wished) write(wished);
  else if (box()?.value) document.getElementById("gl-send")?.click();
}

// The page was loaded anew: what was in the box goes back there, unless it was on its way and the server has taken it.
function deliver() {
  if (carried.sent && turnList().at(-1)?.user === carried.text) resend = false;
  else if (!box()?.value) fillBox(carried.text);
  carried = null;
}

// Gradio loads the page anew once it has lost the server, and until then sends nothing, without a word.
function onPress(event) {
  const enter = event.key === "Enter" && !event.shiftKey && !composing && event.target === box();
  if (enter || event.target.closest?.("#gl-send")) pressed = box()?.value || null;
}

on("click", onPress);
on("keydown", onPress);
window.addEventListener("pagehide", () => {
  if (running) keepShown(true);
  const text = sent ?? box()?.value;
  const written = {text, sent: sent !== null || text === pressed};
  store("sessionStorage", AWAY, JSON.stringify({conversation, written, wished, away: [...away.keys()]}));
}, {signal: mount});

atStart(() => {
  const left = JSON.parse(stored("sessionStorage", AWAY) || "{}");
  for (const id of left.away ?? []) away.set(id, 0);
  if (left.conversation !== conversation) return;
  if (left.written.text) carried = left.written;
  wished = left.wished;
});

// ---- chats that are not shown

// Shows another chat; "": a new one. Nothing that is being written stops.
function choose(id) {
  if (running) away.set(conversation, Date.now());
  if (sent !== null) unsent.set(conversation, sent);
  away.delete(id);
  resend = false;
  expected = wished = null;
  keptAs = "";
  show(id);
  drawChats();
}

onForeign((patch) => {
  const id = patch.conversation;
  if (patch.export) { receiveFile(patch.export); return; }
  if (patch.unknown) {
    away.delete(id);
    if (patch.notice && patch.asked === conversation) {
      unreadable = patch.notice;
      resend = false;
      keptAs = "";
      show("");
    }
    return;
  }
  if (forgotten.has(id)) return;
  if (patch.took && unsent.has(id)) {
    if (box()?.value === unsent.get(id)) fillBox("");
    unsent.delete(id);
  }
  if (patch.running) {
    const news = !away.has(id);
    away.set(id, Date.now());
    if (news) drawChats();
  } else if (away.has(id)) finished(patch);
});

// Its reply is finished. Only a patch with all of its turns can be kept.
function finished(patch) {
  const whole = patch.keys.every((key) => patch.turns.some((part) => part.key === key && part.from === 0));
  if (patch.notice) put("notice", patch.notice);  // refused: the message is still in the box
  if (!whole) { sync(patch.conversation); return; }
  away.delete(patch.conversation);
  const kept = patch.turns.map(({key, user, about, blocks}) => ({key, user, about, rows: blocks.map(([, row]) => row)}));
  if (kept.length) keep(patch.conversation, kept, false);
  drawChats();
}

// A last patch may be lost like any other.
function watchAway() {
  if (running && Date.now() - heard > SILENCE_MS) keepShown(true);
  for (const [id, last] of away) {
    if (Date.now() - last < SILENCE_MS) continue;
    away.set(id, Date.now());
    sync(id);
  }
}

const awayTimer = setInterval(watchAway, 500);
mount.addEventListener("abort", () => clearInterval(awayTimer));

if (otherTabs) otherTabs.onmessage = ({data}) => {
  if (data.gone && data.id === conversation && turns.size) { keptAs = ""; show(""); }
  drawChats();
};
