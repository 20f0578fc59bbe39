// ---- the first minutes: two lines beside the first reply say what green and red mean, in this browser's first few chats,
// until somebody has pressed the button under them

const FIRST = {key: "greenlight.first", chats: 3, done: "done"};

// Whether this chat is among the first ones; a new one is counted. Kept: their names, or that it is done.
function amongFirst() {
  const kept = stored("localStorage", FIRST.key) ?? "";
  if (kept === FIRST.done) return false;
  const chats = kept.split(" ").filter(Boolean);
  if (chats.includes(conversation)) return true;
  if (chats.length >= FIRST.chats) return false;
  store("localStorage", FIRST.key, [...chats, conversation].join(" "));
  return true;
}

function showFirst(chosen) {
  root.dataset.first = chosen ? "yes" : "no";
}

let counted = null;

onTurn(() => {
  if (counted === conversation) return;
  counted = conversation;
  showFirst(amongFirst());
});

actions["first-done"] = () => {
  store("localStorage", FIRST.key, FIRST.done);
  showFirst(false);
  log.focus({preventScroll: true});  // the button is gone; the keyboard goes on from here
};
