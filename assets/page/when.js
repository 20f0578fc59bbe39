// ---- the tab "When to use"
