// ---- views: one is shown. Each has an address of its own (?tab=race), so that it can be linked to and the browser's
// Back button works. Which one is shown first is decided in early.js, before anything is drawn.

let chatScroll = 0;  // a log that is not shown forgets where it stood

function tabFrom(address) {
  const wanted = new URL(address, location.href).searchParams.get("tab");
  return document.querySelector(`[data-tab-link="${CSS.escape(wanted ?? "")}"]`) ? wanted : "chat";
}

function showTab(name) {
  const before = root.dataset.tab;
  if (before === "chat" && name !== "chat") chatScroll = atEnd() ? Infinity : log.scrollTop;
  root.dataset.tab = name;
  for (const link of document.querySelectorAll(".tabs [data-tab-link]")) {
    if (link.dataset.tabLink === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.querySelector(".tabs [aria-current]")?.scrollIntoView({block: "nearest", inline: "nearest"});  // on a phone the row scrolls
  if (name === "chat" && before !== "chat") log.scrollTop = Math.min(chatScroll, log.scrollHeight);
  tell("tab");
}

function goTo(name) {
  if (name === root.dataset.tab) return;
  const address = new URL(location.href);
  if (name === "chat") address.searchParams.delete("tab");
  else address.searchParams.set("tab", name);
  history.pushState(null, "", address);
  showTab(name);
}

on("click", (event) => {
  const link = event.target.closest("[data-tab-link]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;  // those open it elsewhere
  event.preventDefault();
  goTo(link.dataset.tabLink);
});
window.addEventListener("popstate", () => showTab(tabFrom(location.href)), {signal: mount});
atStart(() => showTab(tabFrom(location.href)));
