// The address of a local page has its one-time token in the fragment, which no browser sends: this
// script posts it, and takes it out of the address.
"use strict";

const form = document.getElementById("login");
const token = location.hash.slice(1);
if (form !== null && token !== "") {
  history.replaceState(null, "", location.pathname + location.search);
  form.elements.token.value = token;
  form.submit();
}
