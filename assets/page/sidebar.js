// ---- the sidebar: the list of chats and what can be done with each. Titles are people's words: textContent only.

const CHAT_TRIES = 3;         // so often is a file asked for
const CHAT_TRY_MS = 4000;
const chatsNarrow = matchMedia("(max-width: 1099px)");   // a drawer over the page; else a column
const chatsRoomy = matchMedia("(min-width: 1280px)");    // with the column open, 40rem are left to read in
let chatsOpen = false;
let chatsDrawn = 0;
let deleted = null;           // the chat deleted last, while an undo is offered: {record, shown}
let fileAsked = null;         // {number, button} of the file that is being made
let filesAsked = 0;

function chatList() { return document.querySelector("#gl-chats [data-part=chats]"); }
function chatOf(node) { return node.closest(".chat"); }
function readyMade(name) { return document.querySelector(`#gl-chats [data-text="${name}"]`); }

async function drawChats() {
  const drawing = ++chatsDrawn;
  const list = await listChats();
  if (drawing !== chatsDrawn) return;
  const focus = document.activeElement;
  const place = chatList();
  const wanted = new Set(list.map(({id}) => id));
  for (const entry of [...place.children]) if (!wanted.has(entry.dataset.id)) entry.remove();
  const entries = new Map([...place.children].map((entry) => [entry.dataset.id, entry]));
  list.forEach(({id, title}, index) => {
    const entry = entries.get(id) ?? readyMade("chat").firstElementChild.cloneNode(true);
    entry.dataset.id = id;
    if (place.children[index] !== entry) place.insertBefore(entry, place.children[index] ?? null);
    for (const word of entry.querySelectorAll(".title")) if (word.textContent !== title) word.textContent = title;
    entry.querySelector(".open").title = title;
    entry.querySelector(".open").setAttribute("aria-current", String(id === conversation));
    entry.querySelector(".writing").hidden = !away.has(id);
  });
  if (focus !== document.activeElement && focus.isConnected) focus.focus();  // an entry that moved has lost it
}

onPatch(() => {
  if (chatList().querySelector("[aria-current=true]")?.closest(".chat").dataset.id !== conversation) drawChats();
});

// ---- one entry: its buttons, its name, whether it goes

function showMenu(entry, open) {
  for (const other of chatList().children) {
    const on = open && other === entry;
    other.querySelector(".menu").hidden = !on;
    other.querySelector(".sure").hidden = true;
    other.querySelector(".more").setAttribute("aria-expanded", String(on));
  }
}

function askDelete(entry, sure) {
  entry.querySelector(".menu").hidden = sure;
  entry.querySelector(".sure").hidden = !sure;
  entry.querySelector(sure ? "[data-action=chat-keep]" : "[data-action=chat-delete]").focus();
}

async function deleteChat(id) {
  const record = await readChat(id);
  forgotten.add(id);
  away.delete(id);
  ask("delete", {id});
  deleted = record && {record, shown: id === conversation};
  if (id === conversation) { keptAs = ""; show(""); }
  await changeChat(id, () => null);
  if (!deleted) return;
  put("chats-gone", readyMade("chats-gone").innerHTML);
  document.querySelector("[data-part=chats-gone] button").focus();
}

async function undoDelete() {
  const {record, shown} = deleted;
  endUndo();
  forgotten.delete(record.id);
  await changeChat(record.id, () => record);
  if (shown && !turns.size) choose(record.id);
  chatList().querySelector(`[data-id="${record.id}"] .open`)?.focus();
}

function endUndo() {
  deleted = null;
  put("chats-gone", "");
}

function rename(entry) {
  const field = entry.querySelector("input");
  showMenu(entry, false);
  entry.classList.add("renaming");
  field.value = entry.querySelector(".title").textContent;
  field.focus();
  field.select();
}

function endRename(entry, take) {
  if (!entry.classList.contains("renaming")) return;
  const name = entry.querySelector("input").value.trim();
  entry.classList.remove("renaming");
  if (take && name !== entry.querySelector(".title").textContent) changeChat(entry.dataset.id, (old) => (
    old && {...old, title: name || titleOf(old.turns[0].user), named: Boolean(name)}  // without a name: as before
  ));
}

