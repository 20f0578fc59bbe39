// ---- where chats are kept: in this browser, one record each, as ui/recording/saved.py reads it
//
// In IndexedDB and not in a value of localStorage: that holds 5 MB, which a few long replies with all their events fill,
// and with all chats in one value two tabs would write over each other's. Here a change reads and writes one record in one
// transaction, whatever other tabs do. The list comes from an index, so that no reply is loaded for it.

const OPENING_MS = 5000;  // a database that has not opened by then never will
const chatsInMemory = new Map();  // where the browser lets nothing be stored
const otherTabs = "BroadcastChannel" in window ? new BroadcastChannel("greenlight.chats") : null;
let chatsOpened = null;           // a promise of the database, or of null where there is none
let chatsFull = false;            // the last change could not be kept
mount.addEventListener("abort", () => otherTabs?.close());

function openChats() {
  chatsOpened ??= new Promise((resolve) => {
    const opening = indexedDB.open("greenlight", 1);
    setTimeout(() => resolve(null), OPENING_MS);
    opening.onupgradeneeded = () => opening.result.createObjectStore("chats", {keyPath: "id"}).createIndex("list", ["at", "title"]);
    opening.onerror = (event) => { event.preventDefault(); resolve(null); };
    opening.onsuccess = () => {
      opening.result.onclose = () => { chatsOpened = null; };
      resolve(opening.result);
    };
  }).catch(() => null);
  return chatsOpened;
}

// What the request that `act` makes brings, once the transaction is through.
function inChats(database, mode, act) {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction("chats", mode);
    const request = act(transaction.objectStore("chats"));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onabort = () => reject(transaction.error);
  });
}

// Id and title of each, newest first.
async function listChats() {
  const database = await openChats();
  sayWhere(!database ? "forbidden" : chatsFull ? "full" : "kept");
  if (!database) return [...chatsInMemory.values()].sort((a, b) => b.at - a.at);
  const found = [];
  await inChats(database, "readonly", (chats) => {
    const walk = chats.index("list").openKeyCursor(null, "prev");
    walk.onsuccess = () => {
      if (!walk.result) return;
      found.push({id: walk.result.primaryKey, title: walk.result.key[1]});
      walk.result.continue();
    };
    return walk;
  });
  return found;
}

async function readChat(id) {
  const database = await openChats();
  return database ? inChats(database, "readonly", (chats) => chats.get(id)) : chatsInMemory.get(id);
}

// `change` makes of the record kept (undefined: none) the one to keep: null deletes it, undefined leaves it.
async function changeChat(id, change) {
  const database = await openChats();
  let next;
  try {
    chatsFull = false;
    if (database) await inChats(database, "readwrite", (chats) => {
      const reading = chats.get(id);
      reading.onsuccess = () => {
        next = change(reading.result);
        try {
          if (next === null) chats.delete(id);
          else if (next) chats.put(next);
        } catch { reading.transaction.abort(); }
      };
      return reading;
    });
    else {
      next = change(chatsInMemory.get(id));
      if (next === null) chatsInMemory.delete(id);
      else if (next) chatsInMemory.set(id, next);
    }
  } catch {
    chatsFull = true;  // what the browser lets a page store is used up, most likely
  }
  if (next === undefined) return;
  otherTabs?.postMessage({id, gone: next === null});
  drawChats();
}

function sayWhere(how) {
  put("chats-where", document.querySelector(`[data-text="chats-${how}"]`).innerHTML);
}
