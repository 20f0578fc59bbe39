// ---- the server does not know this conversation (it was started again): begin a new one

function unknown() {
  show("");
}