// ---- saving a chat as a file: the server writes it, from the record

async function askFile(button, form) {
  const record = await readChat(chatOf(button).dataset.id);
  const number = ++filesAsked;
  fileAsked = {number, button};
  for (let tries = 0; tries < CHAT_TRIES && fileAsked?.number === number; tries++) {
    ask("export", {record, form, lang: root.dataset.lang, number});
    await new Promise((later) => setTimeout(later, CHAT_TRY_MS));
  }
  if (fileAsked?.number === number) notify("chats-unanswered");
}

function receiveFile({number, failed, ...file}) {
  if (fileAsked?.number !== number) return;
  const {button} = fileAsked;
  fileAsked = null;
  if (failed) { put("notice", failed); return; }
  saveFile(file);
  done(button);
}

// ---- a column that can be folded away, or a drawer over the page

function chatsButton() { return document.querySelector(".gl-header [data-action=chats]"); }

function setChats(open) {
  const drawer = open && chatsNarrow.matches;
  chatsOpen = open;
  for (const part of document.querySelectorAll("#gl-chat, .gl-header")) part.dataset.chats = open ? "open" : "closed";
  chatsButton().setAttribute("aria-expanded", String(open));
  for (const part of ["gl-header", "gl-log", "gl-side", "gl-composer"]) document.getElementById(part).inert = drawer;
  return drawer;
}

function arrangeChats() {
  const chosen = stored("localStorage", KEYS.chats);
  setChats(!chatsNarrow.matches && (chosen ? chosen === "open" : chatsRoomy.matches));
}

function toggleChats() {
  const open = !chatsOpen;
  if (!chatsNarrow.matches) store("localStorage", KEYS.chats, open ? "open" : "closed");
  if (setChats(open)) document.querySelector("#gl-chats .new").focus();
  else if (chatsNarrow.matches) chatsButton().focus();
}

function closeDrawer() {
  if (chatsNarrow.matches && chatsOpen) toggleChats();
}

function startChat() {
  closeDrawer();
  endUndo();
  if (turns.size || running || sent !== null) choose("");
  if (matchMedia("(hover: hover)").matches) box()?.focus();  // on a phone that would cover half the page
}

function openChat(id) {
  closeDrawer();
  endUndo();
  showMenu(null, false);
  if (id !== conversation) choose(id);
}

Object.assign(actions, {
  chats: toggleChats,
  "chat-new": startChat,
  "chat-open": (button) => openChat(chatOf(button).dataset.id),
  "chat-more": (button) => showMenu(chatOf(button), button.getAttribute("aria-expanded") !== "true"),
  "chat-rename": (button) => rename(chatOf(button)),
  "chat-markdown": (button) => askFile(button, "markdown"),
  "chat-json": (button) => askFile(button, "json"),
  "chat-delete": (button) => askDelete(chatOf(button), true),
  "chat-keep": (button) => askDelete(chatOf(button), false),
  "chat-delete-yes": (button) => deleteChat(chatOf(button).dataset.id),
  "chat-undo": undoDelete,
});

function onChatKey(event) {
  const entry = event.target.closest?.("#gl-chats .chat");
  if (entry && event.target.matches("input")) {
    if (event.isComposing || event.keyCode === 229 || !["Enter", "Escape"].includes(event.key)) return;
    event.preventDefault();
    endRename(entry, event.key === "Enter");
    entry.querySelector(".open").focus();
  } else if (event.key === "Escape") {
    const more = entry?.querySelector("[aria-expanded=true]");
    if (!more) { closeDrawer(); return; }
    showMenu(entry, false);
    more.focus();
  }
}

on("keydown", onChatKey);
on("focusout", (event) => { if (event.target.matches?.(".chat input")) endRename(chatOf(event.target), true); });
chatsNarrow.addEventListener("change", arrangeChats, {signal: mount});
chatsRoomy.addEventListener("change", arrangeChats, {signal: mount});
atStart(() => { arrangeChats(); drawChats(); });
