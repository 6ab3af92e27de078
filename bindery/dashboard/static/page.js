// Keeps an open page up to date: replaces its live parts when the server has a new picture.
// Everything works without this script; then a page is as old as its last reload.
"use strict";

const ages = () => {
  for (const each of document.querySelectorAll("[data-age]")) {
    const seconds = Number(each.dataset.age) + (performance.now() - loadedAt) / 1000;
    each.textContent = seconds < 120 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
  }
};
let loadedAt = performance.now();
setInterval(ages, 1000);

const main = document.getElementById("main");
let newest = main.dataset.version;
let isBusy = false;
const refresh = async () => {
  if (isBusy || document.hidden || newest === main.dataset.version) return;
  isBusy = true;
  try {
    const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" } });
    if (answer.redirected || answer.status === 401) { location.reload(); return; }
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    loadedAt = performance.now();
    main.dataset.version = fresh.getElementById("main").dataset.version;
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      if (next === null || part.isEqualNode(next)) continue;
      const focused = part.contains(document.activeElement) ? document.activeElement : null;
      const place = focused ? [...part.querySelectorAll("a, button, [tabindex]")].indexOf(focused) : -1;
      part.replaceChildren(...document.adoptNode(next).childNodes);
      const again = place >= 0 ? part.querySelectorAll("a, button, [tabindex]")[place] : null;
      if (again) again.focus({ preventScroll: true });
    }
  } finally {
    isBusy = false;
  }
};

if (document.querySelector("[data-live]")) {
  const events = new EventSource("/events");
  events.addEventListener("state", (event) => {
    newest = event.data;
    refresh();
  });
  document.addEventListener("visibilitychange", refresh);
}

// An answer that is not there yet is looked for each second.
const look = async () => {
  let isThere = false;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    isThere = !answer.ok || fresh.querySelector("[data-asking]") === null;
  } catch { /* the server is away for a moment */ }
  if (isThere) location.reload();
  else setTimeout(look, 1000);
};
if (document.querySelector("[data-asking]")) setTimeout(look, 1000);

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (button === null) return;
  const text = document.getElementById(button.dataset.copy).textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    button.textContent = "Selected";
  }
});
