// ---- a token's card: what both models made of it. The server has the numbers; what it said is kept, since blocks never change.

const REST_MS = 120;         // how long the pointer rests on a token before its card comes
const LEAVE_MS = 200;        // and how long it may be between token and card
const CARD_AGAIN_MS = 700;   // an answer may get lost; it is asked for again, so often:
const CARD_TRIES = 6;
const CARDS_KEPT = 500;

const cardBox = element.querySelector("[data-part=card]");
const cardSay = element.querySelector("[data-part=card-say]");
const phone = matchMedia("(max-width: 640px)");
let told = null;          // {node, how, args}: the token whose card is wanted; how: "pointer", "tap" or "keys"
let latestTold = null;    // the token that was told last, where the keys go on
let pointerAt = "";       // text that moves under a pointer at rest is no wish to see its card
let touched = false;
let resting = 0, leaving = 0, retrying = 0;

function tokenOf(node) {
  return node.closest?.(".reply .t[data-i]") ?? null;
}

function placeOf({key, block, piece}) {
  return `${key}/${block}/${piece}`;
}

// The cards of a turn that have come, by place. They go with the turn: another may get its key.
function cardsOf({key}) {
  const turn = turns.get(key);
  return turn ? (turn.cards ??= new Map()) : new Map();
}

function tellToken(node, how) {
  const turn = turnOf(node);
  if (!turn || (selecting() && how !== "keys")) return;
  told?.node.classList.remove("told");
  clearTimers();
  const block = [...turn.blocks.children].indexOf(node.closest(".round"));
  told = {node, how, args: {key: turn.key, block, piece: Number(node.dataset.i)}};
  latestTold = node;
  node.classList.add("told");
  fillCard(CARD_TRIES);
}

// Shows the card, or asks for it. The one before it stays until then, so that stepping on does not flicker.
function fillCard(tries) {
  const html = cardsOf(told.args).get(placeOf(told.args));
  if (html !== undefined) {
    cardBox.innerHTML = html + sentence("look");
    cardBox.hidden = false;
    cardBox.scrollTop = 0;
    placeCard();
    if (told?.how === "keys") cardSay.textContent = cardBox.querySelector(".says").innerText;
  } else if (tries) {
    if (tries < CARD_TRIES) cardBox.hidden = true;
    ask("card", told.args);
    retrying = setTimeout(() => fillCard(tries - 1), CARD_AGAIN_MS);
  }
}

function hideToken() {
  clearTimers();
  told?.node.classList.remove("told");
  told = null;
  if (cardBox.contains(document.activeElement)) log.focus({preventScroll: true});
  cardBox.hidden = true;
  cardSay.textContent = "";
}

function clearTimers() {
  [resting, leaving, retrying].forEach(clearTimeout);
  resting = leaving = retrying = 0;
}

// Under the token if there is room, else above it; a sheet above the message box on a phone.
function placeCard() {
  if (!told || cardBox.hidden) return;
  cardBox.style.cssText = "";
  if (phone.matches) {
    cardBox.style.bottom = `${innerHeight - document.getElementById("gl-composer").getBoundingClientRect().top}px`;
    return;
  }
  const around = log.getBoundingClientRect();
  const [first, ...more] = told.node.getClientRects();  // none while another tab is shown
  if (!first) { hideToken(); return; }
  const place = more.reduce((one, other) => (other.width > one.width ? other : one), first);
  if (place.bottom < around.top || place.top > around.bottom) { hideToken(); return; }
  const above = place.top - 12, below = innerHeight - place.bottom - 12;
  const under = cardBox.offsetHeight <= below || below >= above;
  cardBox.style.maxHeight = `${under ? below : above}px`;
  cardBox.style.left = `${Math.max(8, Math.min(place.left, innerWidth - cardBox.offsetWidth - 8))}px`;
  cardBox.style.top = `${under ? place.bottom + 4 : place.top - 4 - cardBox.offsetHeight}px`;
}

