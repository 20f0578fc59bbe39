// ---- reading position: streaming never moves what the reader has selected or scrolled to

const NEAR_END_PX = 48;

function atEnd() {
  return log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_END_PX;
}

function selecting() {
  const selection = document.getSelection();
  return Boolean(selection && !selection.isCollapsed && log.contains(selection.anchorNode));
}

// ---- copying gives plain text, without what was struck out

// The reply as the model wrote it: what its blocks show, without lost drafts and chips.
function textOf(turn) {
  const walker = document.createTreeWalker(turn.blocks, NodeFilter.SHOW_TEXT);
  let written = "";
  while (walker.nextNode()) {
    if (!walker.currentNode.parentElement.closest("s, .chip")) written += walker.currentNode.data;
  }
  return written;
}

function onCopy(event) {
  if (!selecting()) return;
  event.clipboardData.setData("text/plain", document.getSelection().toString());
  event.preventDefault();
}

async function copy(written) {
  try { await navigator.clipboard.writeText(written); return; } catch { /* plain http, or forbidden: the old way */ }
  const field = document.createElement("textarea");
  field.value = written;
  field.className = "unseen";
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

// Hands a file to the browser, which asks the person where it goes, or puts it where downloads go.
function saveFile({name, mime, text}) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type: mime}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// A button that says for a moment that it has done what it says.
function done(button) {
  button.dataset.done = "yes";
  setTimeout(() => delete button.dataset.done, 1500);
}
on("copy", onCopy);
