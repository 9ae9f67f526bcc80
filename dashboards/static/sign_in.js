"use strict";
// Takes a token from behind the # of the address, which no server and no log has seen, and forgets it there.
(() => {
  const token = decodeURIComponent(location.hash.slice(1));
  const field = document.querySelector("input[name=token]");
  if (!token || !field) return;
  field.value = token;
  history.replaceState(null, "", location.pathname + location.search);
  field.form.querySelector("button").focus();
})();