// ---- pointer

function onPointer(event) {
  const at = `${event.clientX},${event.clientY}`;
  if (event.pointerType === "touch" || at === pointerAt) return;
  pointerAt = at;
  const node = tokenOf(event.target);
  clearTimeout(resting);
  if (node && node !== told?.node && !event.buttons) resting = setTimeout(() => tellToken(node, "pointer"), REST_MS);
  if (told?.how !== "pointer") return;
  if (node === told.node || cardBox.contains(event.target)) { clearTimeout(leaving); leaving = 0; }
  else leaving ||= setTimeout(hideToken, LEAVE_MS);
}

function onPointerOut(event) {
  if (event.relatedTarget) return;  // the pointer has left the window
  clearTimeout(resting);
  if (told?.how === "pointer") leaving ||= setTimeout(hideToken, LEAVE_MS);
}

function onTap(event) {
  if (cardBox.contains(event.target)) return;
  const node = tokenOf(event.target);
  if (node && node !== told?.node) tellToken(node, touched ? "tap" : "pointer");
  else if (told && (!node || touched)) hideToken();
}

// ---- keyboard: the conversation has the focus and keeps it, left and right go from token to token

function isShown(node) {
  return node.getClientRects().length > 0;
}

// The next one; from nowhere, the first or the last that can be read, or the nearest to what can.
function stepToken(step) {
  const all = [...turnsBox.querySelectorAll(".reply .t[data-i]")];
  let at = all.indexOf(told?.node ?? latestTold);
  if (at >= 0 && (told || inSight(all[at]))) {
    do at += step; while (all[at] && !isShown(all[at]));
    return all[at];
  }
  const shown = all.filter(isShown), seen = shown.filter(inSight), around = log.getBoundingClientRect();
  if (step > 0) return seen[0] ?? shown.find((node) => node.getBoundingClientRect().top > around.top) ?? shown.at(-1);
  return seen.at(-1) ?? shown.findLast((node) => node.getBoundingClientRect().bottom < around.bottom) ?? shown[0];
}

function inSight(node) {
  const {top, bottom} = node.getBoundingClientRect(), around = log.getBoundingClientRect();
  return top >= around.top && bottom <= around.bottom;
}

function onTokenKey(event) {
  if (event.key === "Escape" && told) { hideToken(); return; }
  if (event.key === "Enter" && event.target === log && told?.how === "keys") { actions.inspect(log); return; }
  const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
  if (!step || event.target !== log || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const node = stepToken(step);
  if (!node) return;
  if (!inSight(node)) node.scrollIntoView({block: "nearest"});
  tellToken(node, "keys");
}

onAnswer("card", (answer) => {
  const cards = cardsOf(answer);
  if (cards.size >= CARDS_KEPT) cards.delete(cards.keys().next().value);
  cards.set(placeOf(answer), answer.html);
  if (told && placeOf(told.args) === placeOf(answer)) { clearTimeout(retrying); fillCard(0); }
});
onPatch(() => { if (told && !told.node.isConnected) hideToken(); });
on("pointermove", onPointer);
on("pointerout", onPointerOut);
on("pointerdown", (event) => { touched = event.pointerType !== "mouse"; });
on("click", onTap);
on("keydown", onTokenKey);
on("focusout", (event) => {
  const inside = event.relatedTarget === log || cardBox.contains(event.relatedTarget);  // the card takes the focus only to be scrolled
  if ((event.target === log || event.target === cardBox) && told?.how === "keys" && !inside) hideToken();
});
on("selectionchange", () => { if (told && selecting()) hideToken(); });
on("scroll", (event) => { if (event.target !== cardBox) placeCard(); });
on("greenlight:language", placeCard);
on("greenlight:view", () => { if (told) hideToken(); });
window.addEventListener("resize", placeCard, {signal: mount});
