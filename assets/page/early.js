// Run before Gradio puts its components up, on its own and not with the other files of this folder.
//
// A browser that forbids storage throws when it is merely mentioned. Gradio mentions it (settings are remembered there),
// and what it throws can come while the page is being put up and leave the rest of it out. So such a browser gets a
// storage that forgets with the page.
for (const name of ["localStorage", "sessionStorage"]) {
  try {
    void window[name];
  } catch {
    const kept = new Map();
    const storage = {
      getItem: (key) => kept.get(String(key)) ?? null,
      setItem: (key, value) => { kept.set(String(key), String(value)); },
      removeItem: (key) => { kept.delete(String(key)); },
      clear: () => kept.clear(),
      key: (index) => [...kept.keys()][index] ?? null,
      get length() { return kept.size; },
    };
    try { Object.defineProperty(window, name, {value: storage, configurable: true}); } catch { /* then without */ }
  }
}

// Which view is shown first, so that no other flashes up before it.
document.documentElement.dataset.tab = new URLSearchParams(location.search).get("tab") ?? "chat";
