// ---- the tab "Learn": its channel
