// ---- the inspector: any reply, whole, with a look into each of its rounds

const MOST_BYTES = 20_000_000;
let source = "";             // the button of what is shown
let sourceAsked = 0;         // so that a slow answer does not replace a later wish

function inspectView() { return viewers.get("inspect"); }
function inspectSay(html) { document.querySelector("[data-slot=inspect-notice]").innerHTML = html; }

function pressSource(name) {
  source = name;
  for (const button of document.querySelectorAll("[data-source]")) button.setAttribute("aria-pressed", String(button.dataset.source === name));
}

// What is wanted of the server for a source, or the name of a sentence that says why there is nothing.
function wantedOf(name) {
  if (name.startsWith("shipped-")) return {shipped: name.slice(8)};
  if (name === "race") return raceView().isLive() ? "watch-unfinished" : raceView().id() ? {id: raceView().id()} : "watch-no-race";
  const turn = turnList().filter((one) => one.have).at(-1);
  return turn ? wantedTurn(turn) : "watch-nothing";
}

function wantedTurn(turn) {
  return turn.phase === "finished" ? {conversation, key: turn.key} : "watch-unfinished";
}

async function inspect(name, wanted = wantedOf(name), then = () => {}) {
  if (name !== "file") inspectSay("");
  if (typeof wanted === "string") { inspectSay(sentence(wanted)); return; }
  const number = ++sourceAsked;
  let found = await openRecording(wanted);
  // A server that was started again has forgotten it; the page still has its rows.
  if (found.failed !== undefined && name === "race") found = await openRecording({trace: raceView().trace()});
  if (found.failed !== undefined && name === "chat" && wanted.key) found = await openRecording({trace: traceOf(turns.get(wanted.key))});
  if (number !== sourceAsked) return;
  inspectSay(found.failed ?? "");
  if (found.failed !== undefined) return;
  pressSource(name);
  inspectView().open(found, {play: false, at: Infinity});
  then();
}

function traceOf(turn) {
  return turn && {greenlight_trace: 1, made: "", title: ["", ""], system: turn.about?.system ?? "", user: turn.user,
                  lanes: [{name: "reply", about: turn.about, rows: turn.rows}]};
}

async function openFile(file) {
  if (!file) return;
  goTo("inspect");
  if (file.size > MOST_BYTES) { inspectSay(sentence("watch-too-large")); return; }
  inspectSay(sentence("watch-opening"));
  inspect("file", {trace: await file.text().catch(() => "")});  // a folder has no text
}

// From a reply of the chat, or from the card of one of its tokens.
function inspectTurn(turn, token) {
  const place = token && {block: [...turn.blocks.children].indexOf(token.closest(".round")), piece: Number(token.dataset.i)};
  goTo("inspect");
  inspect("chat", wantedTurn(turn), () => { if (place) inspectView().choose("reply", place.block, place.piece, true); });
}

Object.assign(actions, {
  open: (button) => inspect(button.dataset.source),
  inspect: (button) => inspectTurn(turnOf(button) ?? turns.get(told?.args.key), turnOf(button) ? null : told?.node),
});

on("change", (event) => {
  if (event.target.dataset?.part !== "trace-file") return;
  openFile(event.target.files[0]);
  event.target.value = "";  // so that the same file can be opened again
});
for (const type of ["dragover", "drop"]) {
  on(type, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();  // else the browser would leave the page and show the file
    if (type === "drop") openFile(event.dataTransfer.files[0]);
  });
}
on("greenlight:tab", () => {
  if (root.dataset.tab !== "inspect" || source) return;
  const latest = turnList().filter((one) => one.have).at(-1);
  inspect(latest ? "chat" : "shipped-chat");
});
